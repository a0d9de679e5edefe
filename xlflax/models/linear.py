"""Linear maps, initialisers and constraints that carry logical axes."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import config as model_config

_Config = model_config.EncoderConfig


def constrain(states: jax.Array, *axes: str | None) -> jax.Array:
  """Constrains an array [...] to logical axes, such as 'batch', 'length'."""
  return nn.with_logical_constraint(states, axes)


def weights_init(config: _Config, *axes: str):
  """Normal initialiser whose parameter carries logical axes."""
  return nn.with_logical_partitioning(
    nn.initializers.normal(config.initializer_range), axes
  )


def zeros_init(*axes: str):
  """Zero initialiser whose parameter carries logical axes."""
  return nn.with_logical_partitioning(nn.initializers.zeros_init(), axes)


class Linear(nn.Module):
  """Linear map over the last axes.

  Attributes:
    config: dtype and initialiser.
    features: shape of the output's last axes.
    axes: logical axes of the kernel, [*contracted, *features].
    use_bias: whether a bias is added.
  """

  config: _Config
  features: tuple[int, ...]
  axes: tuple[str, ...]
  use_bias: bool = True

  @nn.compact
  def __call__(self, inputs: jax.Array) -> jax.Array:
    """[..., *contracted] -> [..., *features] in the compute dtype."""
    dtype = self.config.compute_dtype
    contracted = len(self.axes) - len(self.features)
    kernel = self.param(
      'kernel',
      weights_init(self.config, *self.axes),
      (*inputs.shape[-contracted:], *self.features),
      jnp.float32,
    )
    outputs = jnp.tensordot(
      inputs.astype(dtype), kernel.astype(dtype), axes=contracted
    )
    if not self.use_bias:
      return outputs
    axes = (
      'norm' if axis == 'embed' else axis for axis in self.axes[contracted:]
    )
    bias = self.param('bias', zeros_init(*axes), self.features, jnp.float32)
    rows = tuple(range(inputs.ndim - contracted))
    return outputs + jnp.expand_dims(bias.astype(dtype), rows)
