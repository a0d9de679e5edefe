"""Dropout as compiled by XLA:GPU."""

import importlib.util

import jax
import jax.numpy as jnp
import pytest

from benchmarks.compiled.programs import hlo
from xlflax.models import dropout
from xlflax.planning import compilers
from xlflax.training.devices import machine_topology


@pytest.mark.slow
@pytest.mark.skipif(
  importlib.util.find_spec('jax_cuda12_plugin') is None,
  reason='needs jax[cuda12]',
)
def test_dropout_does_not_share_zeros_with_gather_gradients():
  """The gradient of a gather is a sum into zeros."""
  machine = machine_topology.parse_topology('gpu:H200:1')
  (device,) = compilers.topology_devices(machine)
  device_sharding = jax.sharding.SingleDeviceSharding(device)

  def shaped(shape, dtype):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=device_sharding)

  def loss(states, weights, rows):
    for i, matrix in enumerate(weights):
      dropped = dropout.apply_dropout(
        jax.random.key(i), states @ matrix, rate=0.1
      )
      states = states + dropped
    chosen = jnp.take_along_axis(states, rows[:, :, None], axis=1)
    return jnp.square(chosen.astype(jnp.float32)).sum()

  with compilers.trace_for_machine(machine):
    compiled_step = compilers.compile_step(
      machine,
      jax.jit(jax.grad(loss, argnums=(0, 1))),
      shaped((8, 128, 256), jnp.bfloat16),
      [shaped((256, 256), jnp.bfloat16)] * 3,
      shaped((8, 16), jnp.int32),
    )
  module = hlo.parse_module(compiled_step.text)
  uses = module.entry.users
  for kernel in module.entry.instructions.values():
    if kernel.opcode != 'fusion':
      continue
    (fused,) = module.called(kernel, 'calls')
    is_tuple = fused.root.opcode == 'tuple'
    roots = fused.root.operands if is_tuple else [fused.root.name]
    for i, root in enumerate(roots):
      if fused.instructions[root].opcode == 'broadcast':
        users = [u for u in uses[kernel.name] if not is_tuple or u.index == i]
        readers = uses[users[0].name] if is_tuple else users
        assert len(readers) == 1, [reader.name for reader in readers]
