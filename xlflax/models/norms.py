"""Normalization over the last axis, in float32."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import compile_targets, custom_vjp, encoder_config
from xlflax.models.linear import dense


class LayerNorm(nn.Module):
  """Layer norm (Ba et al. 2016) or RMS norm, as set by `config.norm`."""

  config: encoder_config.EncoderConfig

  @nn.compact
  def __call__(self, states: jax.Array) -> jax.Array:
    """Normalizes states [..., H]. The result has the compute dtype."""
    config = self.config
    ones = nn.with_logical_partitioning(nn.initializers.ones_init(), ('norm',))
    width = (states.shape[-1],)
    scale = self.param('scale', ones, width, jnp.float32)
    if config.norm is encoder_config.Norm.RMS:
      return rms_norm(config.layer_norm_epsilon, config.compute_dtype)(
        states, scale
      )
    if config.norm is encoder_config.Norm.SCALE:
      bias: Any = jnp.zeros(width, jnp.float32)
    else:
      bias = self.param('bias', dense.zeros_init('norm'), width, jnp.float32)
    function = _normalize(config.layer_norm_epsilon, config.compute_dtype)
    return function(states, scale, bias)


@functools.lru_cache
def _normalize(epsilon: float, dtype: jnp.dtype):
  """Returns layer norm as a function of states, scale and bias.

  The function maps arrays of shapes [..., H], [H] and [H] to [..., H] in
  `dtype`.
  """

  def normalize(states, scale, bias):
    states = states.astype(jnp.float32)
    states = states - states.mean(-1, keepdims=True)
    variance = jnp.square(states).mean(-1, keepdims=True)
    unit = states * jax.lax.rsqrt(variance + epsilon)
    rows = tuple(range(states.ndim - 1))
    scale, bias = (jnp.expand_dims(x, rows) for x in (scale, bias))
    return (unit * scale + bias).astype(dtype)

  recomputed = custom_vjp.recompute_in_backward(normalize)
  closed_form = _with_closed_form_gradient(normalize, epsilon)

  def normalize_on_target(*arguments):
    if compile_targets.current_target().platform == 'cpu':
      return recomputed(*arguments)
    return closed_form(*arguments)

  return normalize_on_target


def _with_closed_form_gradient(normalize, epsilon: float):
  """Returns `normalize` with a gradient that sums twice over each row.

  With u = (x - mean) / deviation and g = scale * dy, the gradient is

      dx = (g - mean(g) - u mean(g u)) / deviation

  Automatic differentiation would read the rows from memory more often. On
  NVIDIA GPUs, a kernel computes the gradient of rows whose width it supports.
  """
  wrapped = jax.custom_vjp(normalize)

  def forward(states, scale, bias):
    return normalize(states, scale, bias), (
      custom_vjp.prevent_cse(states),
      scale,
    )

  def backward(residuals, gradient):
    states, scale = residuals
    if compile_targets.current_target().has_triton_kernels:
      from xlflax.models import norm_kernels  # Imports Pallas on demand.

      if norm_kernels.supports(states):
        return norm_kernels.layer_norm_gradient(
          states, scale, gradient, epsilon=epsilon
        )
    x, dy = states.astype(jnp.float32), gradient.astype(jnp.float32)
    centered, variance = _center(x)
    inverse_deviation = jax.lax.rsqrt(variance + epsilon)
    unit = centered * inverse_deviation
    rows = tuple(range(x.ndim - 1))
    g = dy * jnp.expand_dims(scale, rows)
    parallel = (g * unit).mean(-1, keepdims=True)
    dx = inverse_deviation * (g - g.mean(-1, keepdims=True) - unit * parallel)
    return dx.astype(states.dtype), (dy * unit).sum(rows), dy.sum(rows)

  wrapped.defvjp(forward, backward)
  return wrapped


def _center(x: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Returns rows minus their mean, and their variances of shape [..., 1].

  To average the squares of the centered values, XLA:GPU would read the rows
  once more. On GPUs, the first element of each row is subtracted instead. It is
  close enough to the mean for the variance to be computed as a difference of
  squares.
  """
  if compile_targets.current_target().platform != 'gpu':
    x = x - x.mean(-1, keepdims=True)
    return x, jnp.square(x).mean(-1, keepdims=True)
  x = x - x[..., :1]
  mean = x.mean(-1, keepdims=True)
  variance = jnp.square(x).mean(-1, keepdims=True) - jnp.square(mean)
  return x - mean, jnp.maximum(variance, 0.0)


@functools.lru_cache
def rms_norm(epsilon: float, dtype: jnp.dtype):
  """Returns an RMS norm function that takes states and a scale.

  The function divides states [..., H] by their root mean square (Zhang &
  Sennrich 2019) and multiplies them by the scale [H].

  Args:
    epsilon: Number that is added to the mean square.
    dtype: Data type of the result.
  """

  def normalize(states, scale):
    states = states.astype(jnp.float32)
    power = jnp.square(states).mean(-1, keepdims=True)
    unit = states * jax.lax.rsqrt(power + epsilon)
    scale = jnp.expand_dims(scale, tuple(range(states.ndim - 1)))
    return (unit * scale).astype(dtype)

  return custom_vjp.recompute_in_backward(normalize)
