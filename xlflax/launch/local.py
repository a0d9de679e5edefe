"""Jobs of several processes on this machine: `xlflax launch local`."""

import dataclasses
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence

from xlflax.foundation import errors, ranges
from xlflax.launch import agents, processes, registry, starts, values
from xlflax.launch import job as job_lib
from xlflax.storage import paths

_PROGRAM = (sys.executable, '-m', 'xlflax.cli')
_SHOWN_PORT = 12345  # where a free one would be chosen
_EXAMPLE = """# four processes here, sharing the GPUs; with --cpu_devices=2 on the CPU
xlflax launch local --num_processes=4 -- train --gin_file=... --model_dir=...
"""


@registry.register('local', help='processes on this machine', example=_EXAMPLE)
@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalJob(job_lib.Job):
  """A job on this machine.

  Attributes:
    command: what each process runs, such as ('train', '--model_dir=runs/a').
    num_processes: how many.
    cpu_devices: force so many CPU devices for each process; None takes the
      GPUs, shared equally, or one CPU device where there is none.
    logs: folder of a log for each process; None: beside the run's directory,
      or ./logs where the command names none.
    port: of process 0 for the others; None takes a free one.
    grace_seconds: how long the others may take to end after a failure.
    restarts: how often within an hour the job is started again after a
      failure that is no user's mistake; it continues from its last checkpoint.
    spares: whether the processes of the next start wait beside the running
      ones, with all imported: they need memory, and no device.
    program: what runs the command.
  """

  flags = """
--num_processes (Processes, required)
--cpu_devices (Count): N CPU devices for each process (default: the GPUs, shared
  equally; without any, 1)
--logs DIR (path): folder of the processes' logs (default: MODEL_DIR.logs, or
  logs)
--port PORT (Port): of process 0 (default: a free one)
--restarts (Natural, default 0): after a failure start again, at most so often
  within an hour
--no_spares (switch off, as spares): keep no processes waiting for the next
  start, which takes seconds longer then, and less memory now
--grace SECONDS (NonNegative, as grace_seconds, default 5.0): how long the
  others may take to end after a failure
"""
  command: tuple[str, ...]
  num_processes: ranges.Processes
  cpu_devices: ranges.Count | None = None
  logs: pathlib.Path | None = None
  port: ranges.Port | None = None
  grace_seconds: ranges.NonNegative = 5.0
  restarts: ranges.Natural = 0
  spares: bool = True
  program: tuple[str, ...] = _PROGRAM

  def __post_init__(self):
    values.check(self)

  @property
  def host(self) -> str:
    """Where the job's first process is."""
    return 'localhost'

  def place(self, process_id: int) -> tuple[int, int]:
    """A process's number among those of all nodes, and how many they are."""
    return process_id, self.num_processes

  def log(self, process_id: int) -> pathlib.Path:
    """Returns the path of a process's log; of all nodes in one folder."""
    return self.log_directory / f'process_{self.place(process_id)[0]}.log'

  @property
  def log_directory(self) -> pathlib.Path:
    """Folder of the logs; on disk, also for a run in a bucket."""
    if self.logs is not None:
      return self.logs
    directory = job_lib.model_dir(self.command)
    if directory is None:
      return pathlib.Path('logs')
    name = f'{directory.name}.logs'
    if paths.is_bucket(directory):
      return pathlib.Path(name)
    return directory.with_name(name)

  def arguments(self, process_id: int, port: int) -> list[str]:
    """The command line of a process, after `xlflax`."""
    return [
      *self.command,
      *self.joining(process_id, port),
      f'--stopped_status={errors.ExitStatus.STOPPED}',
      *job_lib.platform_flag(self.command, self._platform()),
    ]

  def joining(self, process_id: int, port: int) -> list[str]:
    """The flags by which the processes find each other."""
    number, count = self.place(process_id)
    return [
      f'--coordinator={self.host}:{port}',
      f'--num_processes={count}',
      f'--process_id={number}',
    ]

  def _platform(self) -> str:
    return 'gpu' if self.cpu_devices is None and gpus(os.environ) else 'cpu'

  def variables(self, process_id: int, gpus: Sequence[str]) -> dict[str, str]:
    """What a process's environment has beyond the launcher's.

    Raises:
      ConfigError: the GPUs cannot be shared equally.
    """
    if self.cpu_devices is None and gpus:
      if len(gpus) % self.num_processes:
        raise errors.ConfigError(
          'The processes cannot share the GPUs equally',
          got=f'{self.num_processes} processes, {len(gpus)} GPUs',
          fix='start another number of processes, set CUDA_VISIBLE_DEVICES, '
          'or give --cpu_devices',
        )
      share = len(gpus) // self.num_processes
      own = gpus[process_id * share : (process_id + 1) * share]
      return {'CUDA_VISIBLE_DEVICES': ','.join(own)}
    return {
      'JAX_PLATFORMS': 'cpu',
      'JAX_NUM_CPU_DEVICES': str(self.cpu_devices or 1),
    }

  def processes(self, port: int) -> list[starts.Process]:
    """Returns the processes, of which the first listens on `port`."""
    names = gpus(os.environ)
    return [
      starts.Process(
        arguments=[*self.program, *self.arguments(i, port)],
        variables=self.variables(i, names),
        log=self.log(i),
        name='Process {} of {}'.format(*self.place(i)),
      )
      for i in range(self.num_processes)
    ]

  def rendered(self) -> str:
    """Returns the command lines of the processes."""
    port = self.port or _SHOWN_PORT
    lines = []
    for i, process in enumerate(self.processes(port)):
      variables = ' '.join(
        f'{k}={shlex.quote(v)}' for k, v in process.variables.items()
      )
      command = shlex.join(['xlflax', *self.arguments(i, port)])
      log = shlex.quote(str(process.log))
      lines.append(f'{variables} {command} > {log} 2>&1 &')
    return '\n'.join([*lines, 'wait'])

  def start(self) -> int:
    """Runs the processes to their end; see `processes.run`."""
    status = self.run(agents.Lead(self.port))
    return 0 if status == errors.ExitStatus.STOPPED else status

  def run(self, all_agents: agents.Lead | agents.Follower) -> int:
    """Runs this node's processes to their end; see `processes.run`."""
    return processes.run(
      self.processes,
      all_agents,
      grace_seconds=self.grace_seconds,
      restarts=self.restarts,
      model_dir=job_lib.model_dir(self.command),
      spares=self.spares and self.program == _PROGRAM,
    )


def gpus(environment: Mapping[str, str]) -> list[str]:
  """Names of the GPUs that may be used, for CUDA_VISIBLE_DEVICES."""
  if environment.get('JAX_PLATFORMS') == 'cpu':
    return []
  if (listed := environment.get('CUDA_VISIBLE_DEVICES')) is not None:
    return [name for name in listed.split(',') if name]
  if not shutil.which('nvidia-smi'):
    return []
  shown = subprocess.run(
    ['nvidia-smi', '--query-gpu=index', '--format=csv,noheader'],
    capture_output=True,
    text=True,
    check=False,
  )
  return shown.stdout.split() if shown.returncode == 0 else []
