"""Estimates the cycles of Pallas kernels from their machine code.

The kernels are not run. For TPUs, the module `bundles` counts the cycles. For GPUs, XLA writes a
kernel's PTX, and `ptxas` and `nvdisasm` from pip packages translate it to
instructions. A warp scheduler issues one instruction per cycle, and a warp's
instruction occupies its pipe for as long as the pipe's lanes need. If all
schedulers always have warps to run, a kernel takes either the time of its
busiest pipe or the time to issue its instructions, whichever is longer.
"""

import collections
import importlib.util
import math
import pathlib
import re
import shutil
import subprocess
from typing import Any

import jax

from benchmarks.compiled import bundles
from benchmarks.compiled.programs import kernels, pallas
from xlflax.models import compile_targets
from xlflax.planning import compilers, scratch_folder
from xlflax.training.devices import flops, machine_topology

_INTEGER_INSTRUCTIONS = frozenset(
  (
    'LOP3',
    'SHF',
    'IADD3',
    'ISETP',
    'SEL',
    'FMNMX',
    'FMNMX3',
    'PLOP3',
    'VIADD',
    'IADD',
    'FSETP',
    'FSEL',
    'PRMT',
    'LEA',
    'VIMNMX',
    'I2FP',
    'F2FP',
    'MOV',
    'IABS',
    'BMSK',
    'SGXT',
    'R2P',
    'P2R',
  )
)
_FLOAT_INSTRUCTIONS = frozenset(
  ('FFMA', 'FMUL', 'FADD', 'FFMA2', 'FMUL2', 'FADD2', 'HFMA2', 'HADD2', 'HMUL2')
)
_SCHEDULERS = 4  # Warp schedulers per multiprocessor.
_WARP_SIZE = 32  # Threads per warp.
_INTEGER_LANES, _FUNCTION_LANES = 16, 4  # Lanes per scheduler.
_MIN_LOOP_INSTRUCTIONS = 16  # Shorter loops wait for a condition.
_LABEL = re.compile(r'^(\.L_x_\d+):')
_CODE = re.compile(r'\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\S+\s+)?([A-Z]\w*)(.*?);')
_ENTRY = re.compile(r'\.entry (\w+)\(.*?\.reqntid (\d+)', re.S)
# Start of the warning about a bound that is too low.
UNCOUNTED = 'Pallas kernels are counted by FLOPs and bytes, not by instructions'


def find_tool(name: str) -> str | None:
  """Returns the path of an NVIDIA program, or None if it is not installed.

  NVIDIA's pip packages are searched before PATH.
  """
  spec = importlib.util.find_spec('nvidia')
  folders = spec.submodule_search_locations or () if spec else ()
  paths = (
    path
    for folder in folders
    for path in pathlib.Path(folder).glob(f'*/bin/{name}')
  )
  return str(next(paths, None) or shutil.which(name) or '') or None


def count_kernel_cycles(
  machine: machine_topology.DeviceTopology, jaxpr: Any
) -> kernels.ByResults:
  """Counts the cycles of each Pallas kernel in a step.

  The count assumes that all multiprocessors of a GPU, or all cores of a TPU,
  are busy.

  Args:
    machine: Topology of GPUs or TPUs for which the compiler is installed.
    jaxpr: Jaxpr of the training step.

  Returns:
    Map from a kernel's result types to its cycles. It is empty if the step has
    no Pallas kernels or a tool is missing.
  """
  if machine.platform == 'tpu':
    return bundles.count_kernel_cycles(machine, jaxpr)
  calls = {
    pallas.result_types(equation): equation
    for equation in pallas.iterate_pallas_calls(jaxpr)
  }
  if not calls or not (machine.accelerator and machine.accelerator.chip):
    return {}
  if not (find_tool('ptxas') and find_tool('nvdisasm')):
    return {}
  chip = machine.accelerator.chip
  cycles = {}
  for types, equation in calls.items():
    text, warps = _compile_kernel(machine, equation)
    grid = math.prod(equation.params['grid_mapping'].grid)
    warps_per_scheduler = grid * warps / _SCHEDULERS / chip.cores
    counts = count_pipes(text, estimate_loop_turns(equation))
    cycles[types] = warps_per_scheduler * compute_cycles(counts, chip.lanes)
  return cycles


def describe_uncounted_kernels(
  jaxpr: Any, cycles: kernels.ByResults
) -> tuple[str, ...]:
  """Returns a warning if instructions of Pallas kernels could not be counted.

  Args:
    jaxpr: Jaxpr of the training step.
    cycles: Result of `count_kernel_cycles`.
  """
  if cycles or not any(True for _ in pallas.iterate_pallas_calls(jaxpr)):
    return ()
  missing_tools = [
    name for name in ('ptxas', 'nvdisasm') if not find_tool(name)
  ]
  reason = (
    f'{" and ".join(missing_tools)} not found (pip install nvidia-cuda-nvdisasm)'
    if missing_tools
    else 'the compiler writes none of them'
  )
  return (f'{UNCOUNTED}: {reason}. The time bound is too low.',)


def estimate_loop_turns(equation: Any) -> float:
  """Estimates a kernel's number of loop iterations from its matmul FLOPs.

  If the loop's bounds are known only at run time, the FLOPs of full attention
  are used. For a kernel without matmuls, the bounds must be constants.
  """
  flops_per_turn = _count_matmuls_once(equation.params['jaxpr'])
  if not flops_per_turn:
    return max(
      (
        float(inner.params['length'])
        for inner in flops.iterate_equations(equation.params['jaxpr'])
        if inner.primitive.name == 'scan'
      ),
      default=1.0,
    )
  grid = math.prod(equation.params['grid_mapping'].grid)
  return max(1.0, pallas.count_kernel_flops(equation) / (flops_per_turn * grid))


def _count_matmuls_once(jaxpr: Any) -> float:
  """Counts matmul FLOPs, assuming one iteration of each loop and one branch."""
  total = 0.0
  for equation in jaxpr.eqns:
    if equation.primitive.name == 'dot_general':
      total += flops.count_equation(equation)
    bodies = [
      getattr(value, 'jaxpr', value) for value in equation.params.values()
    ]
    total += sum(
      _count_matmuls_once(body) for body in bodies if hasattr(body, 'eqns')
    )
    branches = equation.params.get('branches', ())
    total += max(
      (_count_matmuls_once(branch.jaxpr) for branch in branches), default=0.0
    )
  return total


def count_pipes(text: str, turns: float) -> dict[str, float]:
  """Counts a warp's instructions by the GPU pipe (unit) that executes them.

  Args:
    text: Output of nvdisasm for one kernel. If the kernel contains several
      loops, they are assumed to be alternatives, of which only the shortest is
      counted. For example, attention selects a loop based on the segments of a
      sequence.
    turns: Number of iterations of the kernel's loop.
  """
  names: list[str] = []
  label_indices: dict[str, int] = {}
  backward_jumps: list[range] = []
  for line in text.splitlines():
    if label_match := _LABEL.match(line):
      label_indices[label_match.group(1)] = len(names)
    elif instruction := _CODE.match(line):
      target = re.search(r'\.L_x_\d+', instruction.group(2))
      if (
        instruction.group(1) == 'BRA'
        and target
        and target.group() in label_indices
      ):
        backward_jumps.append(
          range(label_indices[target.group()], len(names) + 1)
        )
      names.append(instruction.group(1))
  # The code after the end consists of waits that jump to their own start.
  end = max((i for i, name in enumerate(names) if name == 'EXIT'), default=0)
  loops = [
    loop
    for loop in backward_jumps
    if len(loop) >= _MIN_LOOP_INSTRUCTIONS and loop[-1] < end
  ]
  executed_loop = min(_outermost(loops), key=len, default=range(0))
  counts: dict[str, float] = collections.defaultdict(float)
  for i, name in enumerate(names):
    if i in executed_loop:
      counts[_classify_instruction(name)] += turns
    elif not any(i in loop for loop in loops):
      counts[_classify_instruction(name)] += 1
  return dict(counts)


def _outermost(loops: list[range]) -> list[range]:
  """Returns the loops that are not contained in another loop."""
  return [
    loop
    for loop in loops
    if not any(
      loop != other and loop[0] in other and loop[-1] in other
      for other in loops
    )
  ]


def _classify_instruction(name: str) -> str:
  """Returns the GPU pipe (unit) that executes an instruction."""
  if name in ('IMAD', 'IMUL'):
    return 'multiply'
  if name in _FLOAT_INSTRUCTIONS:
    return 'float'
  if name == 'MUFU':
    return 'functions'
  return 'integer' if name in _INTEGER_INSTRUCTIONS else 'others'


def compute_cycles(counts: dict[str, float], lanes: int) -> float:
  """Returns the minimum number of scheduler cycles that one warp requires.

  Args:
    counts: Map from GPU pipe (execution unit) to its number of instructions, as
      returned by `count_pipes`.
    lanes: Number of float32 lanes per multiprocessor.
  """
  pipe_counts = collections.Counter(counts)
  return max(
    sum(counts.values()),
    pipe_counts['integer'] * _WARP_SIZE / _INTEGER_LANES,
    pipe_counts['multiply'] * _WARP_SIZE / _INTEGER_LANES
    + pipe_counts['float'] * _WARP_SIZE * _SCHEDULERS / lanes,
    pipe_counts['functions'] * _WARP_SIZE / _FUNCTION_LANES,
  )


def _compile_kernel(
  machine: machine_topology.DeviceTopology, equation: Any
) -> tuple[str, int]:
  """Returns a kernel's machine code and its warps per program."""
  run, shapes = pallas.extract_calls([equation])
  sharding = jax.sharding.SingleDeviceSharding(
    compilers.topology_devices(machine)[0]
  )
  shapes = [
    jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)
    for shape in shapes
  ]
  with scratch_folder.scratch_folder() as folder:
    with compile_targets.compiling_for(compilers.target_of(machine)):
      jax.jit(run).lower(*shapes).compile(
        compiler_options={'xla_dump_to': str(folder)}
      )
    name = str(equation.params['name'])
    for path in folder.glob('*.ptx'):
      entry = _ENTRY.search(path.read_text(encoding='utf-8'))
      if entry and entry.group(1).startswith(name):
        return _disassemble(path), int(entry.group(2)) // _WARP_SIZE
  return '', 0


def _disassemble(ptx: pathlib.Path) -> str:
  """Returns the machine code for a PTX file as text."""
  target = re.search(r'\.target (\w+)', ptx.read_text(encoding='utf-8'))
  assert target
  cubin = ptx.with_suffix('.cubin')
  commands = (
    ('ptxas', f'-arch={target.group(1)}', str(ptx), '-o', str(cubin)),
    ('nvdisasm', '-c', str(cubin)),
  )
  output_text = ''
  for name, *arguments in commands:
    process = subprocess.run(
      [str(find_tool(name)), *arguments],
      capture_output=True,
      text=True,
      check=False,
    )
    output_text = process.stdout
  return output_text
