"""Jobs under Slurm: one batch script, and the `sbatch` line that submits it.

The script is the same for every job; what differs is given to `sbatch`. It is
also in `launch/slurm/train.sbatch`, for those who call `sbatch` themselves.
"""

import dataclasses
import enum
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile
from typing import ClassVar

from xlflax.foundation import errors, ranges
from xlflax.launch import base, registry

SCRIPT = (pathlib.Path(__file__).parent / 'train.sbatch').read_text('utf-8')


class RestartBy(enum.Enum):
  """What starts the processes of a failed job again."""

  QUEUE = 'queue'  # the job is queued again
  AGENTS = 'agents'  # on each node one, within the allocation; then the queue


class Per(enum.Enum):
  """What each process has."""

  GPU = 'gpu'
  NODE = 'node'


_EXAMPLE = r"""# two nodes of eight GPUs, a process for each GPU; print it, do not submit
xlflax launch slurm --nodes=2 --gpus_per_node=8 --process_per=gpu \
    --time=24:00:00 --dry_run -- train --gin_file=... --model_dir=...

# a token cache by an array of 16 jobs; `xlflax cache finish` comes after them
xlflax launch slurm --array=0-15 --cpus_per_process=2 -- \
    cache --shard=auto --corpus=... --vocabulary=... --output=/shared/cache

# likewise text, and `vocab --sample=...`; each job has eight processes
xlflax launch slurm --array=0-15 --cpus_per_process=8 -- \
    prepare --shard=auto --num_processes=8 --corpus=... --output=/shared/corpus
"""


@registry.register('slurm', help='a job for sbatch', example=_EXAMPLE)
@dataclasses.dataclass(frozen=True, kw_only=True)
class SlurmJob(base.Job):
  """A job for `sbatch`.

  Attributes:
    command: what each process runs.
    nodes: how many machines.
    gpus_per_node: 0 for a job on CPUs.
    process_per: one process per GPU, or per node.
    partition: of the cluster.
    account: to charge.
    time: limit, as Slurm writes it (`2-00:00:00`).
    job_name: shown by `squeue`, and in the log's name.
    cpus_per_process: for the input pipeline.
    signal_seconds: how long before the limit the run is asked to stop.
    sweep: file of flags, a line for each array task.
    array: which lines of it run, such as '1-8%2'; None: all. Of a command
      whose processes share work, the shares: '0-15' are sixteen.
    restarts: a failed job is queued again until it has started so often
      again, in whatever way; agents start it so often within an hour.
    restart_by: what starts it again.
    logs: folder of the logs; None: where `sbatch` is called.
    more: further arguments of `sbatch`.
  """

  commands: ClassVar[tuple[str, ...]] = (
    *base.DISTRIBUTED_COMMANDS,
    *base.SHARDED_COMMANDS,
  )
  flags = f"""
--nodes N (Count, default 1)
--gpus_per_node (Natural, default 0)
--process_per (one of {' '.join(p.value for p in Per)}, default node): one
  process for each node or GPU
--partition: as of sbatch
--account: as of sbatch
--time: as of sbatch
--job_name NAME (default xlflax)
--cpus_per_process N (Count)
--signal_seconds SECONDS (Count, default 120): ask the run to stop so long
  before its time limit
--restarts (Natural, default 20): queue a failed job again until it has started
  so often again; a mistake (status 2) ends it at once
--restart_by (one of {' '.join(r.value for r in RestartBy)}, default queue):
  start a failed job again by the queue, or by an agent on each node: within
  seconds, without giving the nodes back
--sweep FILE (path): an array of jobs: each line has the flags that one of them
  adds
--array LINES: which lines of the sweep, such as 1-8%%2 (default: all); of
  commands with --shard=auto the shares, such as 0-15
--logs DIR (path)
--sbatch ARGUMENT (repeated, as more): a further argument, such as
  --sbatch=--exclusive; may be repeated
"""
  command: tuple[str, ...]
  nodes: ranges.Count = 1
  gpus_per_node: ranges.Natural = 0
  process_per: Per = Per.NODE
  partition: str | None = None
  account: str | None = None
  time: str | None = None
  job_name: str = 'xlflax'
  cpus_per_process: ranges.Count | None = None
  signal_seconds: ranges.Count = 120
  sweep: pathlib.Path | None = None
  array: str | None = None
  restarts: ranges.Natural = 20
  restart_by: RestartBy = RestartBy.QUEUE
  logs: pathlib.Path | None = None
  more: tuple[str, ...] = ()

  def __post_init__(self):
    base.check_text(self)
    self._check_texts()
    if self.process_per is Per.GPU and not self.gpus_per_node:
      raise errors.ConfigError(
        'One process per GPU needs GPUs',
        got='--gpus_per_node=0',
        expected='1 or more',
      )
    if (
      self.array
      and not self.sweep
      and self.command[0] not in base.SHARDED_COMMANDS
    ):
      raise errors.ConfigError(
        'An array needs the flags of its tasks',
        got=f'--array={self.array}',
        expected='--sweep=FILE with a line of flags for each',
      )
    if (
      self.array
      and self.command[0] in base.SHARDED_COMMANDS
      and self._tasks() > 1
    ):
      raise errors.ConfigError(
        'Each job of an array of shares is one process',
        got=f'--array={self.array} and {self._tasks()} processes',
        expected='one node, and one process on it',
        fix='give a longer --array instead, or --nodes without --array',
      )

  def _check_texts(self):
    if '/' in self.job_name:
      raise errors.ConfigError(
        "The job's name is part of its log's name",
        got=self.job_name,
        expected='a name without /',
        where='--job_name',
      )
    if words := [word for word in self.more if not word.startswith('-')]:
      raise errors.ConfigError(
        'sbatch would take this for its script',
        got=words[0],
        expected='a flag with its value, such as --sbatch=--exclusive',
        where='--sbatch',
      )

  def sbatch(self, script: str) -> list[str]:
    """The command line that submits the script."""
    options = {
      'job-name': self.job_name,
      'nodes': self.nodes,
      'ntasks-per-node': self._tasks() // self.nodes,
      'gpus-per-node': self.gpus_per_node or None,
      'cpus-per-task': self.cpus_per_process,
      'partition': self.partition,
      'account': self.account,
      'time': self.time,
      'signal': f'USR1@{self.signal_seconds}',
      'array': self._array(),
      'output': self.logs and _literal(self.logs) / '%x_%j.log',
    }
    return [
      'sbatch',
      *(
        f'--{name}={value}'
        for name, value in options.items()
        if value is not None
      ),
      *self.more,
      script,
      *self.command,
      *base.platform_flags(self.command, 'gpu' if self.gpus_per_node else None),
    ]

  def _tasks(self) -> int:
    """Processes of the job."""
    per_node = self.gpus_per_node if self.process_per is Per.GPU else 1
    return self.nodes * per_node

  def _array(self) -> str | None:
    if self.sweep is None:
      return self.array
    try:
      lines = len(self.sweep.read_text(encoding='utf-8').splitlines())
    except OSError as error:
      raise errors.ConfigError(
        'The file of the sweep cannot be read',
        got=str(self.sweep),
        expected='a line of flags for each task of the array',
      ) from error
    if not lines:
      raise errors.ConfigError(
        'The file of the sweep is empty', got=str(self.sweep)
      )
    return self.array or f'1-{lines}'

  def variables(self) -> dict[str, str]:
    """What the script reads from the environment of `sbatch`."""
    variables = {'XLFLAX_RESTARTS': str(self.restarts)}
    if self.restart_by is RestartBy.AGENTS:
      variables['XLFLAX_AGENTS'] = '1'
    if self.sweep:
      variables['XLFLAX_SWEEP'] = str(self.sweep.absolute())
    return variables

  def render(self) -> str:
    """Returns the line that submits the job, and the script."""
    variables = [f'{k}={shlex.quote(v)}' for k, v in self.variables().items()]
    line = ' '.join([*variables, shlex.join(self.sbatch('train.sbatch'))])
    return f'# {line}\n# where train.sbatch is:\n{SCRIPT}'

  def launch(self) -> int:
    """Submits the job, and prints Slurm's answer."""
    print(submit(self, dict(os.environ)))
    return 0


def _literal(path: pathlib.Path) -> pathlib.Path:
  """A path in which Slurm replaces nothing."""
  return pathlib.Path(str(path).replace('%', '%%'))


def submit(job: SlurmJob, environment: dict[str, str]) -> str:
  """Gives the job to Slurm; returns its answer.

  Raises:
    ConfigError: there is no Slurm here, or it refused the job.
  """
  if not shutil.which('sbatch', path=environment.get('PATH')):
    raise errors.ConfigError(
      'There is no Slurm here',
      got='no sbatch in PATH',
      fix='call this on a login node, or print the script by --dry_run',
    )
  if job.logs:
    job.logs.mkdir(parents=True, exist_ok=True)
  with tempfile.NamedTemporaryFile('w', suffix='.sbatch') as script:
    script.write(SCRIPT)
    script.flush()
    result = subprocess.run(
      job.sbatch(script.name),
      env=environment | job.variables(),
      text=True,
      capture_output=True,
      check=False,
    )
  if result.returncode:
    raise errors.ConfigError(
      'Slurm refused the job',
      got=result.stderr.strip(),
      where=shlex.join(job.sbatch('train.sbatch')),
    )
  return result.stdout.strip()
