"""Functions whose backward pass recomputes intermediate values."""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax import ad_checkpoint

from xlflax.models import compile_targets

# Names of the values that rematerialization policies save in addition to the
# results of matrix multiplications.
SAVED_NAMES = ('attention',)


def checkpoint_name(array: jax.Array) -> jax.Array:
  """Marks a kernel's result as too expensive to recompute."""
  return ad_checkpoint.checkpoint_name(array, SAVED_NAMES[0])


def recompute_in_backward(
  function: Callable[..., jax.Array],
) -> Callable[..., jax.Array]:
  """Wraps a function so that its backward pass recomputes intermediate values.

  Use this for cheap element-wise functions whose intermediate values cost more
  to write and read than to compute.

  Args:
    function: Function of floating-point arrays that returns an array.

  Returns:
    A function with the same values and gradients. It supports only reverse-mode
    differentiation.
  """
  wrapped: Any = jax.custom_vjp(function)

  def forward(*arguments):
    return function(*arguments), prevent_cse(arguments)

  def backward(arguments, gradient):
    return jax.vjp(function, *arguments)[1](gradient)

  wrapped.defvjp(forward, backward)
  wrapped.undecorated = function
  return functools.wraps(function)(wrapped)


def recompute_with_bias(function: Callable[[jax.Array], jax.Array]):
  """Returns a function that computes `function(x + bias)` from x and bias.

  The backward pass recomputes the intermediate values. A matmul then writes
  only x, which the backward pass reads.

  Args:
    function: Element-wise function.
  """
  undecorated = getattr(function, 'undecorated', function)
  return recompute_in_backward(lambda x, bias: undecorated(x + bias))


def prevent_cse(arrays):
  """Returns copies that XLA does not merge with the original arrays.

  If layers are unrolled, as on GPUs and TPUs, XLA would merge the values that
  the backward pass recomputes with the same values in the forward pass, and
  would keep them in memory. The body of a scan needs no barrier. On a CPU, a
  barrier would keep the recomputation from being fused with adjacent
  operations.

  Args:
    arrays: Tree of arrays to copy.
  """
  if compile_targets.current_target().platform == 'cpu':
    return arrays
  return jax.lax.optimization_barrier(arrays)


def split_for_accumulation(array: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Returns two copies of an array whose gradients are added in a fixed order.

  On NVIDIA GPUs, a matmul can add another array to its result, but XLA does not
  fuse the addition of two matmul results if one of them already includes such
  an addition. The gradient of the second copy is therefore computed behind an
  optimization barrier, so that the matmul for the gradient of the first copy
  adds the gradient of the second copy.

  On other devices, both copies are the array itself.

  Args:
    array: Array that several matmuls read.
  """
  if not compile_targets.current_target().has_bias_epilogues:
    return array, array
  return array, _with_gradient_barrier(array)


@jax.custom_vjp
def _with_gradient_barrier(array: jax.Array) -> jax.Array:
  """Returns the array. Its gradient has an optimization barrier."""
  return array


_with_gradient_barrier.defvjp(
  lambda array: (array, None),
  lambda _, gradient: (jax.lax.optimization_barrier(gradient),),
)
