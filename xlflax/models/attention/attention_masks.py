"""Attention masks of global and local layers.

Layer i is global if i is a multiple of `config.global_every`. The other layers
are local: a position attends to those at most `config.local_window` away, and
the rotary periods may differ (Warner et al. 2024).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xlflax.models import encoder_config as model_config
from xlflax.models.attention import masks, rotary

# A window that no row is as long as.
_ANYWHERE = 2**30


class LayerMask(NamedTuple):
  """The attention mask and rotation of one layer.

  Attributes:
    mask: of the attention, or None if all attend to all.
    rotation: rotary angles of queries and keys; None for other kinds of
      positions.
    is_first: True for a first layer without a norm before its attention; None
      if every layer has that norm.
  """

  mask: masks.Mask | None
  rotation: rotary.Rotation | None
  is_first: jax.Array | bool | None


class AttentionMasks(NamedTuple):
  """(mask, rotation) of the global layers, and of the local ones if any."""

  of_global: tuple[Any, Any]
  of_local: tuple[Any, Any] | None


def layers_differ(config: model_config.EncoderConfig) -> bool:
  """Returns whether a layer's mask or norm depends on its index."""
  return config.local_window is not None or not config.first_norm


def make_attention_masks(
  config: model_config.EncoderConfig, segment_ids, positions, length: int
) -> AttentionMasks:
  """Makes the masks and rotations of all layers.

  Args:
    config: the encoder's configuration.
    segment_ids: int32 [B, T], or None.
    positions: int32 [B, T], or None for 0 .. T - 1.
    length: T.

  Returns:
    Masks and rotations; `of_layer` picks those of a layer.
  """
  mask = masks.within_segments(segment_ids)
  of_global = mask, _rotation(config, positions, length, config.rotary_theta)
  if config.local_window is None:
    return AttentionMasks(of_global, None)
  theta = config.local_rotary_theta or config.rotary_theta
  return AttentionMasks(
    of_global,
    (
      (mask or masks.Mask(sees_itself=True)).replace(
        window=config.local_window
      ),
      _rotation(config, positions, length, theta),
    ),
  )


def of_layer(
  config: model_config.EncoderConfig,
  masks: AttentionMasks,
  index: jax.Array | int | None,
) -> LayerMask:
  """Returns the mask and rotation of one layer.

  Args:
    config: the encoder's configuration.
    masks: those of all layers.
    index: the layer's number, possibly traced; None unless `layers_differ(config)`.
  """
  is_first = None if config.first_norm else index == 0
  mask, rotation = masks.of_global
  if masks.of_local is None:
    return LayerMask(mask, rotation, is_first)
  assert index is not None
  local_mask, local_rotation = masks.of_local
  is_global = index % config.global_every == 0
  if isinstance(is_global, bool):
    return LayerMask(
      *(masks.of_global if is_global else masks.of_local), is_first
    )

  def choose(a, b):
    return jnp.where(is_global, a, b)

  window = choose(_ANYWHERE, local_mask.window)
  return LayerMask(
    local_mask.replace(window=window),
    jax.tree.map(choose, rotation, local_rotation),
    is_first,
  )


def _rotation(config, positions, length, theta):
  rotary_kind = model_config.PositionEmbedding.ROTARY
  if config.position_embedding is not rotary_kind:
    return None
  if positions is None:
    positions = jnp.arange(length)[None]
  return rotary.rotary_angles(
    positions, dim=config.dim_per_head, theta=theta, factor=config.rotary_factor
  )
