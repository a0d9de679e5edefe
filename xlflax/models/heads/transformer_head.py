"""Transformer layers that a head adds on top of an encoder.

ECS, section 5.1.2, trains "four transformer layers" and an output layer on top
of one layer of a frozen encoder. The layers have the type and size of the
encoder's layers, except that all of them are global.
"""

import dataclasses

import flax.linen as nn
import jax

from xlflax.models import encoder_config, layers
from xlflax.models.attention import layer_masks


def make_head_config(
  config: encoder_config.EncoderConfig, width: int
) -> encoder_config.EncoderConfig:
  """Returns a head's layer configuration for a given hidden width.

  If the width differs from the encoder's width, the width of feed-forward
  blocks and attention heads is scaled proportionally.

  Args:
    config: Configuration of the encoder.
    width: Width of the hidden states in the head.
  """
  scale = width / config.hidden_dim
  return dataclasses.replace(
    config,
    hidden_dim=width,
    mlp_dim=round(config.mlp_dim * scale),
    head_dim=round(config.dim_per_head * scale),
    cross_attention=False,
    local_attention=None,
    first_attention_norm=True,
    sharing=None,
    adapters=None,
  )


class HeadLayers(nn.Module):
  """Transformer layers of a head, with a final norm for pre-LN layers.

  Attributes:
    config: Configuration of the layers, as returned by `make_head_config`.
    num_layers: Number of Transformer layers, at least 1.
  """

  config: encoder_config.EncoderConfig
  num_layers: int

  @nn.compact
  def __call__(
    self,
    states: jax.Array,
    *,
    segment_ids: jax.Array | None = None,
    positions: jax.Array | None = None,
    deterministic: bool = True,
  ) -> jax.Array:
    """Applies the layers.

    Args:
      states: Hidden states of shape [B, T, W].
      segment_ids: Segment ids as in `Encoder`, int32 of shape [B, T], or None.
      positions: Positions as in `Encoder`, int32 of shape [B, T], or None.
      deterministic: Whether to disable dropout.

    Returns:
      Hidden states of shape [B, T, W].
    """
    states = states.astype(self.config.compute_dtype)
    masks = layer_masks.make_attention_masks(
      self.config, segment_ids, positions, states.shape[1]
    )
    for i in range(self.num_layers):
      layer_mask = layer_masks.select_layer_mask(self.config, masks, i)
      states = layers.EncoderLayer(self.config, name=f'layer_{i}')(
        states,
        layer_mask.mask,
        rotation=layer_mask.rotation,
        deterministic=deterministic,
      )
    if self.config.norm_position is encoder_config.NormPosition.POST:
      return states
    return layers.LayerNorm(self.config, name='final_norm')(states)
