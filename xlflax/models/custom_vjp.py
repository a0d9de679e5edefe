"""Recomputation: functions whose backward pass keeps only their arguments."""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax import ad_checkpoint

from xlflax.models import compile_targets

# Values that policies of rematerialisation keep besides matrix products.
KEPT = ('attention',)


def checkpoint_name(array: jax.Array) -> jax.Array:
  """Names a result of a kernel that costs too much to be computed again."""
  return ad_checkpoint.checkpoint_name(array, KEPT[0])


def recompute_in_backward(
  function: Callable[..., jax.Array],
) -> Callable[..., jax.Array]:
  """Returns `function`, recomputed in the backward pass.

  For cheap element-wise functions [...] -> [...], whose intermediate values
  cost more to write and read than to compute.

  Args:
    function: of arrays (floating-point), to an array.

  Returns:
    A function of the same values and gradients, in reverse mode only.
  """
  wrapped: Any = jax.custom_vjp(function)

  def forward(*arguments):
    return function(*arguments), prevent_cse(arguments)

  def backward(arguments, gradient):
    return jax.vjp(function, *arguments)[1](gradient)

  wrapped.defvjp(forward, backward)
  wrapped.plain = function
  return functools.wraps(function)(wrapped)


def recompute_with_bias(function: Callable[[jax.Array], jax.Array]):
  """Returns (x, bias) -> function(x + bias), recomputed as a whole.

  Products then write x alone, which the backward pass reads.
  """
  plain = getattr(function, 'plain', function)
  return recompute_in_backward(lambda x, bias: plain(x + bias))


def prevent_cse(arrays):
  """Returns arrays that XLA does not recognise as the given ones.

  On GPUs and TPUs, where layers are unrolled, XLA would merge what the backward
  pass computes again from them with the forward pass, and keep it. A scan's
  body needs no barrier, and on a CPU it would keep the second computation from
  fusing with its neighbours.
  """
  if compile_targets.current_target().platform == 'cpu':
    return arrays
  return jax.lax.optimization_barrier(arrays)
