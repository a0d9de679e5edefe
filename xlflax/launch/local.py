"""Launchers that start processes on this machine.

`xlflax launch local` runs all processes of a job. `xlflax launch node` runs one
node's processes of a larger job, like torchrun.
"""

import abc
import dataclasses
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence

from xlflax.launch import job_base, launcher_registry, preflight, supervisor
from xlflax.storage import paths
from xlflax.utils import errors, validation

_PROGRAM = (sys.executable, '-m', 'xlflax.cli')
_EXAMPLE_PORT = 12345  # Printed by --dry_run in place of a free port.
_EXAMPLE = """# Four processes that share the GPUs. Add --cpu_devices=2 to run on the CPU.
xlflax launch local --nproc_per_node=4 -- train --gin_file=... --model_dir=...
"""
_NODE_EXAMPLE = """# On each of two nodes with four GPUs, with --node_rank=0 and --node_rank=1
xlflax launch node --nnodes=2 --node_rank=0 --nproc_per_node=4 \\
    --rdzv_endpoint=host0:7000 --max_restarts=20 -- train --gin_file=... --model_dir=...
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _SupervisedJob(job_base.Job):
  """A job whose processes are started and supervised on this machine.

  Attributes:
    command: Command that each process runs.
    nproc_per_node: Number of processes on each node.
    cpu_devices: Number of CPU devices per process. If None, the processes share
      the GPUs equally. If there is no GPU, each process has one CPU device.
    logs: Directory for the logs of the processes. Defaults to the model
      directory with the suffix '.logs', or to ./logs if the command has no
      --model_dir.
    grace_seconds: Seconds to wait for the other processes to exit after one has
      failed.
    max_restarts: Maximum number of restarts within an hour. A restart resumes
      from the last checkpoint. User errors are not retried.
    program: Program that each process runs, as a list of its name and leading
      arguments. Defaults to `xlflax`.
  """

  internal_fields = ('program',)
  command: tuple[str, ...]
  nproc_per_node: validation.NumProcesses
  cpu_devices: validation.PositiveInt | None = None
  logs: pathlib.Path | None = None
  grace_seconds: validation.NonNegativeFloat = 5.0
  max_restarts: validation.NonNegativeInt = 0
  program: tuple[str, ...] = _PROGRAM

  def __post_init__(self):
    job_base.check_text(self)

  @abc.abstractmethod
  def coordinator(self, default_port: int | None = None) -> str:
    """Returns the address of process 0. It may change when the job restarts.

    Args:
      default_port: Port to use if the job does not set one. If None, a free
        port is selected.
    """

  @abc.abstractmethod
  def rank(self, local_rank: int) -> int:
    """Returns a process's index among the processes on all nodes."""

  @property
  @abc.abstractmethod
  def world_size(self) -> int:
    """Number of processes in the job."""

  def log(self, local_rank: int) -> pathlib.Path:
    """Returns the path of a process's log."""
    return self.log_directory / f'process_{self.rank(local_rank)}.log'

  @property
  def log_directory(self) -> pathlib.Path:
    """Log directory, on the local disk if the run is stored in a bucket."""
    if self.logs is not None:
      return self.logs
    directory = job_base.model_dir(self.command)
    if directory is None:
      return pathlib.Path('logs')
    name = f'{directory.name}.logs'
    if paths.is_bucket(directory):
      return pathlib.Path(name)
    return directory.with_name(name)

  def arguments(self, local_rank: int, coordinator: str) -> list[str]:
    """Returns a process's command-line arguments, without the program."""
    return [
      *self.command,
      f'{job_base.COORDINATOR_FLAG}={coordinator}',
      f'--num_processes={self.world_size}',
      f'--process_id={self.rank(local_rank)}',
      job_base.PREEMPTION_FLAG,
      *job_base.platform_flags(self.command, self._platform()),
    ]

  def _platform(self) -> str:
    """Returns the platform on which the processes compute."""
    has_gpus = self.cpu_devices is None and visible_gpus(os.environ)
    return 'gpu' if has_gpus else 'cpu'

  def environment(self, local_rank: int, gpus: Sequence[str]) -> dict[str, str]:
    """Returns the environment variables to set for one of the node's processes.

    They are added to the environment of the launcher.

    Args:
      local_rank: Index of the process among those on this node.
      gpus: Indices or UUIDs of this node's GPUs, as in CUDA_VISIBLE_DEVICES.

    Raises:
      ConfigError: If the number of GPUs is not a multiple of the number of
        processes on the node.
    """
    if self.cpu_devices is None and gpus:
      if len(gpus) % self.nproc_per_node:
        raise errors.ConfigError(
          f'The number of GPUs ({len(gpus)}) must be a multiple of the number '
          f'of processes ({self.nproc_per_node})',
          fix='Change --nproc_per_node or CUDA_VISIBLE_DEVICES, or pass '
          '--cpu_devices.',
        )
      count = len(gpus) // self.nproc_per_node
      selected = gpus[local_rank * count : (local_rank + 1) * count]
      return {'CUDA_VISIBLE_DEVICES': ','.join(selected)}
    return {
      'JAX_PLATFORMS': 'cpu',
      'JAX_NUM_CPU_DEVICES': str(self.cpu_devices or 1),
    }

  def workers(
    self, coordinator: str | None = None
  ) -> list[supervisor.WorkerProcess]:
    """Returns the processes to start on this machine."""
    coordinator = coordinator or self.coordinator()
    gpus = visible_gpus(os.environ)
    return [
      supervisor.WorkerProcess(
        arguments=[*self.program, *self.arguments(i, coordinator)],
        environment=self.environment(i, gpus),
        log=self.log(i),
        name=f'Process {self.rank(i)} of {self.world_size}',
      )
      for i in range(self.nproc_per_node)
    ]

  def render(self) -> str:
    """Returns the shell commands that start the job's processes."""
    coordinator = self.coordinator(_EXAMPLE_PORT)
    lines = []
    for i, worker in enumerate(self.workers(coordinator)):
      environment = ' '.join(
        f'{k}={shlex.quote(v)}' for k, v in worker.environment.items()
      )
      command = shlex.join(['xlflax', *self.arguments(i, coordinator)])
      log = shlex.quote(str(worker.log))
      lines.append(f'{environment} {command} > {log} 2>&1 &')
    return '\n'.join([*lines, 'wait'])

  def supervise(self) -> int:
    """Runs the processes of this machine; see `supervisor.supervise`."""
    return supervisor.supervise(
      self.workers,
      grace_seconds=self.grace_seconds,
      max_restarts=self.max_restarts,
      model_dir=job_base.model_dir(self.command),
    )


@launcher_registry.register(
  'local', help='processes on this machine', example=_EXAMPLE
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalJob(_SupervisedJob):
  """A job that runs entirely on this machine.

  Attributes:
    nproc_per_node: Number of processes to start.
    port: TCP port of process 0. If None, a free port is selected.
  """

  port: validation.Port | None = None

  def coordinator(self, default_port: int | None = None) -> str:
    """Returns the address of process 0, by default with a free port."""
    port = self.port or default_port or supervisor.free_port()
    return f'localhost:{port}'

  def rank(self, local_rank: int) -> int:
    """Returns a process's index in the job, which equals its local rank."""
    return local_rank

  @property
  def world_size(self) -> int:
    """Number of processes in the job."""
    return self.nproc_per_node

  def launch(self) -> int:
    """Runs the processes. Returns 0 if they succeed or a signal stops them."""
    status = self.supervise()
    return 0 if status == errors.ExitStatus.STOPPED else status


@launcher_registry.register(
  'node', help='the processes of one node of a job', example=_NODE_EXAMPLE
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeJob(_SupervisedJob):
  """One node's processes in a job with several nodes.

  This launcher must be started on every node. If a process fails, the processes
  on all nodes end, and each node's launcher restarts the processes on its node.

  Attributes:
    nproc_per_node: Number of processes on each node.
    nnodes: Number of nodes.
    node_rank: Index of this node, starting at 0. Defaults to SLURM_NODEID, or
      to 0 if it is not set.
    rdzv_endpoint: Address at which process 0 on node 0 listens, as HOST:PORT.
  """

  nnodes: validation.PositiveInt = 1
  node_rank: validation.NonNegativeInt | None = None
  rdzv_endpoint: str = 'localhost:29400'

  def __post_init__(self):
    super().__post_init__()
    host, separator, port = self.rdzv_endpoint.rpartition(':')
    if not (host and separator and port.isdecimal()):
      raise errors.ConfigError(
        '--rdzv_endpoint must be an address with a port, in the form HOST:PORT',
        got=self.rdzv_endpoint,
      )
    if self._node_rank >= self.nnodes:
      raise errors.ConfigError(
        f'--node_rank must be less than --nnodes={self.nnodes}, because ranks '
        'start at 0',
        got=self._node_rank,
      )

  @property
  def _node_rank(self) -> int:
    """Index of this node, by default from Slurm's environment, or 0."""
    if self.node_rank is not None:
      return self.node_rank
    return int(os.environ.get('SLURM_NODEID', 0))

  def check(self) -> None:
    """Checks the gin files and the model directory."""
    super().check()
    if self.nnodes > 1:
      preflight.warn_of_node_local_outputs(self.command, os.getcwd())

  def coordinator(self, default_port: int | None = None) -> str:
    """Returns the address of process 0, which stays the same after restarts."""
    del default_port
    return self.rdzv_endpoint

  def rank(self, local_rank: int) -> int:
    """Returns a process's index among the processes on all nodes."""
    return self._node_rank * self.nproc_per_node + local_rank

  @property
  def world_size(self) -> int:
    """Number of processes in the job."""
    return self.nnodes * self.nproc_per_node

  def launch(self) -> int:
    """Runs this node's processes and returns the job's exit status."""
    return self.supervise()


def visible_gpus(environment: Mapping[str, str]) -> list[str]:
  """Returns the names of the usable GPUs, as in CUDA_VISIBLE_DEVICES."""
  if environment.get('JAX_PLATFORMS') == 'cpu':
    return []
  if (visible := environment.get('CUDA_VISIBLE_DEVICES')) is not None:
    return [name for name in visible.split(',') if name]
  if not shutil.which('nvidia-smi'):
    return []
  result = subprocess.run(
    ['nvidia-smi', '--query-gpu=index', '--format=csv,noheader'],
    capture_output=True,
    text=True,
    check=False,
  )
  return result.stdout.split() if result.returncode == 0 else []
