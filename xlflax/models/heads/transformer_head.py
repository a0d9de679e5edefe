"""Transformer layers of a head, on top of an encoder's states.

ECS, section 5.1.2, trains "four transformer layers" and an output layer over
one layer of a frozen encoder. The layers have the kind and size of the
encoder's, except that each of them sees all of its segment.
"""

import dataclasses

import flax.linen as nn
import jax

from xlflax.models import encoder_config as model_config
from xlflax.models import layers
from xlflax.models.attention import attention_masks


def config_of(
  config: model_config.EncoderConfig, width: int
) -> model_config.EncoderConfig:
  """Returns the encoder's configuration for layers over states of `width`.

  States wider than the encoder's get feed-forward blocks and heads that are
  wider in proportion.
  """
  scale = width / config.hidden_dim
  return dataclasses.replace(
    config,
    hidden_dim=width,
    mlp_dim=round(config.mlp_dim * scale),
    head_dim=round(config.dim_per_head * scale),
    cross_attention=False,
    local_window=None,
    first_norm=True,
    sharing=None,
  )


class HeadLayers(nn.Module):
  """`num_layers` layers, and a final norm if theirs come before blocks.

  Attributes:
    config: from `config_of`.
    num_layers: at least 1.
  """

  config: model_config.EncoderConfig
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
    """[B, T, W] -> [B, T, W]; arguments as of `Encoder`'s methods."""
    states = states.astype(self.config.compute_dtype)
    masks = attention_masks.make_attention_masks(
      self.config, segment_ids, positions, states.shape[1]
    )
    for i in range(self.num_layers):
      layer_mask = attention_masks.select_layer_mask(self.config, masks, i)
      states = layers.EncoderLayer(self.config, name=f'layer_{i}')(
        states,
        layer_mask.mask,
        rotation=layer_mask.rotation,
        deterministic=deterministic,
      )
    if self.config.norm_position is model_config.NormPosition.POST:
      return states
    return layers.LayerNorm(self.config, name='final_norm')(states)
