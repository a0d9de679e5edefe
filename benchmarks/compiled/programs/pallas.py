"""FLOPs of the Pallas kernels in a training step.

Kernels are identified by the types of their results.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax import api_util
from jax.extend import core

from benchmarks.compiled.programs import kernels
from xlflax.training.devices import flops

_HLO_TYPES = {
  'bfloat16': 'bf16',
  'float16': 'f16',
  'float32': 'f32',
  'int32': 's32',
  'uint32': 'u32',
  'int8': 's8',
  'uint8': 'u8',
  'bool': 'pred',
}

# Number of matmuls of all queries with all keys in the fused attention kernels,
# whose loops have bounds that are only known at run time.
_ATTENTION_MATMULS = {
  'attention_forward': 2,
  'attention_query_gradient': 3,
  'attention_memory_gradient': 4,
  'attention_gradients': 5,
  'attention_bias_gradient': 2,
}


def iterate_pallas_calls(jaxpr: Any) -> Iterator[Any]:
  """Yields the equations of a jaxpr that call Pallas kernels."""
  for equation in flops.iterate_equations(jaxpr):
    if equation.primitive.name == 'pallas_call':
      yield equation


def result_types(equation: Any) -> Any:
  """Returns the types of a Pallas kernel's results in HLO notation."""
  return tuple(
    (
      _HLO_TYPES.get(variable.aval.dtype.name, variable.aval.dtype.name),
      tuple(variable.aval.shape),
    )
    for variable in equation.outvars
  )


def extract_calls(
  equations: Sequence[Any],
) -> tuple[Callable[..., Any], list[Any]]:
  """Builds a function that runs only the given Pallas calls of a jaxpr.

  Args:
    equations: Equations of the jaxpr that call Pallas kernels.

  Returns:
    The function, and the shapes and data types of its arguments.
  """
  inputs = dict.fromkeys(
    variable
    for equation in equations
    for variable in equation.invars
    if not hasattr(variable, 'val')
  )
  outputs = [
    variable
    for equation in equations
    for variable in equation.outvars
    if str(variable) != '_'
  ]
  debug_info = api_util.debug_info('kernels', len, (), {})
  debug_info = debug_info._replace(arg_names=None, result_paths=None)
  jaxpr = core.Jaxpr(
    (), list(inputs), outputs, equations, debug_info=debug_info
  )
  shapes = [
    jax.ShapeDtypeStruct(variable.aval.shape, variable.aval.dtype)
    for variable in inputs
  ]
  return core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, ())), shapes


def count_flops(jaxpr: Any) -> kernels.ByResults:
  """Counts the FLOPs of each Pallas kernel in a jaxpr.

  The compiled program contains only a kernel's inputs and outputs. If several
  kernels have the same result types, each of them is therefore counted with the
  FLOPs of the largest one.

  Args:
    jaxpr: Jaxpr of the training step.

  Returns:
    Map from a kernel's result types to its FLOPs.
  """
  flops_by_types: dict[Any, float] = {}
  for equation in iterate_pallas_calls(jaxpr):
    types = result_types(equation)
    flops_by_types[types] = max(
      flops_by_types.get(types, 0.0), count_kernel_flops(equation)
    )
  return flops_by_types


def count_kernel_flops(equation: Any) -> float:
  """Returns the number of FLOPs in one call of a Pallas kernel.

  Full attention is counted, although windows may skip a part of it.
  """
  name = str(equation.params.get('name')).removesuffix(flops.HEADS_FIRST)
  num_matmuls = _ATTENTION_MATMULS.get(name)
  if num_matmuls is None:
    return flops.count_kernel(equation)
  return flops.count_equation(equation) * num_matmuls / 2
