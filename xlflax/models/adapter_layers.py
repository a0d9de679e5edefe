"""Bottleneck adapters and invertible adapters (MAD-X, Pfeiffer et al. 2020)."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import activations, adapter_config, encoder_config
from xlflax.models.linear import dense


class BottleneckBlock(nn.Module):
  """Two linear maps with an activation between them: U(act(D(x))).

  The second map is zero at initialization.

  Attributes:
    config: Configuration of the encoder.
    activation: Name of the activation between the two linear maps.
    bottleneck_dim: Width of the hidden states between the two linear maps.
    output_dim: Width of the outputs.
  """

  config: encoder_config.EncoderConfig
  activation: str
  bottleneck_dim: int
  output_dim: int

  @nn.compact
  def __call__(self, states: jax.Array) -> jax.Array:
    """Maps states of shape [..., W] to [..., output_dim]."""
    down = dense.Linear(
      self.config, (self.bottleneck_dim,), ('embed', 'mlp'), name='down'
    )
    up = dense.Linear(
      self.config,
      (self.output_dim,),
      ('mlp', 'embed'),
      zero_init=True,
      name='up',
    )
    return up(down(states, activations.activation_function(self.activation)))


def make_bottleneck(
  config: encoder_config.EncoderConfig, adapter: adapter_config.Bottleneck
) -> BottleneckBlock:
  """Returns the block that an adapter adds to a layer (MAD-X, equation 1).

  Args:
    config: Configuration of the encoder.
    adapter: Configuration of the adapter.
  """
  return BottleneckBlock(
    config,
    adapter.activation,
    max(1, config.hidden_dim // adapter.reduction_factor),
    config.hidden_dim,
  )


class InvertibleAdapter(nn.Module):
  """Invertible transformation of the embeddings (MAD-X, section 3.2.3).

  With the two halves e1 and e2 of an embedding, the outputs are o1 = F(e2) + e1
  and o2 = G(o1) + e2, where F and G are bottleneck blocks (equations 3 and 5).

  Attributes:
    config: Configuration of the encoder.
    adapter: Configuration of the adapter.
  """

  config: encoder_config.EncoderConfig
  adapter: adapter_config.Bottleneck

  def setup(self):
    half = self.config.hidden_dim // 2
    make = functools.partial(
      BottleneckBlock,
      self.config,
      self.adapter.activation,
      max(1, half // self.adapter.invertible_reduction_factor),
    )
    self.f = make(half)
    self.g = make(self.config.hidden_dim - half)

  def __call__(self, embeddings: jax.Array) -> jax.Array:
    """Transforms embeddings of shape [..., H]."""
    first, second = self._split(embeddings)
    first = self.f(second) + first
    second = self.g(first) + second
    return jnp.concatenate([first, second], axis=-1)

  def inverse(self, states: jax.Array) -> jax.Array:
    """Inverts the transformation for states [..., H] (MAD-X, equation 4)."""
    first, second = self._split(states)
    second = second - self.g(first)
    first = first - self.f(second)
    return jnp.concatenate([first, second], axis=-1)

  def _split(self, states: jax.Array) -> list[jax.Array]:
    """Returns the two halves of the last axis."""
    return jnp.split(states, [self.config.hidden_dim // 2], axis=-1)
