"""Cycles of Pallas kernels, counted in their machine code.

`bundles` has those of TPUs. Of a GPU's kernels XLA writes the PTX; `ptxas` and
`nvdisasm`, of pip packages, say what instructions it becomes. A warp scheduler
issues one a cycle, and each pipe takes a warp's instruction for as long as its
lanes need: a kernel takes what its busiest pipe does, or its issues, if all
schedulers have warps all the time.
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
  'LOP3 SHF IADD3 ISETP SEL FMNMX FMNMX3 PLOP3 VIADD IADD FSETP FSEL PRMT LEA '
  'VIMNMX I2FP F2FP MOV IABS BMSK SGXT R2P P2R'.split()
)
_FLOAT_INSTRUCTIONS = frozenset(
  'FFMA FMUL FADD FFMA2 FMUL2 FADD2 HFMA2 HADD2 HMUL2'.split()
)
_SCHEDULERS, _WARP_SIZE = 4, 32  # of a multiprocessor; threads
_INTEGER_LANES, _FUNCTION_LANES = 16, 4  # of a scheduler
_MIN_LOOP_INSTRUCTIONS = 16  # instructions; shorter ones wait
_LABEL = re.compile(r'^(\.L_x_\d+):')
_CODE = re.compile(r'\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\S+\s+)?([A-Z]\w*)(.*?);')
_ENTRY = re.compile(r'\.entry (\w+)\(.*?\.reqntid (\d+)', re.S)
# How the warning of a plan begins whose bound is too good.
UNCOUNTED = 'Pallas kernels count by products and bytes, not by instructions'


def find_tool(name: str) -> str | None:
  """Returns the path of a program of NVIDIA's packages; None without it."""
  spec = importlib.util.find_spec('nvidia')
  folders = spec.submodule_search_locations or () if spec else ()
  found = (p for f in folders for p in pathlib.Path(f).glob(f'*/bin/{name}'))
  return str(next(found, None) or shutil.which(name) or '') or None


def count_kernel_cycles(
  machine: machine_topology.DeviceTopology, jaxpr: Any
) -> kernels.ByResults:
  """Returns result types -> cycles of each kernel that a step calls.

  Cycles are those of all multiprocessors, or of a TPU's cores, at work. Empty
  where the step has no Pallas kernels, or a tool is missing.

  Args:
    machine: GPUs or TPUs whose compiler is here.
    jaxpr: the traced step.
  """
  if machine.platform == 'tpu':
    return bundles.count_kernel_cycles(machine, jaxpr)
  calls = {
    pallas.result_types(e): e for e in pallas.iterate_pallas_calls(jaxpr)
  }
  if not calls or not (machine.accelerator and machine.accelerator.chip):
    return {}
  if not (find_tool('ptxas') and find_tool('nvdisasm')):
    return {}
  chip = machine.accelerator.chip
  found = {}
  for types, equation in calls.items():
    text, warps = _compile_kernel(machine, equation)
    grid = math.prod(equation.params['grid_mapping'].grid)
    rounds = grid * warps / _SCHEDULERS / chip.cores
    counts = count_pipes(text, estimate_loop_turns(equation))
    found[types] = rounds * compute_cycles(counts, chip.lanes)
  return found


def describe_uncounted_kernels(
  jaxpr: Any, counted: kernels.ByResults
) -> tuple[str, ...]:
  """Returns a warning if a step has Pallas kernels that were not counted.

  Args:
    jaxpr: the traced step.
    counted: of `cycles_of`.
  """
  if counted or not any(True for _ in pallas.iterate_pallas_calls(jaxpr)):
    return ()
  absent = [name for name in ('ptxas', 'nvdisasm') if not find_tool(name)]
  why = (
    f'{" and ".join(absent)} not found (pip install nvidia-cuda-nvdisasm)'
    if absent
    else 'the compiler shows none of them'
  )
  return (f'{UNCOUNTED}: {why}. The bound is too good.',)


def estimate_loop_turns(equation: Any) -> float:
  """Returns how often a kernel's loop turns, by the products in it.

  The loop's bounds may be known to a run only: then of the whole of attention.
  """
  once = sum(
    flops.count_equation(e)
    for e in flops.iterate_equations(equation.params['jaxpr'])
    if e.primitive.name == 'dot_general'
  )
  grid = math.prod(equation.params['grid_mapping'].grid)
  return (
    max(1.0, pallas.count_kernel_flops(equation) / (once * grid))
    if once
    else 1.0
  )


def count_pipes(text: str, turns: float) -> dict[str, float]:
  """Counts the instructions of a warp by the pipe that runs them.

  Args:
    text: what nvdisasm writes of one kernel.
    turns: of its loops.
  """
  names: list[str] = []
  labels: dict[str, int] = {}
  backward: list[range] = []
  for line in text.splitlines():
    if label := _LABEL.match(line):
      labels[label.group(1)] = len(names)
    elif code := _CODE.match(line):
      target = re.search(r'\.L_x_\d+', code.group(2))
      if code.group(1) == 'BRA' and target and target.group() in labels:
        backward.append(range(labels[target.group()], len(names) + 1))
      names.append(code.group(1))
  # After the end come waits that jump back to where they began.
  end = max((i for i, name in enumerate(names) if name == 'EXIT'), default=0)
  loops = [
    at for at in backward if len(at) >= _MIN_LOOP_INSTRUCTIONS and at[-1] < end
  ]
  counts: dict[str, float] = collections.defaultdict(float)
  for i, name in enumerate(names):
    counts[_classify_instruction(name)] += (
      turns if any(i in loop for loop in loops) else 1
    )
  return dict(counts)


def _classify_instruction(name: str) -> str:
  if name in ('IMAD', 'IMUL'):
    return 'multiply'
  if name in _FLOAT_INSTRUCTIONS:
    return 'float'
  if name == 'MUFU':
    return 'functions'
  return 'integer' if name in _INTEGER_INSTRUCTIONS else 'others'


def compute_cycles(counts: dict[str, float], lanes: int) -> float:
  """Returns the least cycles of a scheduler for one warp.

  Args:
    counts: of `pipes`.
    lanes: for float32 numbers, of a multiprocessor.
  """
  of = collections.Counter(counts)
  return max(
    sum(counts.values()),
    of['integer'] * _WARP_SIZE / _INTEGER_LANES,
    of['multiply'] * _WARP_SIZE / _INTEGER_LANES
    + of['float'] * _WARP_SIZE * _SCHEDULERS / lanes,
    of['functions'] * _WARP_SIZE / _FUNCTION_LANES,
  )


def _compile_kernel(
  machine: machine_topology.DeviceTopology, equation: Any
) -> tuple[str, int]:
  """Compiles a kernel alone; returns its machine code and a program's warps."""
  run, shapes = pallas.extract_calls([equation])
  sharding = jax.sharding.SingleDeviceSharding(
    compilers.topology_devices(machine)[0]
  )
  shapes = [
    jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding) for s in shapes
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
  target = re.search(r'\.target (\w+)', ptx.read_text(encoding='utf-8'))
  assert target
  cubin = ptx.with_suffix('.cubin')
  steps = (
    ('ptxas', f'-arch={target.group(1)}', str(ptx), '-o', str(cubin)),
    ('nvdisasm', '-c', str(cubin)),
  )
  said = ''
  for name, *arguments in steps:
    done = subprocess.run(
      [str(find_tool(name)), *arguments],
      capture_output=True,
      text=True,
      check=False,
    )
    said = done.stdout
  return said
