"""Cycles of TPU Pallas kernels, counted in their final VLIW schedules.

Bytes and matmul FLOPs do not measure a kernel's vector and integer work. libtpu
can write the instruction bundles of each kernel that it compiles (one per cycle
unless the kernel stalls) and the bounds of their loops. libtpu reads the
required flag when it is loaded. A step's kernels are therefore compiled again,
separately, in a subprocess:

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
# A pipelined loop over the grid fetches, computes and writes back blocks of
# three consecutive programs at a time, so it has two more turns than programs.
_PIPELINED, _PIPELINE_TURNS = 'iteration index, stage', 2


@dataclasses.dataclass
class _Loop:
  """A loop in a kernel.

  Attributes:
    bundles: Number of instruction bundles that one iteration executes,
      including the cycles of inner loops.
    turns: Number of iterations, or None if it is unknown.
    pipelined: Whether the loop iterates over the kernel's grid, with pipelined
      memory transfers.
  """

  bundles: float = 0
  turns: int | None = None
  pipelined: bool = False

  def cycles(self) -> float:
    """Returns the loop's number of cycles.

    If the number of iterations (`turns`) is None, one iteration is assumed.
    """
    turns = 1 if self.turns is None else self.turns
    return self.bundles * max(1, turns - _PIPELINE_TURNS * self.pipelined)


def count_cycles(text: str) -> float:
  """Returns the number of cycles that a kernel takes if it never stalls.

  Args:
    text: Final instruction bundles of the kernel, in the format that libtpu
      writes.
  """
  open_loops = [_Loop()]
  for line in text.splitlines():
    match = _BUNDLE.match(line)
    if not match:
      continue
    label, depth_marks, empty_bundle = match.groups()
    # Empty bundles have no mark of the loop that contains them.
    depth = len(open_loops) - 1 if empty_bundle else len(depth_marks)
    is_loop_start = label in ('LH', 'LB') and open_loops[-1].turns is not None
    while len(open_loops) > depth + 1 or (
      is_loop_start and len(open_loops) == depth + 1 > 1
    ):
      inner_loop = open_loops.pop()
      open_loops[-1].bundles += inner_loop.cycles()
    while len(open_loops) < depth + 1:
      open_loops.append(_Loop())
    loop = open_loops[-1]
    loop.bundles += 1
    loop.pipelined |= _PIPELINED in line
    if exit_test := _EXIT_TEST.search(line):
      loop.turns = int(exit_test.group(1))
  while len(open_loops) > 1:
    inner_loop = open_loops.pop()
    open_loops[-1].bundles += inner_loop.cycles()
  return open_loops[0].bundles


def count_kernel_cycles(
  machine: machine_topology.DeviceTopology, jaxpr: Any
) -> kernels.ByResults:
  """Counts the cycles of each Pallas kernel in a step.

  Args:
    machine: Topology of the TPUs.
    jaxpr: Jaxpr of the training step.

  Returns:
    Map from a kernel's result types to its cycles. It is empty if the step has
    no Pallas kernels or libtpu does not write their bundles.
  """
  equations = {
    str(equation.params.get('name')): equation
    for equation in pallas.iterate_pallas_calls(jaxpr)
  }
  if not equations:
    return {}
  with scratch_folder.scratch_folder() as folder:
    _compile_kernels(machine, list(equations.values()), folder)
    cycles: dict[Any, float] = {}
    for path in folder.glob(f'*{_BUNDLES_SUFFIX}'):
      name = max(
        (name for name in equations if name in path.name), key=len, default=''
      )
      if name:
        types = pallas.result_types(equations[name])
        count = count_cycles(path.read_text(encoding='utf-8', errors='replace'))
        cycles[types] = max(cycles.get(types, 0.0), count)
  return cycles


def _compile_kernels(machine, equations, folder: pathlib.Path) -> None:
  """Compiles kernels in a subprocess in which libtpu writes to `folder`."""
  run, shapes = pallas.extract_calls(equations)
  with compile_targets.compiling_for(compilers.target_of(machine)):
    exported = jax.export.export(jax.jit(run), platforms=['tpu'])(*shapes)
  exported_file = folder / 'kernels.exported'
  exported_file.write_bytes(exported.serialize())
  flags = f'--xla_jf_dump_to={folder} --xla_jf_dump_llo_text=true'
  subprocess.run(
    [
      sys.executable,
      '-m',
      __name__,
      _smallest_machine(machine),
      str(exported_file),
    ],
    env=os.environ | {'LIBTPU_INIT_ARGS': flags, 'JAX_PLATFORMS': ''},
    capture_output=True,
    check=False,
  )


def _smallest_machine(machine: machine_topology.DeviceTopology) -> str:
  """Returns the smallest machine with a TPU type, for `--target_topology`."""
  assert machine.accelerator is not None
  return f'tpu:{machine.accelerator.name}:{machine.accelerator.halves}'


def main(devices: str, exported: str) -> None:
  """Compiles serialized `jax.export` kernels for the given device."""
  device = compilers.topology_devices(machine_topology.parse_topology(devices))[
    0
  ]
  run = jax.export.deserialize(bytearray(pathlib.Path(exported).read_bytes()))
  sharding = jax.sharding.SingleDeviceSharding(device)
  shapes = [
    jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding)
    for aval in run.in_avals
  ]
  jax.jit(run.call).lower(*shapes).compile()


if __name__ == '__main__':
  main(*sys.argv[1:])
