"""Regenerates the recorded programs with the compilers of their targets.

  python -m tests.benchmarks.compiled.recorded.record gpu:H200:2 tpu:v6e:2

Needs the extras `plan-gpu` and `plan-tpu`. Parts that no test reads are
removed, so that the files stay short.
"""

import pathlib
import re
import sys

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from xlflax.planning import compilers
from xlflax.training.devices import machine_topology, partitioning

LAYERS, WIDTH, ROWS = 3, 256, 512


def step(weights: jax.Array, x: jax.Array) -> jax.Array:
  """Runs one step of gradient descent on scanned layers tanh(x W)."""

  def loss(weights):
    def layer(x, w):
      return jnp.tanh(x @ w.astype(x.dtype)), None

    out, _ = jax.lax.scan(layer, x, weights)
    return jnp.sum(out.astype(jnp.float32))

  return weights - 0.1 * jax.grad(loss)(weights)


def compiled(devices: str) -> compilers.Compiled:
  """Compiles `step` with weights and rows sharded over all devices."""
  machine = machine_topology.parse_topology(devices)
  mesh = partitioning.Partitioner(
    fsdp=machine.count,
    topology=machine,
    devices=compilers.topology_devices(machine),
  ).mesh
  split = NamedSharding(mesh, PartitionSpec(None, 'fsdp'))
  rows = NamedSharding(mesh, PartitionSpec('fsdp'))
  with compilers.trace_for_machine(machine), jax.set_mesh(mesh):
    return compilers.compile_step(
      machine,
      jax.jit(step, out_shardings=split),
      jax.ShapeDtypeStruct((LAYERS, WIDTH, WIDTH), jnp.float32, sharding=split),
      jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.bfloat16, sharding=rows),
    )


_NAMES = re.compile(
  r'\b(?:stack_frame_id=\d+|(?:scheduling|deduplicated)_name="[^"]*") ?'
)
_LEFT_OUT = re.compile(
  r', (?:frontend_attributes=\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|'
  r'sharding=\{[^{}]*\}|control-predecessors=\{[^{}]*\})'
)


def shortened(text: str) -> str:
  """Removes the parts that no test reads; keeps trip counts."""
  lines = []
  for line in _NAMES.sub('', text).replace(', metadata={}', '').splitlines():
    if not line.startswith((' ', '%', 'ENTRY', '}')):
      continue
    count = re.search(r'"known_trip_count":\{"n":"\d+"\}', line)
    line = _LEFT_OUT.sub('', line.split(', backend_config=')[0])
    lines.append(line + (f', backend_config={{{count[0]}}}' if count else ''))
  return '\n'.join(lines) + '\n'


if __name__ == '__main__':
  for named in sys.argv[1:]:
    path = pathlib.Path(__file__).with_name(
      named.replace(':', '_').lower() + '.hlo'
    )
    path.write_text(shortened(compiled(named).text), encoding='utf-8')
