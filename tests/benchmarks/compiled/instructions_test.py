"""Tests of GPU kernel cycle counts from the output of nvdisasm."""

import importlib.util

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from benchmarks.compiled import instructions
from benchmarks.compiled.programs import kernels, pallas
from xlflax.training.devices import accelerators, machine_topology

_H200 = machine_topology.parse_topology('gpu:H200:1')
_TYPES = (('f32', (64, 32)),)


def _line(number, code):
  return f'        /*{number:04x}*/                   {code} ;'


# Three instructions, a loop of twenty instructions, the exit, and a branch after
# the exit that jumps back to the start.
_LOOP = ['IMAD R1, R2, R3, RZ', '@P0 FSEL R1, R1, RZ, P1', 'MUFU.EX2 R4, R1']
_LOOP += ['FFMA R5, R4, R4, R5', 'HGMMA.64x64x16.F32.BF16 R8, gdesc[UR4], R8']
_TEXT = '\n'.join(
  [
    '.L_x_0:',
    *(_line(i, 'MOV R1, c[0x0][0x28]') for i in range(3)),
    '.L_x_1:',
    *(_line(3 + i, code) for i, code in enumerate(_LOOP * 4)),
    _line(23, '@!P2 BRA `(.L_x_1)'),
    _line(24, 'EXIT'),
    _line(25, 'BRA `(.L_x_0)'),
  ]
)


def test_count_pipes_multiplies_loop_instructions():
  assert instructions.count_pipes(_TEXT, 8) == {
    'integer': 3 + 8 * 4,
    'multiply': 8 * 4,
    'functions': 8 * 4,
    'float': 8 * 4,
    'others': 8 * 4 + 8 + 2,
  }


def test_shortest_of_several_loops_is_multiplied():
  """Uses loops of 21 and 17 instructions, separated by one instruction."""
  lines = ['.L_x_1:', *(_line(i, 'FFMA R1, R2, R3, R1') for i in range(20))]
  lines += [_line(20, '@P0 BRA `(.L_x_1)'), _line(21, 'MOV R1, R2')]
  lines += ['.L_x_2:', *(_line(22 + i, 'MUFU.EX2 R4, R1') for i in range(16))]
  lines += [_line(38, '@P0 BRA `(.L_x_2)'), _line(39, 'EXIT')]
  assert instructions.count_pipes('\n'.join(lines), 8) == {
    'integer': 1,
    'functions': 8 * 16,
    'others': 8 + 1,
  }


@pytest.mark.parametrize(
  'counts, lanes, expected',
  [
    ({'others': 90, 'integer': 10}, 128, 100),  # limited by the issue rate
    ({'others': 20, 'integer': 80}, 128, 160),
    ({'multiply': 60, 'float': 30}, 128, 150),
    ({'multiply': 60, 'float': 30}, 64, 180),
    ({'functions': 32, 'others': 8}, 128, 256),
  ],
)
def test_cycles_are_those_of_the_busiest_pipe(counts, lanes, expected):
  assert instructions.compute_cycles(counts, lanes) == expected


def _squares(ref, out):
  def body(_, total):
    return total + jnp.dot(ref[...], ref[...].T)[:, :32]

  out[...] = jax.lax.fori_loop(0, 8, body, jnp.zeros((32, 32)))


def _jaxpr(kernel=_squares):
  spec = pl.BlockSpec((32, 32), lambda i: (i, 0))
  call = pl.pallas_call(
    kernel,
    grid=(2,),
    in_specs=[spec],
    out_specs=spec,
    out_shape=jax.ShapeDtypeStruct((64, 32), jnp.float32),
    name='squares',
    compiler_params=plgpu.CompilerParams(num_warps=4),
  )
  return jax.make_jaxpr(call)(jnp.ones((64, 32))).jaxpr


def test_loop_iterations_follow_from_the_matmuls():
  (equation,) = pallas.iterate_pallas_calls(_jaxpr())
  assert instructions.estimate_loop_turns(equation) == 8


def test_loop_iterations_of_a_kernel_with_two_alternative_loops():
  def squares(ref, out):
    jax.lax.cond(
      ref[0, 0] > 0, lambda: _squares(ref, out), lambda: _squares(ref, out)
    )

  (equation,) = pallas.iterate_pallas_calls(_jaxpr(squares))
  assert instructions.estimate_loop_turns(equation) == 8


def test_loop_iterations_of_a_kernel_without_matmuls():
  def sums(ref, out):
    out[...] = jax.lax.fori_loop(0, 5, lambda _, x: x + ref[...], ref[...])

  (equation,) = pallas.iterate_pallas_calls(_jaxpr(sums))
  assert instructions.estimate_loop_turns(equation) == 5


def test_extract_calls_preserves_shapes():
  run, shapes = pallas.extract_calls(
    list(pallas.iterate_pallas_calls(_jaxpr()))
  )
  assert [s.shape for s in shapes] == [(64, 32)]
  assert [v.shape for v in jax.eval_shape(run, *shapes)] == [(64, 32)]


def test_missing_tools_are_described(monkeypatch):
  """Kernels are then counted by their matmuls and bytes."""
  monkeypatch.setattr(
    instructions, 'find_tool', lambda name: name if name == 'ptxas' else None
  )
  plain = jax.make_jaxpr(jnp.sin)(1.0).jaxpr
  for jaxpr in (plain, _jaxpr()):
    assert instructions.count_kernel_cycles(_H200, jaxpr) == {}
  assert not instructions.describe_uncounted_kernels(plain, {})
  assert not instructions.describe_uncounted_kernels(_jaxpr(), {_TYPES: 1.0})
  (description,) = instructions.describe_uncounted_kernels(_jaxpr(), {})
  assert description.startswith(instructions.UNCOUNTED)
  assert 'nvdisasm not found (pip install nvidia-cuda-nvdisasm)' in description
  monkeypatch.setattr(instructions, 'find_tool', str)
  assert (
    'writes none' in instructions.describe_uncounted_kernels(_jaxpr(), {})[0]
  )


def test_kernel_cycles_are_divided_over_multiprocessors(monkeypatch):
  """Two programs of four warps occupy two of 132 multiprocessors."""
  monkeypatch.setattr(instructions, 'find_tool', str)
  monkeypatch.setattr(
    instructions, '_compile_kernel', lambda machine, equation: (_TEXT, 4)
  )
  cycles = instructions.count_kernel_cycles(_H200, _jaxpr())
  cycles_per_warp = instructions.compute_cycles(
    instructions.count_pipes(_TEXT, 8), 128
  )
  assert cycles == {_TYPES: pytest.approx(2 * cycles_per_warp / 132)}


def test_kernel_time_of_cycles_uses_the_gpu_clock():
  h200 = accelerators.find_accelerator('gpu', 'H200')
  slow = kernels.Kernel(
    'k', kernels.KernelKind.PALLAS, '', 0, 0, 1.0, cycles=1.98e6
  )
  assert slow.seconds(h200) == pytest.approx(1e-3)


@pytest.mark.slow
@pytest.mark.skipif(
  importlib.util.find_spec('jax_cuda12_plugin') is None
  or not instructions.find_tool('nvdisasm'),
  reason='needs jax[cuda12] and nvdisasm',
)
def test_cycles_of_a_compiled_kernel_are_positive():
  (cycles,) = instructions.count_kernel_cycles(_H200, _jaxpr()).values()
  assert cycles > 0
