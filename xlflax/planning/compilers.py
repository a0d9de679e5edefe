"""The compilers of devices that are not there.

XLA compiles for GPUs and TPUs without a device where the package with their
compiler is installed: `jax[cuda12]` (the extra `plan-gpu`) and `libtpu` (the
extra `plan-tpu`). The CPU stays JAX's default device.
"""

import contextlib
import dataclasses
import importlib.metadata
import math
import os
import re
import time
from typing import Any

import jax

from xlflax.models import compile_targets
from xlflax.planning import gpu_targets, scratch_folder, tpu_dumps
from xlflax.training.devices import machine_topology
from xlflax.utils import accelerator_packages, errors

EXTRAS = {'gpu': 'plan-gpu', 'tpu': 'plan-tpu'}


@dataclasses.dataclass(frozen=True)
class Memory:
  """Bytes of a device that a compiled step takes, as its compiler says.

  Attributes:
    arguments: state and batches.
    outputs: new state and metrics, without what reuses the arguments.
    temporary: everything in between.
    peak: the most at one time.
  """

  arguments: int
  outputs: int
  temporary: int
  peak: int


@dataclasses.dataclass(frozen=True)
class Compiled:
  """A step as the target's compiler made it.

  Attributes:
    text: the optimised, scheduled HLO.
    memory: of one device.
    jaxpr: the traced step.
    seconds: of compiling.
    program: the executable, where it was asked for.
    costs: of `cost_analysis`.
  """

  text: str
  memory: Memory
  jaxpr: Any
  seconds: float
  program: Any
  costs: dict[str, float]


def why_unavailable(machine: machine_topology.Machine) -> str:
  """Returns why the machine's compiler cannot be used; '' if it can."""
  if machine.accelerator is None:
    return 'nothing is known of a CPU'
  if not _package(machine):
    package = accelerator_packages.PACKAGES[machine.platform][0]
    return f'{package} is not installed (extra {EXTRAS[machine.platform]})'
  if machine.platform == 'gpu':
    name, chip = machine.accelerator.name, machine.accelerator.chip
    return '' if chip else f"XLA's facts of {name} are not in the table"
  try:
    topology_name(machine)
  except errors.ConfigError as error:
    return str(error)
  return ''


def compiler_version(machine: machine_topology.Machine) -> str:
  """Returns the compiler's package with its version: 'libtpu 0.0.42.1'."""
  name = _package(machine).replace('_', '-')
  return f'{name} {importlib.metadata.version(name)}'


def _package(machine: machine_topology.Machine) -> str:
  names = accelerator_packages.installed_packages(machine.platform)
  return next((name for name in names if 'rocm' not in name), '')


def target_of(machine: machine_topology.Machine) -> compile_targets.Target:
  """Returns what code that is traced for the machine asks about."""
  accelerator = machine.accelerator
  return compile_targets.Target(
    machine.platform, accelerator.capability if accelerator else None
  )


def topology_devices(machine: machine_topology.Machine) -> tuple[Any, ...]:
  """Returns the machine's devices, which can be compiled for but not used."""
  os.environ.setdefault('TPU_SKIP_MDS_QUERY', '1')
  os.environ.setdefault('ALLOW_MULTIPLE_LIBTPU_LOAD', '1')
  jax.config.update('jax_platforms', 'cpu')
  jax.devices()  # finds the plugins; the CPU stays the default
  from jax.experimental import topologies

  if machine.platform == 'tpu':
    _hide_flags_of_others()
    topology = topologies.get_topology_desc(
      platform='tpu', **topology_name(machine)
    )
  else:
    assert machine.accelerator is not None
    topology = topologies.get_topology_desc(
      machine.accelerator.name,
      'cuda',
      target_config=gpu_targets.gpu_target_config(machine.accelerator),
      topology=f'1x{machine.nodes}x{machine.per_node}',
    )
  return tuple(topology.devices)


def _hide_flags_of_others() -> None:
  """Takes flags of CPUs and GPUs out of XLA_FLAGS, for which libtpu exits.

  It reads them when it first compiles; the CPU's compiler has read them.
  """
  flags = os.environ.get('XLA_FLAGS', '').split()
  other_prefixes = ('--xla_cpu_', '--xla_gpu_', '--xla_force_host_')
  os.environ['XLA_FLAGS'] = ' '.join(
    flag for flag in flags if not flag.startswith(other_prefixes)
  )


def topology_name(machine: machine_topology.Machine) -> dict[str, Any]:
  """Returns the arguments that name a slice of TPUs: 'v6e:2x4'.

  Raises:
    ConfigError: no slice has this number of chips.
  """
  assert machine.accelerator is not None
  name, dimensions = (
    machine.accelerator.topology, machine.accelerator.dimensions
  )  # fmt: skip
  count, remainder = divmod(machine.per_node, machine.accelerator.halves)
  if remainder or count & (count - 1):
    raise errors.ConfigError(
      'No slice of TPUs has this number of chips',
      got=machine.per_node / machine.accelerator.halves,
      expected='a power of two',
      where='--target_topology',
    )
  sizes = [1] * dimensions
  for _ in range(int(math.log2(count))):
    sizes[sizes.index(min(sizes))] *= 2
  sizes.sort(reverse=dimensions == 3)
  more: dict[str, Any] = {}
  host = (2, 2, 1) if dimensions == 3 else (2, 4, 1) if count > 4 else (2, 2, 1)
  bounds = [min(a, b) for a, b in zip((*sizes, 1)[:3], host, strict=True)]
  if math.prod(bounds) != math.prod(host):
    more['chips_per_host_bounds'] = tuple(bounds)
  if machine.nodes > 1:
    more['num_slices'] = machine.nodes
  return {'topology_name': f'{name}:{"x".join(map(str, sizes))}', **more}


def compile_step(
  machine: machine_topology.Machine,
  jitted: Any,
  *arguments: Any,
  executable: bool = False,
  **options: Any,
) -> Compiled:
  """Compiles a jitted step for abstract arguments on `topology_devices(machine)`.

  Args:
    machine: whose compiler it is.
    jitted: the step, to be traced under `compile_targets.compiling_for`.
    *arguments: ShapeDtypeStructs with shardings over the devices.
    executable: whether `Compiled.program` is wanted, for devices that are
      there; for TPUs it takes several times as long (`planning.tpu_dumps`).
    **options: more of XLA's.

  Raises:
    TrainingError: the compiler refuses the program, or does not show it.
  """
  traced = jitted.trace(*arguments)
  options = (
    compile_targets.compiler_options() | options
  )  # instead of the step's own
  start = time.perf_counter()
  lowered = traced.lower()
  if machine.platform == 'tpu':
    text, memory, program = _for_tpus(machine, lowered, executable, options)
  else:
    program = _compiled(machine, lowered, options)
    text, memory = program.as_text(), _memory(program.memory_analysis())
  seconds = time.perf_counter() - start
  costs = cost_analysis(program) if program is not None else {}
  return Compiled(text, memory, traced.jaxpr.jaxpr, seconds, program, costs)


def cost_analysis(program: Any) -> dict[str, float]:
  """Returns the FLOPs and bytes of an executable as XLA counts them.

  XLA counts the body of a loop once, and Pallas and cuDNN kernels not at all.
  The result is empty if the compiler reports nothing.
  """
  try:
    costs = program.cost_analysis() or {}  # None for absent GPUs.
  except (jax.errors.JaxRuntimeError, NotImplementedError):
    return {}
  names = {'flops': 'flops', 'bytes': 'bytes accessed'}
  return {key: costs[name] for key, name in names.items() if name in costs}


def _for_tpus(machine, lowered, executable: bool, options):
  """Returns text, memory and the executable, or None."""
  with scratch_folder.scratch_folder() as folder:
    program = None
    if executable:  # its as_text() ends the process
      options = options | tpu_dumps.dump_to(folder)
      program = _compiled(machine, lowered, options)
    else:
      with _refusals(machine):
        tpu_dumps.compile_program(lowered, options, folder)
    memory = Memory(**tpu_dumps.read_memory(folder))
    return tpu_dumps.read_program(folder), memory, program


def _compiled(machine, lowered, options):
  with _refusals(machine):
    return lowered.compile(compiler_options=options)


@contextlib.contextmanager
def _refusals(machine):
  try:
    yield
  except jax.errors.JaxRuntimeError as error:
    raise _refused(machine, error) from error


def _refused(
  machine: machine_topology.Machine, error: Exception
) -> errors.TrainingError:
  """Says what the compiler said, without the Python stack in it."""
  said = re.split(r'\n|: __in__|\[tf-allocator', str(error))[0]
  return errors.TrainingError(
    f"XLA's compiler for {machine} refuses the step",
    got=said[:600],
    where='the plan',
    fix='change the shape that it names (a multiple of 64 rows), or plan by '
    '--cost_model=estimate',
  )


def _memory(stats: Any) -> Memory:
  """Reads what the compiler says; some know no peak of all arrays."""
  outputs = stats.output_size_in_bytes - stats.alias_size_in_bytes
  parts = stats.argument_size_in_bytes + outputs + stats.temp_size_in_bytes
  peak = getattr(stats, 'peak_memory_in_bytes', 0)
  return Memory(
    arguments=stats.argument_size_in_bytes,
    outputs=outputs,
    temporary=stats.temp_size_in_bytes,
    peak=peak if peak > stats.argument_size_in_bytes else parts,
  )


@contextlib.contextmanager
def trace_for_machine(
  machine: machine_topology.Machine, *, by: str | None = None
):
  """Traces for the machine; forgets afterwards what was traced.

  Args:
    machine: the devices.
    by: platform of the compiler that stands in for theirs; None: it is theirs.
  """
  jax.clear_caches()
  with compile_targets.compiling_for(target_of(machine), by=by):
    yield
  jax.clear_caches()
