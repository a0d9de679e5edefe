"""A described machine: which devices, how many, in nodes of how many."""

import collections
import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from xlflax.training.devices import accelerators
from xlflax.training.distributed import cluster_detection
from xlflax.utils import errors, validation

FORM = 'PLATFORM:KIND:COUNT, such as gpu:H200:512, tpu:v5p:256 or cpu:8'


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
  """Devices that a run is planned for.

  Attributes:
    platform: 'gpu', 'tpu' or 'cpu'.
    accelerator: one of them; None for a CPU, of which nothing is known.
    count: how many there are in all.
    per_node: how many share the fast links of a node (of a TPU slice).
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
    return self.count // self.per_node

  def __str__(self) -> str:
    name = self.accelerator.name if self.accelerator else 'CPU'
    nodes = f' in {self.nodes} nodes' if self.nodes > 1 else ''
    return f'{self.count} x {name}{nodes}'


def parse_topology(text: str) -> Machine:
  """The machine of `--target_topology`.

  Args:
    text: 'gpu:H200:512', 'tpu:v5p:256' (chips, of v7 their halves), 'cpu:8';
      'gpu:A100-40GB:64/4' has nodes of four. Letters' case does not matter.

  Raises:
    ConfigError: it says something else, or nodes are not full.
  """
  match = re.fullmatch(
    r'(?:(cpu)|(gpu|tpu):([\w.-]+)):(\w+)(?:/(\w+))?', text.strip(), re.I
  )
  if not match:
    raise errors.ConfigError(
      'The devices are not described as they can be',
      got=text,
      expected=FORM,
      where='--target_topology',
    )
  cpu, platform, kind, count, node = match.groups()
  number = _positive(count, text)
  accelerator = None if cpu else _named(platform.lower(), kind)
  usual = accelerator.per_node if accelerator else number
  per_node = _positive(node, text) if node else min(number, usual)
  if number % per_node:
    raise errors.ConfigError(
      'The devices do not fill their nodes',
      got=f'{number} devices in nodes of {per_node}',
      expected=f'a multiple of {per_node}',
      where='--target_topology',
      fix='change the number, or say how many a node '
      f'has, as in {text.split("/")[0]}/4',
    )
  return Machine(
    platform=(cpu or platform).lower(),
    accelerator=accelerator,
    count=number,
    per_node=per_node,
  )


def _positive(text: str, whole: str) -> int:
  if not text.isdigit() or int(text) < 1:
    raise errors.ConfigError(
      'The number of devices is not usable',
      got=f'{text} in {whole}',
      expected='a whole number from 1',
      where='--target_topology',
    )
  return int(text)


def _named(platform: str, name: str) -> accelerators.Accelerator:
  accelerator = accelerators.find_accelerator(platform, name)
  if accelerator:
    return accelerator
  candidates = [a for a in accelerators.TABLE if a.platform == platform]
  raise errors.ConfigError(
    f'The {platform.upper()} is not in the table of known devices',
    got=name,
    expected='one of ' + ', '.join(a.name for a in candidates),
    where='--target_topology',
    fix='take the most similar one, or add it to '
    'xlflax/training/devices/accelerators.py',
  )


def node_size(
  devices: Sequence[Any], environment: Mapping[str, str] | None = None
) -> int:
  """How many of a job's devices share fast links, the same on all processes.

  A slice where devices say theirs (multi-slice TPUs, NVLink domains);
  else all TPUs; else the devices of a process, times the processes of a node
  that Slurm or Open MPI tell of. Nodes that differ count as no nodes.

  Args:
    devices: all of the job's.
    environment: the process's variables; None takes its own.

  Returns:
    A divisor of the number of devices.
  """
  slices = collections.Counter(getattr(d, 'slice_index', None) for d in devices)
  if None in slices or len(slices) == 1:
    if devices[0].platform == 'tpu':
      return len(devices)
    slices = collections.Counter(d.process_index for d in devices)
    repeats = _processes_of_a_node(
      os.environ if environment is None else environment
    )
  else:
    repeats = 1
  sizes = set(slices.values())
  if len(sizes) != 1 or len(slices) % repeats:
    return len(devices) if len(slices) == 1 else 1
  return sizes.pop() * repeats


def _processes_of_a_node(environment: Mapping[str, str]) -> int:
  """Processes on each node; 1 where nodes differ or nobody says."""
  slurm = set(cluster_detection.tasks_per_node(environment))
  if len(slurm) == 1:
    return slurm.pop()
  local = environment.get('OMPI_COMM_WORLD_LOCAL_SIZE', '')
  return int(local) if local.isdigit() and not slurm else 1
