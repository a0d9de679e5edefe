"""Memory of the gradients of the output layer as compiled by XLA for GPUs."""

import importlib.util

import jax
import jax.numpy as jnp
import pytest

from benchmarks.compiled.programs import hlo
from xlflax.objectives.cross_entropy import compact_cross_entropy
from xlflax.planning import compilers
from xlflax.training.devices import machine_topology

ROWS, WORDS, WIDTH = 4928, 250002, 768


@pytest.mark.slow
@pytest.mark.skipif(
  importlib.util.find_spec('jax_cuda12_plugin') is None,
  reason='needs jax[cuda12]',
)
@pytest.mark.parametrize('devices', ['gpu:H200:1', 'gpu:B200:1'])
def test_float32_logits_are_not_stored(devices):
  machine = machine_topology.parse_topology(devices)
  (device,) = compilers.topology_devices(machine)
  single_device = jax.sharding.SingleDeviceSharding(device)

  def shaped(shape, dtype):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=single_device)

  def loss(hidden, table, bias, labels):
    result = compact_cross_entropy.cross_entropy(hidden, table, bias, labels)
    return result.loss.mean()

  with compilers.trace_for_machine(machine):
    compiled = compilers.compile_step(
      machine,
      jax.jit(jax.grad(loss, argnums=(0, 1, 2))),
      shaped((ROWS, WIDTH), jnp.bfloat16),
      shaped((WORDS, WIDTH), jnp.float32),
      shaped((WORDS,), jnp.float32),
      shaped((ROWS,), jnp.int32),
    )
  made_of = hlo.parse_module(compiled.text).entry.instructions.values()
  widest = max(
    array.bytes for instruction in made_of for array in instruction.arrays
  )
  assert widest <= 2 * ROWS * WORDS  # The logits are bfloat16.
