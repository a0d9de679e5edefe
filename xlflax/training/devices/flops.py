"""Model FLOPs: the multiplications that a loss needs, counted in its jaxpr.

Matrix products of the forward pass count 2 FLOPs a multiply-add; the backward
pass costs twice the forward pass. Recomputation (remat) is not counted, so
utilisation (MFU) compares between settings.
"""

import math
from collections.abc import Iterator
from typing import Any

import jax


def of_training_step(loss_fn, *args) -> int:
  """FLOPs of one forward and backward pass of `loss_fn(*args)`.

  Args:
    loss_fn: the forward computation.
    *args: arrays or ShapeDtypeStructs.
  """
  return 3 * of_forward(loss_fn, *args)


def of_forward(fn, *args) -> int:
  """FLOPs of the matrix products and convolutions in one call of `fn`."""
  return _count(jax.make_jaxpr(fn)(*args).jaxpr)


def iterate_equations(jaxpr) -> Iterator[Any]:
  """Yields the equations of a jaxpr and of all that it calls."""
  for equation in jaxpr.eqns:
    yield equation
    branches = equation.params.get('branches', ())
    for inner in (*_inner(equation.params), *(b.jaxpr for b in branches)):
      yield from iterate_equations(inner)


def _count(jaxpr) -> int:
  return sum(of_equation(e) for e in jaxpr.eqns)


def of_equation(equation) -> int:
  """FLOPs of the products in one equation of a jaxpr."""
  name = equation.primitive.name
  if name == 'dot_general':
    return _dot(equation)
  if name == 'conv_general_dilated':
    return _convolution(equation)
  if name.startswith('dot_product_attention_fwd'):  # cuDNN's
    return _attention(equation)
  if name == 'pallas_call':  # ours, models/fused_attention
    return _attention(equation)
  inner = sum(_count(j) for j in _inner(equation.params))
  if name == 'scan':
    return inner * equation.params['length']
  # Shapes inside are those of a device's part; one may be left without outputs.
  if name == 'shard_map' and equation.outvars:
    total_size, part = (
      math.prod(v.aval.shape)
      for v in (equation.outvars[0], equation.params['jaxpr'].outvars[0])
    )
    return inner * total_size // part
  if name == 'cond':
    return max(
      (_count(b.jaxpr) for b in equation.params['branches']), default=0
    )
  return inner


def of_kernel(equation) -> int:
  """FLOPs of a Pallas kernel as it is written: its grid times its products.

  A loop whose bounds are not known counts once.
  """
  inner = sum(_count(j) for j in _inner(equation.params))
  return inner * math.prod(equation.params['grid_mapping'].grid)


def _dot(equation) -> int:
  (contract, _), _ = equation.params['dimension_numbers']
  left_shape = equation.invars[0].aval.shape
  out = equation.outvars[0].aval.shape
  return 2 * math.prod(out) * math.prod(left_shape[i] for i in contract)


def _convolution(equation) -> int:
  kernel = equation.invars[1].aval.shape
  outputs = kernel[equation.params['dimension_numbers'].rhs_spec[0]]
  return (
    2 * math.prod(equation.outvars[0].aval.shape) * math.prod(kernel) // outputs
  )


def _attention(equation) -> int:
  """Both products of queries [B, T, N, D] with keys and values [B, S, N, D].

  Kernels of TPUs have heads before positions, and say so by their names.
  """
  query, key = (v.aval.shape for v in equation.invars[:2])
  name = str(equation.params.get('name', ''))
  return 4 * math.prod(query) * key[2 if name.endswith(HEADS_FIRST) else 1]


# The end of the names of Pallas kernels on arrays [B, N, T, D].
HEADS_FIRST = '_heads_first'


def _inner(params: dict[str, Any]):
  """Jaxprs among an equation's parameters (calls, loops, custom rules)."""
  for key, value in params.items():
    if key in ('bwd', 'fwd_jaxpr_thunk', 'branches'):
      continue
    jaxpr = getattr(value, 'jaxpr', value)
    if hasattr(jaxpr, 'eqns'):
      yield jaxpr
