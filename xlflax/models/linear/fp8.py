"""FP8 matmuls for NVIDIA GPUs with FP8 tensor cores (L40S, H100 or later).

The two factors of a matmul are rounded to E4M3, and the gradient of the result
is rounded to E5M2. Before rounding, each array is scaled so that its largest
element is the largest number of the format (Micikevicius et al. 2022, "FP8
Formats for Deep Learning", sections 3 and 4). The scales are computed from the
current arrays, so that a training step needs no state for them. Sums are
float32.
"""

import functools

import jax
import jax.numpy as jnp

from xlflax.models import compile_targets
from xlflax.utils import errors

_FACTOR_DTYPE = jnp.float8_e4m3fn
_GRADIENT_DTYPE = jnp.float8_e5m2
_MIN_CAPABILITY = (8, 9)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def fp8_matmul(
  inputs: jax.Array, weights: jax.Array, contracted: int
) -> jax.Array:
  """Contracts the last axes of inputs with the first axes of weights in FP8.

  Computes [..., *contracted] x [*contracted, *features] -> [..., *features].
  The backward pass keeps both factors in FP8.

  Args:
    inputs: Array of inputs, whose dtype is also the dtype of the result.
    weights: Array of weights, of the same dtype as the inputs.
    contracted: Number of leading axes of the weights to contract with the last
      axes of the inputs.

  Raises:
    ConfigError: If the target is an accelerator without FP8 matmuls. CPUs have
      no FP8 matmuls either but compute the same values slowly.
  """
  return _forward(inputs, weights, contracted)[0]


def _check_target(target: compile_targets.Target) -> None:
  """Raises ConfigError for accelerators without FP8 matmuls."""
  if target.platform == 'cpu' or (target.capability or ()) >= _MIN_CAPABILITY:
    return
  capability = '.'.join(map(str, target.capability or ('?',)))
  device = (
    'a TPU'
    if target.platform == 'tpu'
    else f'a GPU of compute capability {capability}'
  )
  raise errors.ConfigError(
    "EncoderConfig.matmul_precision='fp8' requires an NVIDIA GPU of compute "
    f'capability 8.9 or later, but the device is {device}',
    fix="Set matmul_precision to 'default'.",
  )


def _forward(inputs, weights, contracted):
  _check_target(compile_targets.current_target())
  factors = _quantize(inputs, _FACTOR_DTYPE), _quantize(weights, _FACTOR_DTYPE)
  rows = inputs.ndim - contracted
  axes = tuple(range(rows, inputs.ndim)), tuple(range(contracted))
  return _scaled_matmul(*factors, axes, inputs.dtype), factors


def _backward(contracted, factors, gradient):
  inputs, weights = factors
  quantized_gradient = _quantize(gradient, _GRADIENT_DTYPE)
  rows = inputs[0].ndim - contracted
  gradient_axes = tuple(range(rows, gradient.ndim))
  weight_axes = tuple(range(contracted, weights[0].ndim))
  row_axes = tuple(range(rows))
  d_inputs = _scaled_matmul(
    quantized_gradient, weights, (gradient_axes, weight_axes), gradient.dtype
  )
  d_weights = _scaled_matmul(
    inputs, quantized_gradient, (row_axes, row_axes), gradient.dtype
  )
  return d_inputs, d_weights


fp8_matmul.defvjp(_forward, _backward)


def _quantize(array, dtype) -> tuple[jax.Array, jax.Array]:
  """Returns the array in FP8, and the scalar factor that restores it."""
  max_value = float(jnp.finfo(dtype).max)
  largest = jnp.max(jnp.abs(array)).astype(jnp.float32)
  scale = jnp.where(largest > 0, max_value / largest, 1.0)
  scaled = jnp.clip(array.astype(jnp.float32) * scale, -max_value, max_value)
  return scaled.astype(dtype), 1 / scale


def _scaled_matmul(lhs, rhs, axes, dtype) -> jax.Array:
  """Multiplies two results of `_quantize` over the given axes."""
  (lhs, lhs_scale), (rhs, rhs_scale) = lhs, rhs
  product = jax.lax.dot_general(
    lhs, rhs, (axes, ((), ())), preferred_element_type=jnp.float32
  )
  return (product * (lhs_scale * rhs_scale)).astype(dtype)
