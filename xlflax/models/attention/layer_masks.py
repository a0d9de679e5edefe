"""Attention masks for encoders with global and local attention layers.

Layer i is global if i is a multiple of `config.global_attn_every_n_layers`. The
other layers are local: a position attends to positions at most
`config.local_attention` away, and the rotary periods may differ (Warner et al.
2024).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xlflax.models import encoder_config
from xlflax.models.attention import masks, rotary

# A window that is larger than any sequence.
_UNLIMITED_WINDOW = 2**30


class LayerMask(NamedTuple):
  """Attention mask and rotary angles of one layer.

  Attributes:
    mask: Attention mask. If None, every position attends to all positions.
    rotation: Rotary angles of queries and keys. None for other position
      embeddings.
    is_first: Whether the layer skips the norm before its attention, as the
      first layer of ModernBERT does. If None, all layers apply this norm.
  """

  mask: masks.Mask | None
  rotation: rotary.Rotation | None
  is_first: jax.Array | bool | None


class AttentionMasks(NamedTuple):
  """Attention masks and rotary angles of all layers.

  Attributes:
    global_layers: Pair (mask, rotary angles) that all global layers use.
    local_layers: Pair (mask, rotary angles) that all local layers use. None if
      all layers are global.
  """

  global_layers: tuple[Any, Any]
  local_layers: tuple[Any, Any] | None


def layers_differ(config: encoder_config.EncoderConfig) -> bool:
  """Returns whether a layer's mask or norm depends on the layer's index."""
  return config.local_attention is not None or not config.first_attention_norm


def make_attention_masks(
  config: encoder_config.EncoderConfig, segment_ids, positions, length: int
) -> AttentionMasks:
  """Returns the attention masks and rotary angles of all layers.

  Args:
    config: Configuration of the encoder.
    segment_ids: Segment ids, int32 of shape [B, T], or None.
    positions: Positions, int32 of shape [B, T]. If None, 0 to T - 1.
    length: Sequence length T.

  Returns:
    Masks and rotations. `select_layer_mask` returns the mask and rotation of
    one layer.
  """
  mask = masks.make_self_attention_mask(segment_ids)
  global_layers = (
    mask,
    _rotation(config, positions, length, config.rope_theta),
  )
  if config.local_attention is None:
    return AttentionMasks(global_layers, None)
  theta = config.local_rope_theta or config.rope_theta
  return AttentionMasks(
    global_layers,
    (
      (mask or masks.Mask(sees_itself=True)).replace(
        window=config.local_attention
      ),
      _rotation(config, positions, length, theta),
    ),
  )


def select_layer_mask(
  config: encoder_config.EncoderConfig,
  attention_masks: AttentionMasks,
  index: jax.Array | int | None,
) -> LayerMask:
  """Returns the attention mask and rotary angles of one layer.

  Args:
    config: Configuration of the encoder.
    attention_masks: Attention masks and rotary angles of all layers.
    index: Index of the layer, an integer or a traced scalar. It may be None if
      all layers have the same mask (`layers_differ(config)` is false).
  """
  is_first = None if config.first_attention_norm else index == 0
  mask, rotation = attention_masks.global_layers
  if attention_masks.local_layers is None:
    return LayerMask(mask, rotation, is_first)
  assert index is not None
  local_mask, local_rotation = attention_masks.local_layers
  is_global = index % config.global_attn_every_n_layers == 0
  if isinstance(is_global, bool):
    if is_global:
      return LayerMask(mask, rotation, is_first)
    return LayerMask(local_mask, local_rotation, is_first)

  def choose(global_value, local_value):
    return jnp.where(is_global, global_value, local_value)

  window = choose(_UNLIMITED_WINDOW, local_mask.window)
  return LayerMask(
    local_mask.replace(window=window),
    jax.tree.map(choose, rotation, local_rotation),
    is_first,
  )


def _rotation(config, positions, length, theta):
  """Returns the rotary angles, or None for other position embeddings."""
  if config.position_embedding is not encoder_config.PositionEmbedding.ROTARY:
    return None
  if positions is None:
    positions = jnp.arange(length)[None]
  return rotary.rotary_angles(
    positions,
    dim=config.dim_per_head,
    theta=theta,
    factor=config.rope_scaling_factor,
  )
