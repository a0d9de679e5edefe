"""Device topologies, which specify the devices' type, number and nodes."""

import collections
import contextlib
import contextvars
import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from xlflax.training.devices import accelerators
from xlflax.training.distributed import cluster_detection
from xlflax.utils import errors, name_suggestions, validation

FORM = 'PLATFORM:KIND:COUNT, for example gpu:H200:512, tpu:v5p:256 or cpu:8'


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceTopology:
  """The devices for which a run is planned.

  Attributes:
    platform: Type of the devices, 'gpu', 'tpu' or 'cpu'.
    accelerator: Specification of a device. None for a CPU, whose specification
      is unknown.
    count: Total number of devices.
    per_node: Number of devices that share the fast links of a node (or TPU
      slice).
  """

  OPENED_BY: ClassVar[str] = (
    'xlflax.training.devices.machine_topology.parse_topology({})'
  )

  platform: str
  accelerator: accelerators.Accelerator | None
  count: validation.PositiveInt
  per_node: validation.PositiveInt

  @property
  def nodes(self) -> int:
    """Number of nodes in the topology."""
    return self.count // self.per_node

  def __str__(self) -> str:
    name = self.accelerator.name if self.accelerator else 'CPU'
    nodes = f' in {self.nodes} nodes' if self.nodes > 1 else ''
    return f'{self.count} x {name}{nodes}'


_topology: contextvars.ContextVar[DeviceTopology | None] = (
  contextvars.ContextVar('topology', default=None)
)


@contextlib.contextmanager
def planning_for(topology: DeviceTopology | None) -> Iterator[None]:
  """Context in which meshes are created for a target machine.

  The devices of this process stand in for the devices of the machine.

  Args:
    topology: Topology of the target machine. If None, the devices of this
      process are the target.
  """
  token = _topology.set(topology)
  try:
    yield
  finally:
    _topology.reset(token)


def current_topology() -> DeviceTopology | None:
  """Returns the topology that `planning_for` sets, or None."""
  return _topology.get()


def parse_topology(text: str) -> DeviceTopology:
  """Parses the value of `--target_topology`.

  Args:
    text: Platform, accelerator and number of devices, for example
      'gpu:H200:512', 'tpu:v5p:256' or 'cpu:8'. For TPUs, the number counts
      chips, or half chips for v7. 'gpu:A100-40GB:64/4' has nodes of four
      devices. Upper and lower case are equivalent.

  Raises:
    ConfigError: If the text is not a valid topology, or if the number of
      devices is not a multiple of the number of devices per node.
  """
  match = re.fullmatch(
    r'(?:(cpu)|(gpu|tpu):([\w.-]+)):(\w+)(?:/(\w+))?', text.strip(), re.I
  )
  if not match:
    raise errors.ConfigError(
      f'The flag --target_topology must have the format {FORM}', got=text
    )
  cpu, platform, kind, count, node = match.groups()
  num_devices = _parse_count(count, text)
  accelerator = None if cpu else _find_accelerator(platform.lower(), kind)
  default_per_node = accelerator.per_node if accelerator else num_devices
  per_node = (
    _parse_count(node, text) if node else min(num_devices, default_per_node)
  )
  if num_devices % per_node:
    raise errors.ConfigError(
      'The number of devices in --target_topology must be a multiple of '
      f'{per_node}, the number of devices per node, but it is {num_devices}',
      fix='Change the number of devices, or append the number of devices per '
      f'node, as in {text.split("/")[0]}/4.',
    )
  return DeviceTopology(
    platform=(cpu or platform).lower(),
    accelerator=accelerator,
    count=num_devices,
    per_node=per_node,
  )


def _parse_count(text: str, topology: str) -> int:
  """Parses a positive number in a topology."""
  if not text.isdigit() or int(text) < 1:
    raise errors.ConfigError(
      f'The numbers of devices in --target_topology={topology} must be '
      'positive integers',
      got=text,
    )
  return int(text)


def _find_accelerator(platform: str, name: str) -> accelerators.Accelerator:
  """Returns the accelerator with a name.

  Raises:
    ConfigError: If no accelerator has this name.
  """
  accelerator = accelerators.find_accelerator(platform, name)
  if accelerator:
    return accelerator
  candidates = [a for a in accelerators.TABLE if a.platform == platform]
  raise errors.ConfigError(
    'The flag --target_topology specifies an unsupported type of '
    f'{platform.upper()}',
    got=name,
    expected=name_suggestions.format_choices(a.name for a in candidates),
    fix='Pass the most similar type, or add the type to '
    'xlflax/training/devices/accelerators.py.',
  )


def node_size(
  devices: Sequence[Any], environment: Mapping[str, str] | None = None
) -> int:
  """Returns the number of devices that share the fast links of a node.

  The result is the same in all processes. If devices report their slice
  (multi-slice TPUs, NVLink domains), it is the size of a slice. Otherwise it is
  the number of all TPUs, or the number of devices of a process times the number
  of processes per node that Slurm or Open MPI report. If nodes differ, it is 1.

  Args:
    devices: All devices of the job.
    environment: Environment variables. If None, the process's own variables are
      used.

  Returns:
    A divisor of the number of devices.
  """
  slices = collections.Counter(getattr(d, 'slice_index', None) for d in devices)
  if None in slices or len(slices) == 1:
    if devices[0].platform == 'tpu':
      return len(devices)
    slices = collections.Counter(d.process_index for d in devices)
    num_processes = _processes_per_node(
      os.environ if environment is None else environment
    )
  else:
    num_processes = 1
  sizes = set(slices.values())
  if len(sizes) != 1 or len(slices) % num_processes:
    return len(devices) if len(slices) == 1 else 1
  return sizes.pop() * num_processes


def _processes_per_node(environment: Mapping[str, str]) -> int:
  """Returns the processes per node, or 1 if the number is unknown or varies."""
  slurm_counts = set(cluster_detection.tasks_per_node(environment))
  if len(slurm_counts) == 1:
    return slurm_counts.pop()
  mpi_count = environment.get('OMPI_COMM_WORLD_LOCAL_SIZE', '')
  return int(mpi_count) if mpi_count.isdigit() and not slurm_counts else 1
