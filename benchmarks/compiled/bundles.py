"""Cycles of a TPU's Pallas kernels, counted in their final schedules.

Bytes and products tell nothing of a kernel's vector and integer work. libtpu
writes the bundles of each kernel that it compiles, one a cycle where nothing
stalls, and the bounds of the loops around them. It does so by a flag that is
read when it is loaded, so the kernels of a step are compiled once more, alone,
in a process of their own:

  python -m benchmarks.compiled.bundles DEVICES EXPORTED
"""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import jax

from benchmarks.compiled.programs import kernels, pallas
from xlflax.models import compile_targets
from xlflax.planning import compilers, scratch_folder
from xlflax.training.devices import machine_topology

_BUNDLES_SUFFIX = '-final_bundles.txt'
_BUNDLE = re.compile(r'\s*(?:0x[0-9a-f]+|0)\s+(\w\w)?\s*:\s*(>*)\s*({})?')
_EXIT_TEST = re.compile(
  r'scmp\.ge\.s32\.totalorder %\w+, (\d+) /\* loop exit test'
)
# A loop over the grid fetches, computes and writes back parts of three turns at
# a time, so it has two turns more than programs.
_PIPELINED, _PIPELINE_TURNS = 'iteration index, stage', 2


@dataclasses.dataclass
class _Loop:
  """Bundles of a loop's turn, without its inner loops, and its turns."""

  bundles: float = 0
  turns: int | None = None
  pipelined: bool = False

  def cycles(self) -> float:
    """Cycles of all turns; of one where the text does not tell how many."""
    turns = 1 if self.turns is None else self.turns
    return self.bundles * max(1, turns - _PIPELINE_TURNS * self.pipelined)


def count_cycles(text: str) -> float:
  """Returns the cycles of a kernel without stalls, by its final bundles."""
  open_loops = [_Loop()]
  for line in text.splitlines():
    found = _BUNDLE.match(line)
    if not found:
      continue
    label, marks, empty = found.groups()
    # Empty bundles have no mark of the loop that they are in.
    depth = len(open_loops) - 1 if empty else len(marks)
    begins = label in ('LH', 'LB') and open_loops[-1].turns is not None
    while len(open_loops) > depth + 1 or (
      begins and len(open_loops) == depth + 1 > 1
    ):
      inner = open_loops.pop()
      open_loops[-1].bundles += inner.cycles()
    while len(open_loops) < depth + 1:
      open_loops.append(_Loop())
    loop = open_loops[-1]
    loop.bundles += 1
    loop.pipelined |= _PIPELINED in line
    if end := _EXIT_TEST.search(line):
      loop.turns = int(end.group(1))
  while len(open_loops) > 1:
    inner = open_loops.pop()
    open_loops[-1].bundles += inner.cycles()
  return open_loops[0].bundles


def count_kernel_cycles(
  machine: machine_topology.DeviceTopology, jaxpr: Any
) -> kernels.ByResults:
  """Returns result types -> cycles of each kernel that a step calls.

  Empty where the step has no Pallas kernels or libtpu does not show them.

  Args:
    machine: TPUs.
    jaxpr: the traced step.
  """
  equations = {
    str(e.params.get('name')): e for e in pallas.iterate_pallas_calls(jaxpr)
  }
  if not equations:
    return {}
  with scratch_folder.scratch_folder() as folder:
    _compile_kernels(machine, list(equations.values()), folder)
    found: dict[Any, float] = {}
    for path in folder.glob(f'*{_BUNDLES_SUFFIX}'):
      name = max((n for n in equations if n in path.name), key=len, default='')
      if name:
        types = pallas.result_types(equations[name])
        count = count_cycles(path.read_text(encoding='utf-8', errors='replace'))
        found[types] = max(found.get(types, 0.0), count)
  return found


def _compile_kernels(machine, equations, folder: pathlib.Path) -> None:
  """Has another process compile the kernels, and libtpu write into `folder`."""
  run, shapes = pallas.extract_calls(equations)
  with compile_targets.compiling_for(compilers.target_of(machine)):
    exported = jax.export.export(jax.jit(run), platforms=['tpu'])(*shapes)
  file = folder / 'kernels.exported'
  file.write_bytes(exported.serialize())
  flags = f'--xla_jf_dump_to={folder} --xla_jf_dump_llo_text=true'
  subprocess.run(
    [sys.executable, '-m', __name__, _smallest_machine(machine), str(file)],
    env=os.environ | {'LIBTPU_INIT_ARGS': flags, 'JAX_PLATFORMS': ''},
    capture_output=True,
    check=False,
  )


def _smallest_machine(machine: machine_topology.DeviceTopology) -> str:
  """The smallest machine of the kind, as `--target_topology` writes it."""
  assert machine.accelerator is not None
  return f'tpu:{machine.accelerator.name}:{machine.accelerator.halves}'


def main(devices: str, exported: str) -> None:
  """Compiles what `_compile_alone` exported."""
  device = compilers.topology_devices(machine_topology.parse_topology(devices))[
    0
  ]
  run = jax.export.deserialize(bytearray(pathlib.Path(exported).read_bytes()))
  sharding = jax.sharding.SingleDeviceSharding(device)
  shapes = [
    jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding)
    for a in run.in_avals
  ]
  jax.jit(run.call).lower(*shapes).compile()


if __name__ == '__main__':
  main(*sys.argv[1:])
