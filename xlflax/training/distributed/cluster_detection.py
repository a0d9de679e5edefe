"""Detection of the job of this process from flags, environment or scheduler.

Flags come first, then the variables `XLFLAX_COORDINATOR`,
`XLFLAX_NUM_PROCESSES` and `XLFLAX_PROCESS_ID`, which Kubernetes manifests set
(with `XLFLAX_NUM_SLICES` the number counts within slice `XLFLAX_SLICE_ID`), and
then what `jax.distributed` detects: Slurm, Open MPI, TPU workers, and
Kubernetes if the package `kubernetes` is installed. This module decides whether
there is a job at all, which JAX does not: a step of Slurm with one task is a
single process.
"""

import dataclasses
import enum
import importlib.util
import re
from collections.abc import Mapping
from typing import Any

from xlflax.utils import errors, validation

_VARIABLES = {
  'coordinator_address': 'XLFLAX_COORDINATOR',
  'num_processes': 'XLFLAX_NUM_PROCESSES',
  'process_id': 'XLFLAX_PROCESS_ID',
}


class Cluster(enum.Enum):
  """Who started the processes."""

  AUTO = 'auto'
  NONE = 'none'  # a process by itself, whatever the environment says
  SLURM = 'slurm'
  OPEN_MPI = 'openmpi'
  KUBERNETES = 'kubernetes'
  TPU = 'tpu'


# As `jax.distributed` names them; it finds the kind of TPU host by itself.
_JAX_NAMES = {
  Cluster.SLURM: 'slurm',
  Cluster.OPEN_MPI: 'ompi',
  Cluster.KUBERNETES: 'k8s',
  Cluster.TPU: None,
}


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
  """The job of this process.

  Attributes:
    coordinator_address: 'host:port' of process 0.
    num_processes: how many processes the job has.
    process_id: this one's number, from 0.
    source: who said so, for messages.
    local_devices: which of the host's accelerators are this process's; None
      for all that it sees.
  """

  coordinator_address: str
  num_processes: validation.PositiveInt
  process_id: validation.NonNegativeInt
  source: str
  local_devices: tuple[validation.NonNegativeInt, ...] | None = None

  def __post_init__(self):
    host, _, port = self.coordinator_address.rpartition(':')
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
      raise errors.ConfigError(
        'The address of process 0 is not usable',
        got=self.coordinator_address,
        expected='HOST:PORT',
        where='--coordinator_address',
      )
    if self.process_id >= self.num_processes:
      raise errors.ConfigError(
        "A process's number does not fit the number of processes",
        got=f'process_id={self.process_id}, num_processes={self.num_processes}',
        expected='a number from 0 to num_processes - 1',
        where=self.source,
      )


def detect_job(
  environment: Mapping[str, str],
  *,
  coordinator_address: str | None = None,
  num_processes: int | None = None,
  process_id: int | None = None,
  cluster: Cluster = Cluster.AUTO,
  initialization_timeout: int = 300,
) -> Job | None:
  """The job that flags and environment describe; None for one process.

  Args:
    environment: the process's variables.
    coordinator_address: 'host:port' of process 0, if given by flag.
    num_processes: likewise.
    process_id: likewise.
    cluster: where to look for what is not given.
    initialization_timeout: how long to wait for the name of process 0's host.

  Raises:
    ConfigError: the job is described in part, or not as it can be.
  """
  flags = {
    'coordinator_address': coordinator_address,
    'num_processes': num_processes,
    'process_id': process_id,
  }
  job_values = _with_variables(flags, environment, cluster)
  missing = [name for name, value in job_values.items() if value is None]
  scheduler = _found_cluster(environment, cluster) if missing else None
  source = (
    'flags'
    if None not in flags.values()
    else scheduler.value
    if scheduler
    else 'environment'
  )
  local = None
  if scheduler:
    job_values = _ask_jax(job_values, scheduler, initialization_timeout)
    local = local_devices(environment, scheduler)
  elif missing:
    _check_alone(job_values, cluster)
    _check_srun(environment, cluster)
    return None
  return Job(
    coordinator_address=str(job_values['coordinator_address']),
    num_processes=int(job_values['num_processes']),
    process_id=int(job_values['process_id']),
    source=source,
    local_devices=local,
  )


def _with_variables(flags, environment, cluster):
  if cluster is Cluster.NONE:
    return dict(flags)
  job_values = {
    name: environment.get(_VARIABLES[name]) if value is None else value
    for name, value in flags.items()
  }
  for name in ('num_processes', 'process_id'):
    if job_values[name] is not None and not str(job_values[name]).isdigit():
      raise errors.ConfigError(
        'The description of the job has something else than a number',
        got=repr(job_values[name]),
        expected='a number from 0',
        where=f'--{name} or {_VARIABLES[name]}',
      )
  if None not in job_values.values() and flags['process_id'] is None:
    slices = _number(environment, 'XLFLAX_NUM_SLICES') or 1
    before = _number(environment, 'XLFLAX_SLICE_ID') * int(
      job_values['num_processes']
    )
    job_values['process_id'] = int(job_values['process_id']) + before // slices
  return job_values


def _check_alone(given, cluster) -> None:
  """Raises ConfigError where something speaks of other processes."""
  if cluster not in (Cluster.AUTO, Cluster.NONE):
    raise errors.ConfigError(
      'The processes were not started as --cluster says',
      got=f'--cluster={cluster.value}, and none of its variables',
      fix='start them through it (with Slurm by srun, with Open MPI by '
      'mpirun), or give --coordinator_address, --num_processes, --process_id',
    )
  if any(value is not None for value in given.values()):
    raise errors.ConfigError(
      'A job of several processes is described incompletely',
      got=', '.join(f'{name}={value}' for name, value in given.items()),
      expected='all three of --coordinator_address, --num_processes, --process_id',
    )


def _check_srun(environment: Mapping[str, str], cluster: Cluster) -> None:
  """Refuses to be one process where Slurm gave the job several tasks."""
  tasks = _number(environment, 'SLURM_NTASKS')
  if cluster is Cluster.AUTO and tasks > 1 and not _in_step(environment):
    raise errors.ConfigError(
      'Slurm gave this job several tasks, but srun did not start this process',
      got=f'SLURM_NTASKS={tasks}, and no SLURM_STEP_NODELIST',
      expected='one process for each task',
      fix='start it by `srun xlflax ...` (`xlflax launch slurm` does), or give '
      '--cluster=none for one process by itself',
    )


def _in_step(environment: Mapping[str, str]) -> bool:
  return 'SLURM_STEP_NODELIST' in environment


def _found_cluster(environment, cluster: Cluster) -> Cluster | None:
  """The scheduler whose variables are there, if it runs several processes."""
  signs = {
    Cluster.SLURM: _in_step(environment)
    and _number(environment, 'SLURM_STEP_NUM_TASKS') > 1,
    Cluster.OPEN_MPI: _number(environment, 'OMPI_COMM_WORLD_SIZE') > 1,
    Cluster.KUBERNETES: 'KUBERNETES_SERVICE_HOST' in environment
    and 'JOB_COMPLETION_INDEX' in environment
    and importlib.util.find_spec('kubernetes'),
    Cluster.TPU: _on_tpu(),
  }
  candidates = list(signs) if cluster is Cluster.AUTO else [cluster]
  return next((c for c in candidates if signs.get(c)), None)


def _on_tpu() -> bool:
  from jax._src import cloud_tpu_init

  return cloud_tpu_init.running_in_cloud_tpu_vm


def _number(environment, name: str) -> int:
  value = environment.get(name, '')
  return int(value) if value.isdigit() else 0


def _ask_jax(given, found: Cluster, initialization_timeout: int):
  """Fills in what is missing by JAX's own detection."""
  from jax._src import clusters

  job_values: dict[str, Any] = {
    name: value
    if value is None or name == 'coordinator_address'
    else int(value)
    for name, value in given.items()
  }
  # An empty list of devices keeps JAX from choosing them.
  values = clusters.ClusterEnv.auto_detect_unset_distributed_params(
    job_values['coordinator_address'],
    job_values['num_processes'],
    job_values['process_id'],
    [],
    _JAX_NAMES[found],
    initialization_timeout,
  )
  filled = dict(zip(job_values, values[:3], strict=True))
  if None in filled.values():
    raise errors.ConfigError(
      f'JAX did not detect the whole job under {found.value}',
      got=', '.join(f'{name}={value}' for name, value in filled.items()),
      fix='give what is missing by --coordinator_address (HOST:PORT of process 0), '
      '--num_processes and --process_id',
    )
  return filled


def local_devices(
  environment: Mapping[str, str], found: Cluster
) -> tuple[int, ...] | None:
  """The GPUs of this process among those that it sees; None for all.

  Processes of a host that all see all of its GPUs share them equally. One
  that sees fewer was given its own by the scheduler, and keeps them.

  Raises:
    ConfigError: the host's GPUs cannot be shared equally.
  """
  if found is Cluster.SLURM:
    index = _number(environment, 'SLURM_LOCALID')
    count = tasks_on_node(environment)
    on_node = _number(environment, 'SLURM_GPUS_ON_NODE')
  elif found is Cluster.OPEN_MPI:
    index = _number(environment, 'OMPI_COMM_WORLD_LOCAL_RANK')
    count = _number(environment, 'OMPI_COMM_WORLD_LOCAL_SIZE')
    on_node = 0
  else:
    return None
  listed = environment.get('CUDA_VISIBLE_DEVICES')
  visible = len(listed.split(',')) if listed else on_node
  if count <= 1 or not visible or visible < on_node:
    return None
  if visible % count:
    raise errors.ConfigError(
      'The processes of a host cannot share its GPUs equally',
      got=f'{count} processes, {visible} GPUs',
      where=found.value,
      fix='start one process per GPU, or one per host',
    )
  share = visible // count
  return tuple(range(index * share, (index + 1) * share))


def tasks_on_node(environment: Mapping[str, str]) -> int:
  """Slurm's tasks on this node."""
  counts = tasks_per_node(environment) or [1]
  node = _number(environment, 'SLURM_NODEID')
  return counts[node] if node < len(counts) else counts[-1]


def tasks_per_node(environment: Mapping[str, str]) -> list[int]:
  """Those of each node, from a list such as '2(x3),1'; [] without Slurm."""
  counts: list[int] = []
  slurm_value = environment.get('SLURM_STEP_TASKS_PER_NODE', '')
  for tasks, repeats in re.findall(r'(\d+)(?:\(x(\d+)\))?', slurm_value):
    counts += [int(tasks)] * int(repeats or 1)
  return counts
