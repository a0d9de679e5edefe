"""Model FLOPs: the operations that a loss requires, counted from its jaxpr.

A multiply-add of a matrix product in the forward pass counts as 2 FLOPs. The
backward pass costs twice the forward pass. Recomputation (remat) is not
counted, so that the model FLOPs utilization (MFU) is comparable between
settings.
"""

import math
from collections.abc import Iterator
from typing import Any

import jax


def count_training_step(loss_fn, *args) -> int:
  """Counts the FLOPs in a forward and a backward pass of `loss_fn(*args)`.

  Args:
    loss_fn: Function that computes the loss from `args`.
    *args: Arrays or ShapeDtypeStructs.
  """
  return 3 * count_forward(loss_fn, *args)


def count_forward(fn, *args) -> int:
  """Counts the FLOPs that matmuls and convolutions take in one call of `fn`."""
  return _count_jaxpr(jax.make_jaxpr(fn)(*args).jaxpr)


def iterate_equations(jaxpr) -> Iterator[Any]:
  """Yields the equations in a jaxpr and in all jaxprs that it calls."""
  for equation in jaxpr.eqns:
    yield equation
    branches = equation.params.get('branches', ())
    inner_jaxprs = [
      *_inner_jaxprs(equation.params),
      *(branch.jaxpr for branch in branches),
    ]
    for jaxpr in inner_jaxprs:
      yield from iterate_equations(jaxpr)


def _count_jaxpr(jaxpr) -> int:
  return sum(count_equation(equation) for equation in jaxpr.eqns)


def count_equation(equation) -> int:
  """Counts the FLOPs of the matmuls in one equation of a jaxpr."""
  name = equation.primitive.name
  if name == 'dot_general':
    return _count_dot(equation)
  if name == 'conv_general_dilated':
    return _count_convolution(equation)
  if name.startswith('dot_product_attention_fwd'):  # Primitive of cuDNN.
    return _count_attention(equation)
  if name == 'pallas_call':
    if str(equation.params.get('name')) in KERNELS_WITHOUT_MATMULS:
      return 0
    return _count_attention(equation)  # Kernel in models/attention/fused.
  inner_flops = sum(
    _count_jaxpr(jaxpr) for jaxpr in _inner_jaxprs(equation.params)
  )
  if name == 'scan':
    return inner_flops * equation.params['length']
  # Inner shapes are those of one device. The equation may have no outputs.
  if name == 'shard_map' and equation.outvars:
    total_size = math.prod(equation.outvars[0].aval.shape)
    shard_size = math.prod(equation.params['jaxpr'].outvars[0].aval.shape)
    return inner_flops * total_size // shard_size
  if name == 'cond':
    return max(
      (_count_jaxpr(branch.jaxpr) for branch in equation.params['branches']),
      default=0,
    )
  return inner_flops


def count_kernel(equation) -> int:
  """Counts the FLOPs in a Pallas kernel: its body's FLOPs times its grid size.

  The body of a loop with unknown bounds is counted once.
  """
  inner_flops = sum(
    _count_jaxpr(jaxpr) for jaxpr in _inner_jaxprs(equation.params)
  )
  return inner_flops * math.prod(equation.params['grid_mapping'].grid)


def _count_dot(equation) -> int:
  (contract, _), _ = equation.params['dimension_numbers']
  left_shape = equation.invars[0].aval.shape
  out = equation.outvars[0].aval.shape
  return 2 * math.prod(out) * math.prod(left_shape[i] for i in contract)


def _count_convolution(equation) -> int:
  kernel_shape = equation.invars[1].aval.shape
  output_shape = equation.outvars[0].aval.shape
  num_channels = kernel_shape[equation.params['dimension_numbers'].rhs_spec[0]]
  return 2 * math.prod(output_shape) * math.prod(kernel_shape) // num_channels


def _count_attention(equation) -> int:
  """Counts the FLOPs of both matrix products of attention.

  Queries have the shape [B, T, N, D], keys and values [B, S, N, D]. In kernels
  for TPUs, heads precede positions, which the name of the kernel indicates.
  """
  query_shape, key_shape = (
    variable.aval.shape for variable in equation.invars[:2]
  )
  name = str(equation.params.get('name', ''))
  length_axis = 2 if name.endswith(HEADS_FIRST) else 1
  return 4 * math.prod(query_shape) * key_shape[length_axis]


# Names of Pallas kernels that compute no matmuls.
KERNELS_WITHOUT_MATMULS = ('layer_norm_gradient',)
# Suffix of the names of Pallas kernels on arrays of shape [B, N, T, D].
HEADS_FIRST = '_heads_first'


def _inner_jaxprs(params: dict[str, Any]):
  """Yields the jaxprs in an equation's parameters, such as loop bodies."""
  for key, value in params.items():
    if key in ('bwd', 'fwd_jaxpr_thunk', 'branches'):
      continue
    jaxpr = getattr(value, 'jaxpr', value)
    if hasattr(jaxpr, 'eqns'):
      yield jaxpr
