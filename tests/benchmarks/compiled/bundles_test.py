"""Tests of TPU kernel cycle counts from the bundles that libtpu writes."""

import importlib.util

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

from benchmarks.compiled import bundles
from benchmarks.compiled.programs import kernels
from xlflax.training.devices import accelerators, machine_topology

_END = '%p1 = scmp.ge.s32.totalorder %s1, {} /* loop exit test */'
# Two bundles, a pipelined loop of 10 + 2 iterations of three bundles (one of
# them empty) with an inner loop of 4 iterations of two bundles, and another
# loop of 5 iterations.
_TEXT = f"""LH: loop header
= control target key end
     0   :  {{ %s1 = smov.u32 0 }}
   0x1   :  {{ %s2 = smov.u32 0 }}
   0x2 LB: > {{ %s3 = sphi %s1 /* phi copy :: iteration index, stage = 0 */ }}
   0x3   :  {{}}
   0x4 LB: >> {{ %v1 = vadd.f32 %v0, %v0 }}
   0x5   : >> {{ {_END.format(4)} }}
   0x6   : > {{ {_END.format(12)} }}
   0x7 LB: > {{ {_END.format(5)} }}
"""


def test_count_cycles_multiplies_bundles_by_loop_iterations():
  assert bundles.count_cycles(_TEXT) == 2 + 10 * (3 + 4 * 2) + 5 * 1


def test_loop_of_unknown_length_counts_once():
  assert (
    bundles.count_cycles(_TEXT.replace(', 4 /*', ', %s9 /*')) == 2 + 10 * 5 + 5
  )


def test_kernel_time_is_at_least_its_cycles():
  v6e = accelerators.find_accelerator('tpu', 'v6e')
  kernel = kernels.Kernel(
    'k', kernels.KernelKind.PALLAS, '', 918e9, 1.638e9, 1.0
  )
  assert kernel.seconds(v6e) == pytest.approx(1e-3)
  slow = kernels.Kernel(
    'k', kernels.KernelKind.PALLAS, '', 0, 0, 1.0, cycles=3.5e6
  )
  assert slow.seconds(v6e) == pytest.approx(2e-3)
  assert slow.expected(v6e) > 2e-3


def test_step_without_kernels_has_no_cycles():
  jaxpr = jax.make_jaxpr(jnp.sin)(1.0).jaxpr
  assert (
    bundles.count_kernel_cycles(
      machine_topology.parse_topology('tpu:v6e:1'), jaxpr
    )
    == {}
  )


@pytest.mark.skipif(
  importlib.util.find_spec('libtpu') is None, reason='needs libtpu'
)
def test_cycles_of_a_compiled_kernel_scale_with_registers():
  """Bounds the cycles of sixteen programs with 64 registers each."""

  def kernel(x, y, out):
    out[...] = x[...] + y[...]

  def call(x, y):
    block = pl.BlockSpec((64, 1024), lambda i: (i, 0))
    return pl.pallas_call(
      kernel,
      grid=(16,),
      in_specs=[block, block],
      out_specs=block,
      out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
      name='added',
    )(x, y)

  shape = (1024, 1024)
  jaxpr = jax.make_jaxpr(call)(jnp.ones(shape), jnp.ones(shape)).jaxpr
  cycles = bundles.count_kernel_cycles(
    machine_topology.parse_topology('tpu:v6e:1'), jaxpr
  )
  assert 16 * 64 / 2 < cycles[('f32', shape),] < 16 * 64 * 4
