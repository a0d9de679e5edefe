"""FLOPs of the Pallas kernels in a traced step, by their results' types."""

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

# Products of all queries with all keys in the kernels of
# `models.fused_attention`, whose loops have bounds that only a run knows.
_ATTENTION_MATMULS = {
  'attention_forward': 2,
  'attention_query_gradient': 3,
  'attention_memory_gradient': 4,
  'attention_gradients': 5,
  'attention_bias_gradient': 2,
}


def iterate_pallas_calls(jaxpr: Any) -> Iterator[Any]:
  """Yields the calls of Pallas kernels in a jaxpr."""
  for equation in flops.iterate_equations(jaxpr):
    if equation.primitive.name == 'pallas_call':
      yield equation


def result_types(equation: Any) -> Any:
  """Returns the types of a kernel's results, as the compiled program's."""
  return tuple(
    (_HLO_TYPES.get(v.aval.dtype.name, v.aval.dtype.name), tuple(v.aval.shape))
    for v in equation.outvars
  )


def extract_calls(
  equations: Sequence[Any],
) -> tuple[Callable[..., Any], list[Any]]:
  """Returns a function of only these calls, and its arguments' shapes."""
  inputs = dict.fromkeys(
    v for e in equations for v in e.invars if not hasattr(v, 'val')
  )
  made = [v for e in equations for v in e.outvars if str(v) != '_']
  about = api_util.debug_info('kernels', len, (), {})
  about = about._replace(arg_names=None, result_paths=None)
  jaxpr = core.Jaxpr((), list(inputs), made, equations, debug_info=about)
  shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in inputs]
  return core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, ())), shapes


def count_flops(jaxpr: Any) -> kernels.ByResults:
  """Returns result types -> FLOPs of each kernel that a jaxpr calls.

  The compiled program shows of a kernel only what goes in and comes out, so
  kernels with results of the same types count as the largest of them.
  """
  found: dict[Any, float] = {}
  for equation in iterate_pallas_calls(jaxpr):
    types = result_types(equation)
    found[types] = max(found.get(types, 0.0), count_kernel_flops(equation))
  return found


def count_kernel_flops(equation: Any) -> float:
  """FLOPs of a kernel; attention's whole, though windows may spare a part."""
  name = str(equation.params.get('name')).removesuffix(flops.HEADS_FIRST)
  products = _ATTENTION_MATMULS.get(name)
  if products is None:
    return flops.count_kernel(equation)
  return flops.count_equation(equation) * products / 2
