"""Compilation for accelerators that are not connected to this machine.

XLA compiles for GPUs and TPUs without a device if the package of their compiler
is installed: `jax[cuda12]` (the extra `plan-gpu`) or `libtpu` (the extra
`plan-tpu`). The CPU remains the default device of JAX.
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
from xlflax.utils import accelerator_packages, environment_variables, errors

EXTRAS = {'gpu': 'plan-gpu', 'tpu': 'plan-tpu'}


@dataclasses.dataclass(frozen=True)
class Memory:
  """Memory that a compiled step uses on one device, according to the compiler.

  Attributes:
    arguments: Size in bytes of the step's arguments: the state and the batches.
    outputs: Size in bytes of the step's outputs (the new state and the metrics)
      that do not reuse the arguments' memory.
    temporary: Size in bytes of the intermediate arrays.
    peak: Maximum memory in use at any time, in bytes.
  """

  arguments: int
  outputs: int
  temporary: int
  peak: int


@dataclasses.dataclass(frozen=True)
class Compiled:
  """A training step, compiled for a target machine.

  Attributes:
    text: HLO text of the step after optimization and scheduling.
    memory: Memory in bytes that the step uses on one device.
    jaxpr: Jaxpr of the traced step.
    seconds: Compile time in seconds.
    program: Executable program, or None if it was not requested.
    costs: Mapping with the 'flops' and 'bytes' of the step as counted by XLA,
      or an empty mapping (see `cost_analysis`).
  """

  text: str
  memory: Memory
  jaxpr: Any
  seconds: float
  program: Any
  costs: dict[str, float]


def unavailable_reason(machine: machine_topology.DeviceTopology) -> str:
  """Returns the reason why programs cannot be compiled for a machine.

  The reason is '' if the machine's compiler can be used.

  Args:
    machine: Target machine, whose devices need not be attached to this host.
  """
  if machine.accelerator is None:
    return 'the properties of CPUs are not in the table'
  if not _package(machine):
    package = accelerator_packages.PACKAGES[machine.platform][0]
    return f'{package} is not installed (extra {EXTRAS[machine.platform]})'
  if machine.platform == 'gpu':
    name, chip = machine.accelerator.name, machine.accelerator.chip
    return '' if chip else f'the properties of {name} are not in the table'
  try:
    topology_name(machine)
  except errors.ConfigError as error:
    return str(error)
  return ''


def compiler_version(machine: machine_topology.DeviceTopology) -> str:
  """Returns the name and version of the compiler, such as 'libtpu 0.0.42.1'."""
  name = _package(machine).replace('_', '-')
  return f'{name} {importlib.metadata.version(name)}'


def _package(machine: machine_topology.DeviceTopology) -> str:
  """Returns the installed package of the compiler, or ''."""
  names = accelerator_packages.installed_packages(machine.platform)
  return next((name for name in names if 'rocm' not in name), '')


def target_of(
  machine: machine_topology.DeviceTopology,
) -> compile_targets.Target:
  """Returns a machine's compilation target: its platform and GPU capability."""
  accelerator = machine.accelerator
  return compile_targets.Target(
    machine.platform, accelerator.capability if accelerator else None
  )


def topology_devices(
  machine: machine_topology.DeviceTopology,
) -> tuple[Any, ...]:
  """Returns abstract devices of a machine, for which programs are compiled."""
  os.environ.setdefault('TPU_SKIP_MDS_QUERY', '1')
  os.environ.setdefault('ALLOW_MULTIPLE_LIBTPU_LOAD', '1')
  jax.config.update('jax_platforms', 'cpu')
  jax.devices()  # Loads the plugins. The CPU remains the default device.
  from jax.experimental import topologies

  if machine.platform == 'tpu':
    _remove_non_tpu_flags()
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


def _remove_non_tpu_flags() -> None:
  """Removes CPU and GPU flags, which libtpu rejects, from XLA_FLAGS.

  libtpu reads XLA_FLAGS at its first compilation. The CPU compiler has already
  read them at that time.
  """
  flags = environment_variables.read_xla_flags(os.environ)
  other_prefixes = ('--xla_cpu_', '--xla_gpu_', '--xla_force_host_')
  os.environ['XLA_FLAGS'] = ' '.join(
    flag for flag in flags if not flag.startswith(other_prefixes)
  )


def topology_name(machine: machine_topology.DeviceTopology) -> dict[str, Any]:
  """Returns the `get_topology_desc` arguments for a machine's TPU slice.

  Args:
    machine: Target machine, whose devices need not be attached to this host.

  Raises:
    ConfigError: If no TPU slice of the requested type has the requested number
      of chips.
  """
  assert machine.accelerator is not None
  name, dimensions = (
    machine.accelerator.topology, machine.accelerator.dimensions
  )  # fmt: skip
  count, remainder = divmod(machine.per_node, machine.accelerator.halves)
  if remainder or count & (count - 1):
    raise errors.ConfigError(
      'The number of TPU chips per slice in --target_topology must be a power '
      'of two',
      got=machine.per_node / machine.accelerator.halves,
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
  machine: machine_topology.DeviceTopology,
  jitted: Any,
  *arguments: Any,
  executable: bool = False,
  **options: Any,
) -> Compiled:
  """Compiles a jitted step for the abstract devices of a target machine.

  Args:
    machine: Target machine, whose devices need not be attached to this host.
    jitted: Jitted step function. It is traced under
      `compile_targets.compiling_for`.
    *arguments: ShapeDtypeStructs with shardings over the devices.
    executable: Whether to return the executable in `Compiled.program`, for
      connected devices. For TPUs, this takes several times as long
      (`planning.tpu_dumps`).
    **options: Additional options of XLA.

  Raises:
    TrainingError: If the compiler rejects the program or does not write its
      output.
  """
  traced = jitted.trace(*arguments)
  # These options replace those of the jitted step.
  options = compile_targets.compiler_options() | options
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
  """Returns an executable's FLOPs and bytes, as counted by XLA.

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
  """Returns a step's HLO text, memory use and executable for TPUs."""
  with scratch_folder.scratch_folder() as folder:
    program = None
    if executable:  # Calling as_text() on the executable ends the process.
      options = options | tpu_dumps.dump_to(folder)
      program = _compiled(machine, lowered, options)
    else:
      with _converting_compiler_errors(machine):
        tpu_dumps.compile_program(lowered, options, folder)
    memory = Memory(**tpu_dumps.read_memory(folder))
    return tpu_dumps.read_program(folder), memory, program


def _compiled(machine, lowered, options):
  """Compiles a lowered step."""
  with _converting_compiler_errors(machine):
    return lowered.compile(compiler_options=options)


@contextlib.contextmanager
def _converting_compiler_errors(machine):
  """Context in which errors of the compiler become TrainingErrors."""
  try:
    yield
  except jax.errors.JaxRuntimeError as error:
    raise _compiler_error(machine, error) from error


def _compiler_error(
  machine: machine_topology.DeviceTopology, error: Exception
) -> errors.TrainingError:
  """Converts a compiler's message, without the stack trace, to an error."""
  message = re.split(r'\n|: __in__|\[tf-allocator', str(error))[0]
  return errors.TrainingError(
    f'The compiler for {machine} cannot compile the training step in the dry '
    'run',
    got=message[:600],
    fix='Change the settings so that the array in the message of the compiler '
    'has a number of rows that is a multiple of 64, or pass '
    '--cost_model=estimate.',
  )


def _memory(stats: Any) -> Memory:
  """Converts a compiler's memory statistics, and estimates a missing peak."""
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
  machine: machine_topology.DeviceTopology,
  *,
  by: str | None = None,
  has_kernels: bool = True,
):
  """Context in which steps are traced for a target machine.

  The caches of JAX are cleared before and after.

  Args:
    machine: Target machine, whose devices need not be attached to this host.
    by: Platform whose compiler is used, 'cpu', 'gpu' or 'tpu'. If None, the
      compiler of the machine is used.
    has_kernels: Whether to use Pallas kernels for operations that can also be
      computed without kernels.
  """
  jax.clear_caches()
  target = target_of(machine)._replace(has_kernels=has_kernels)
  with compile_targets.compiling_for(target, by=by):
    yield
  jax.clear_caches()
