"""Products in eight bits, as tensor cores of H100 and later multiply them.

Factors are rounded to E4M3, gradients of products to E5M2, each after it is
scaled so that its largest entry is the largest of the format (Micikevicius et
al. 2022, "FP8 Formats for Deep Learning", sections 3 and 4). Scales are those
of the arrays themselves, so that a step needs no state for them. Sums are
float32.
"""

import functools

import jax
import jax.numpy as jnp

from xlflax.models import compile_targets
from xlflax.utils import errors

_FACTOR, _GRADIENT = jnp.float8_e4m3fn, jnp.float8_e5m2
_LEAST = (8, 9)  # compute capability with such products


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def fp8_matmul(
  inputs: jax.Array, weights: jax.Array, contracted: int
) -> jax.Array:
  """[..., *contracted] x [*contracted, *features] -> [..., *features].

  The backward pass keeps both factors in eight bits.

  Args:
    inputs: in the dtype of the result.
    weights: in the same dtype.
    contracted: how many axes are summed over.

  Raises:
    ConfigError: the target is a device without such products. CPUs, which
      have none either, compute the same values slowly.
  """
  return _forward(inputs, weights, contracted)[0]


def _check(target: compile_targets.Target) -> None:
  if target.platform == 'cpu' or (target.capability or ()) >= _LEAST:
    return
  capability = '.'.join(map(str, target.capability or ('?',)))
  raise errors.ConfigError(
    'The devices have no products in eight bits',
    got='a TPU' if target.platform == 'tpu' else f'a GPU of {capability}',
    expected='an NVIDIA GPU of compute capability 8.9 or later',
    where="products = 'eight_bits'",
    fix="set products to 'plain'",
  )


def _forward(inputs, weights, contracted):
  _check(compile_targets.current_target())
  factors = _rounded(inputs, _FACTOR), _rounded(weights, _FACTOR)
  outer = inputs.ndim - contracted
  axes = tuple(range(outer, inputs.ndim)), tuple(range(contracted))
  return _product(*factors, axes, inputs.dtype), factors


def _backward(contracted, factors, gradient):
  inputs, weights = factors
  rounded_gradient = _rounded(gradient, _GRADIENT)
  rows = inputs[0].ndim - contracted
  features = tuple(range(rows, gradient.ndim))
  of_weights = tuple(range(contracted, weights[0].ndim))
  outer = tuple(range(rows))
  return (
    _product(rounded_gradient, weights, (features, of_weights), gradient.dtype),
    _product(inputs, rounded_gradient, (outer, outer), gradient.dtype),
  )


fp8_matmul.defvjp(_forward, _backward)


def _rounded(array, dtype) -> tuple[jax.Array, jax.Array]:
  """Returns the array in eight bits and the scale [] that undoes it."""
  max_value = float(jnp.finfo(dtype).max)
  largest = jnp.max(jnp.abs(array)).astype(jnp.float32)
  scale = jnp.where(largest > 0, max_value / largest, 1.0)
  scaled = jnp.clip(array.astype(jnp.float32) * scale, -max_value, max_value)
  return scaled.astype(dtype), 1 / scale


def _product(left, right, axes, dtype) -> jax.Array:
  """Product of two results of `_rounded` over axes of each."""
  (left, of_left), (right, of_right) = left, right
  product = jax.lax.dot_general(
    left, right, (axes, ((), ())), preferred_element_type=jnp.float32
  )
  return (product * (of_left * of_right)).astype(dtype)
