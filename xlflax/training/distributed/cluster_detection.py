"""Detection of this process's job from flags, environment or scheduler.

Flags take precedence, then the variables `XLFLAX_COORDINATOR`,
`XLFLAX_NUM_PROCESSES` and `XLFLAX_PROCESS_ID`, which Kubernetes manifests set
(with `XLFLAX_NUM_SLICES`, the process id counts within slice
`XLFLAX_SLICE_ID`), and then the detection of `jax.distributed`: Slurm, Open
MPI, TPU workers, and Kubernetes if the package `kubernetes` is installed.
Unlike JAX, this module also decides whether a job exists: a Slurm step with one
task is a single process.
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
  """Environment that started the processes, such as a scheduler."""

  AUTO = 'auto'
  NONE = 'none'  # A single process, independent of the environment.
  SLURM = 'slurm'
  OPEN_MPI = 'openmpi'
  KUBERNETES = 'kubernetes'
  TPU = 'tpu'


# Names in `jax.distributed`, which detects the type of TPU host itself.
_JAX_NAMES = {
  Cluster.SLURM: 'slurm',
  Cluster.OPEN_MPI: 'ompi',
  Cluster.KUBERNETES: 'k8s',
  Cluster.TPU: None,
}

# Variables that launchers set but xlflax does not read: the index of the
# process and the number of processes.
_TORCHRUN = ('RANK', 'WORLD_SIZE')  # Also set by Accelerate and DeepSpeed.
_OTHER_MPI = (
  ('PMI_RANK', 'PMI_SIZE'),  # MPICH and Intel MPI
  ('MV2_COMM_WORLD_RANK', 'MV2_COMM_WORLD_SIZE'),  # MVAPICH
)


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
  """Description of the multi-process job that this process belongs to.

  Attributes:
    coordinator_address: 'host:port' at which process 0 is reached.
    num_processes: Number of processes in the job.
    process_id: Zero-based index of this process.
    source: Origin of this description, such as flags or Slurm, for messages.
    local_devices: Indices of those accelerators on the host that belong to this
      process. If None, all visible accelerators belong to it.
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
        'The coordinator address (--coordinator_address) must have the format '
        'HOST:PORT',
        got=self.coordinator_address,
      )
    if self.process_id >= self.num_processes:
      raise errors.ConfigError(
        '`process_id` must be less than `num_processes`, which is '
        f'{self.num_processes}',
        got=self.process_id,
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
  """Detects the multi-process job that this process belongs to.

  Args:
    environment: This process's environment variables.
    coordinator_address: 'host:port' of process 0 from a flag, or None.
    num_processes: Number of processes from a flag, or None.
    process_id: Number of this process from a flag, or None.
    cluster: Scheduler or cloud environment that provides the values that are
      not set by flags or environment variables.
    initialization_timeout: Time to wait for the host name of process 0, in
      seconds.

  Returns:
    The job, or None for a single process.

  Raises:
    ConfigError: If the job's description is incomplete or invalid.
  """
  flags = {
    'coordinator_address': coordinator_address,
    'num_processes': num_processes,
    'process_id': process_id,
  }
  job_values = _add_variables(flags, environment, cluster)
  missing = [name for name, value in job_values.items() if value is None]
  scheduler = _detect_scheduler(environment, cluster) if missing else None
  if None not in flags.values():
    source = 'flags'
  elif scheduler:
    source = scheduler.value
  else:
    source = 'environment'

  device_indices = None
  if scheduler:
    job_values = _detect_with_jax(job_values, scheduler, initialization_timeout)
    device_indices = local_devices(environment, scheduler)
  elif missing:
    _check_single_process(job_values, cluster)
    _check_srun(environment, cluster)
    return None

  return Job(
    coordinator_address=str(job_values['coordinator_address']),
    num_processes=int(job_values['num_processes']),
    process_id=int(job_values['process_id']),
    source=source,
    local_devices=device_indices,
  )


def _add_variables(flags, environment, cluster):
  """Replaces missing flag values by the values of environment variables."""
  if cluster is Cluster.NONE:
    return dict(flags)
  job_values = {
    name: environment.get(_VARIABLES[name]) if value is None else value
    for name, value in flags.items()
  }
  for name in ('num_processes', 'process_id'):
    if job_values[name] is not None and not str(job_values[name]).isdigit():
      raise errors.ConfigError(
        f'`{name}` must be a nonnegative integer. Set it with --{name} or '
        f'the environment variable {_VARIABLES[name]}',
        got=repr(job_values[name]),
      )
  if None not in job_values.values() and flags['process_id'] is None:
    num_slices = _read_number(environment, 'XLFLAX_NUM_SLICES') or 1
    slice_id = _read_number(environment, 'XLFLAX_SLICE_ID')
    offset = slice_id * int(job_values['num_processes']) // num_slices
    job_values['process_id'] = int(job_values['process_id']) + offset
  return job_values


def _check_single_process(job_values, cluster) -> None:
  """Checks that nothing indicates a job of several processes.

  Raises:
    ConfigError: If a cluster was requested, or if a flag that describes a job
      of several processes is set.
  """
  if cluster not in (Cluster.AUTO, Cluster.NONE):
    raise errors.ConfigError(
      f'The flag --cluster={cluster.value} is set, but the environment '
      'variables of that cluster are not set',
      fix='Start the processes through the cluster (with srun for Slurm, with '
      'mpirun for Open MPI), or pass --coordinator_address, --num_processes '
      'and --process_id.',
    )
  if any(value is not None for value in job_values.values()):
    raise errors.ConfigError(
      'The description of the multi-process job is incomplete. The flags '
      '--coordinator_address, --num_processes and --process_id are all required',
      got=', '.join(f'{name}={value}' for name, value in job_values.items()),
    )


def _check_srun(environment: Mapping[str, str], cluster: Cluster) -> None:
  """Checks that Slurm did not allocate several tasks to a single process.

  Raises:
    ConfigError: If the job has several tasks, but this process is not one of
      them.
  """
  num_tasks = _read_number(environment, 'SLURM_NTASKS')
  if (
    cluster is Cluster.AUTO
    and num_tasks > 1
    and not _is_in_slurm_step(environment)
  ):
    raise errors.ConfigError(
      f'Slurm allocated {num_tasks} tasks (SLURM_NTASKS), but srun did not '
      'start this process (SLURM_STEP_NODELIST is not set). One process is '
      'required for each task',
      fix='Start the processes with `srun xlflax ...` (as `xlflax launch '
      'slurm` does), or pass --cluster=none for a single process.',
    )


def describe_unread_variables(environment: Mapping[str, str]) -> str | None:
  """Returns a warning if a launcher that xlflax does not support is detected.

  Such a launcher has started several processes, but each process runs as if it
  were the only one. A process with only one of the two variables of a launcher
  causes no warning.

  Args:
    environment: Environment variables of a process without a detected job.
  """
  # `srun --mpi=pmi2` sets the variables of MPICH.
  in_slurm = _is_in_slurm_step(environment)
  for rank, size in (_TORCHRUN, *(() if in_slurm else _OTHER_MPI)):
    index, num_processes = environment.get(rank, ''), environment.get(size, '')
    if index.isdigit() and num_processes.isdigit() and int(num_processes) > 1:
      return (
        f'The environment variables {rank}={index} and {size}={num_processes} '
        f'describe process {index} of {num_processes}, but xlflax does not '
        'read these variables, and this process trains alone. Start the '
        'processes with `xlflax launch local` or `xlflax launch node`, or pass '
        '--coordinator_address, --num_processes and --process_id to `xlflax '
        'train` (docs/launch.md#process-discovery). If a single process is '
        f'intended, unset {size}, or pass --cluster=none to `xlflax train`.'
      )
  return None


def _is_in_slurm_step(environment: Mapping[str, str]) -> bool:
  return 'SLURM_STEP_NODELIST' in environment


def _detect_scheduler(environment, cluster: Cluster) -> Cluster | None:
  """Detects the scheduler that started this process along with others.

  Args:
    environment: This process's environment variables.
    cluster: Scheduler to detect. If AUTO, any supported scheduler.
  """
  is_detected = {
    Cluster.SLURM: _is_in_slurm_step(environment)
    and _read_number(environment, 'SLURM_STEP_NUM_TASKS') > 1,
    Cluster.OPEN_MPI: _read_number(environment, 'OMPI_COMM_WORLD_SIZE') > 1,
    Cluster.KUBERNETES: 'KUBERNETES_SERVICE_HOST' in environment
    and 'JOB_COMPLETION_INDEX' in environment
    and importlib.util.find_spec('kubernetes'),
    Cluster.TPU: _is_on_tpu(),
  }
  candidates = list(is_detected) if cluster is Cluster.AUTO else [cluster]
  for candidate in candidates:
    if is_detected.get(candidate):
      return candidate
  return None


def _is_on_tpu() -> bool:
  from jax._src import cloud_tpu_init

  return cloud_tpu_init.running_in_cloud_tpu_vm


def _read_number(environment, name: str) -> int:
  """Returns the integer in an environment variable, or 0 without one."""
  value = environment.get(name, '')
  return int(value) if value.isdigit() else 0


def _detect_with_jax(known_values, cluster: Cluster, initialization_timeout):
  """Fills in missing values with those that JAX detects.

  Raises:
    ConfigError: If JAX cannot detect all values that are None in
      `known_values`.
  """
  from jax._src import clusters

  job_values: dict[str, Any] = {
    name: value
    if value is None or name == 'coordinator_address'
    else int(value)
    for name, value in known_values.items()
  }
  # An empty list of devices keeps JAX from choosing them.
  values = clusters.ClusterEnv.auto_detect_unset_distributed_params(
    job_values['coordinator_address'],
    job_values['num_processes'],
    job_values['process_id'],
    [],
    _JAX_NAMES[cluster],
    initialization_timeout,
  )
  detected_values = dict(zip(job_values, values[:3], strict=True))
  if None in detected_values.values():
    raise errors.ConfigError(
      'JAX could not detect all of the values that describe the '
      f'{cluster.value} job',
      got=', '.join(
        f'{name}={value}' for name, value in detected_values.items()
      ),
      fix='Pass the missing values with --coordinator_address (HOST:PORT of '
      'process 0), --num_processes and --process_id.',
    )
  return detected_values


def local_devices(
  environment: Mapping[str, str], cluster: Cluster
) -> tuple[int, ...] | None:
  """Returns the indices of the GPUs that belong to this process.

  If all processes of a host see all of its GPUs, they are divided equally. A
  process that sees fewer GPUs uses all of them, because the scheduler assigned
  them.

  Args:
    environment: This process's environment variables.
    cluster: Scheduler that started the process.

  Returns:
    The indices, or None for all visible GPUs.

  Raises:
    ConfigError: If the host's GPUs cannot be divided equally among its
      processes.
  """
  if cluster is Cluster.SLURM:
    local_index = _read_number(environment, 'SLURM_LOCALID')
    num_processes = tasks_on_node(environment)
    num_gpus_on_node = _read_number(environment, 'SLURM_GPUS_ON_NODE')
  elif cluster is Cluster.OPEN_MPI:
    local_index = _read_number(environment, 'OMPI_COMM_WORLD_LOCAL_RANK')
    num_processes = _read_number(environment, 'OMPI_COMM_WORLD_LOCAL_SIZE')
    num_gpus_on_node = 0
  else:
    return None

  visible_devices = environment.get('CUDA_VISIBLE_DEVICES')
  num_visible = (
    len(visible_devices.split(',')) if visible_devices else num_gpus_on_node
  )
  if num_processes <= 1 or not num_visible or num_visible < num_gpus_on_node:
    return None
  if num_visible % num_processes:
    raise errors.ConfigError(
      f'The {num_visible} GPUs of a host cannot be divided equally among its '
      f'{num_processes} processes',
      where=cluster.value,
      fix='Start one process per GPU, or one per host.',
    )
  num_local = num_visible // num_processes
  return tuple(range(local_index * num_local, (local_index + 1) * num_local))


def tasks_on_node(environment: Mapping[str, str]) -> int:
  """Returns the number of Slurm tasks on this node."""
  counts = tasks_per_node(environment) or [1]
  node = _read_number(environment, 'SLURM_NODEID')
  return counts[node] if node < len(counts) else counts[-1]


def tasks_per_node(environment: Mapping[str, str]) -> list[int]:
  """Returns the number of Slurm tasks on each node, or [] without Slurm.

  The environment variable contains a list such as '2(x3),1'.
  """
  counts: list[int] = []
  slurm_value = environment.get('SLURM_STEP_TASKS_PER_NODE', '')
  for tasks, repeats in re.findall(r'(\d+)(?:\(x(\d+)\))?', slurm_value):
    counts += [int(tasks)] * int(repeats or 1)
  return counts
