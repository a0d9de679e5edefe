"""Normalisation over the last axis, in float32."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import config as model_config
from xlflax.models import linear, recompute


class LayerNorm(nn.Module):
  """The norm that `config.norm` names: layer norm (Ba et al. 2016) or RMS."""

  config: model_config.EncoderConfig

  @nn.compact
  def __call__(self, states: jax.Array) -> jax.Array:
    """[..., H] -> [..., H] in the compute dtype."""
    config = self.config
    ones = nn.with_logical_partitioning(nn.initializers.ones_init(), ('norm',))
    width = (states.shape[-1],)
    scale = self.param('scale', ones, width, jnp.float32)
    if config.norm is model_config.Norm.RMS:
      return rms(config.layer_norm_epsilon, config.compute_dtype)(states, scale)
    if config.norm is model_config.Norm.SCALE:
      bias: Any = jnp.zeros(width, jnp.float32)
    else:
      bias = self.param('bias', linear.zeros_init('norm'), width, jnp.float32)
    function = _normalize(config.layer_norm_epsilon, config.compute_dtype)
    return function(states, scale, bias)


@functools.lru_cache
def _normalize(epsilon: float, dtype: jnp.dtype):
  """(x [..., H], scale [H], bias [H]) -> [..., H] in `dtype`."""

  def normalize(states, scale, bias):
    states = states.astype(jnp.float32)
    states = states - states.mean(-1, keepdims=True)
    variance = jnp.square(states).mean(-1, keepdims=True)
    unit = states * jax.lax.rsqrt(variance + epsilon)
    rows = tuple(range(states.ndim - 1))
    scale, bias = (jnp.expand_dims(x, rows) for x in (scale, bias))
    return (unit * scale + bias).astype(dtype)

  return recompute.recomputed(normalize)


@functools.lru_cache
def rms(epsilon: float, dtype: jnp.dtype):
  """Returns RMS norm: (x [..., H], scale [H]) -> [..., H] in `dtype`.

  x is divided by its root mean square and scaled (Zhang & Sennrich 2019).
  """

  def normalize(states, scale):
    states = states.astype(jnp.float32)
    power = jnp.square(states).mean(-1, keepdims=True)
    unit = states * jax.lax.rsqrt(power + epsilon)
    scale = jnp.expand_dims(scale, tuple(range(states.ndim - 1)))
    return (unit * scale).astype(dtype)

  return recompute.recomputed(normalize)
