"""Recomputation: functions whose backward pass keeps only their arguments."""

import functools
from collections.abc import Callable

import jax


def recomputed(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
  """Returns `function`, recomputed in the backward pass.

  For cheap element-wise functions [...] -> [...], whose intermediate values
  cost more to write and read than to compute. Unlike `jax.checkpoint` it sets
  no barrier, so the second computation fuses with its neighbours.

  Args:
    function: of arrays (floating-point), to an array.

  Returns:
    A function of the same values and gradients, in reverse mode only.
  """
  wrapped = jax.custom_vjp(function)

  def forward(*arguments):
    return function(*arguments), arguments

  def backward(arguments, gradient):
    return jax.vjp(function, *arguments)[1](gradient)

  wrapped.defvjp(forward, backward)
  return functools.wraps(function)(wrapped)
