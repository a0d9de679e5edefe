"""Feed-forward block of a Transformer layer, with or without a gate."""

import functools

import flax.linen as nn
import jax

from xlflax.models import activations, encoder_config
from xlflax.models.linear import dense


class FeedForward(nn.Module):
  """Feed-forward block, which computes act(x W) followed by a linear map.

  The gated block computes act(x W0) * (x W1) instead (Shazeer 2020).
  """

  config: encoder_config.EncoderConfig

  def setup(self):
    config = self.config
    project = functools.partial(
      dense.Linear,
      config,
      (config.mlp_dim,),
      ('embed', 'mlp'),
      use_bias=config.mlp_bias,
    )
    self.wi = project()
    if config.gated_mlp:
      self.gate = project()
    output_bias = config.mlp_output_bias
    self.wo = dense.Linear(
      config,
      (config.hidden_dim,),
      ('mlp', 'embed'),
      use_bias=config.mlp_bias if output_bias is None else output_bias,
    )

  def __call__(
    self, states: jax.Array, *, deterministic: bool = True
  ) -> jax.Array:
    """Maps hidden states [B, T, H] to [B, T, H].

    Args:
      states: Hidden states of shape [B, T, H].
      deterministic: Whether to disable the dropout of LoRA.
    """
    activation = activations.activation_function(self.config.activation)
    project = functools.partial(self.wi, deterministic=deterministic)
    if self.config.gated_mlp:
      gate = self.gate(states, activation, deterministic=deterministic)
      hidden = gate * project(states)
    else:
      hidden = project(states, activation)
    hidden = dense.constrain_sharding(hidden, 'batch', 'length', 'mlp')
    return self.wo(hidden, deterministic=deterministic)
