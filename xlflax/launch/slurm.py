"""Slurm jobs, rendered as a batch script for `sbatch`.

The script is rendered from the template `slurm/slurm.sbatch.j2` in
`launch/templates`.
"""

import codecs
import dataclasses
import enum
import itertools
import logging
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar

import annotated_types

from xlflax.launch import job_base, launcher_registry, preflight, templates
from xlflax.utils import errors, line_splitting, validation

# sbatch has its own quoting rules in #SBATCH lines. Only characters that need
# no quotes are allowed.
_DIRECTIVE = re.compile(r'[\w./:@%+=,^~*&|!()\[\]-]+')
# Time limits of sbatch: minutes, [hours:]minutes:seconds and
# days-hours[:minutes[:seconds]].
_TIME_LIMIT = re.compile(
  r'\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|-1|UNLIMITED|INFINITE',
  re.IGNORECASE | re.ASCII,
)
# A smaller number probably lacks a unit.
_MIN_MEGABYTES = 1024
# Option that specifies the directory to which each run of a sweep writes.
_OUTPUT_FLAGS = {'train': '--model_dir', 'finetune': '--output'}
_EXAMPLE = r"""# Two nodes of eight GPUs, with a process for each GPU; print the script only
xlflax launch slurm --nodes=2 --gpus_per_node=8 --ntasks_per_node=8 \
    --time=24:00:00 --dry_run -- train --gin_file=... --model_dir=...

# A token cache, written by an array of 16 jobs
xlflax launch slurm --array=0-15 --cpus_per_task=2 -- \
    cache --shard_from_env --corpus=... --vocabulary=... --output=/shared/cache
"""


class RestartPolicy(enum.Enum):
  """Method of restarting a job after a failure that is not a user error."""

  REQUEUE = 'requeue'
  IN_PLACE = 'in_place'


@launcher_registry.register('slurm', help='a job for sbatch', example=_EXAMPLE)
@dataclasses.dataclass(frozen=True, kw_only=True)
class SlurmJob(job_base.Job):
  """A job that runs on a Slurm cluster.

  Attributes:
    command: Command that each process runs.
    nodes: Number of nodes.
    gpus_per_node: Number of GPUs per node. Use 0 for CPU jobs.
    ntasks_per_node: Number of processes on each node, which share its GPUs.
    cpus_per_task: Number of CPUs per process, which the input pipeline uses.
    mem: Memory per node, such as 512G.
    partition: Cluster partition to which the job is submitted.
    account: Account to which the job is charged.
    time: Time limit in Slurm's format, such as 2-00:00:00.
    job_name: Name of the job, which is also part of its log file names.
    signal_seconds: Number of seconds before the time limit at which a signal
      tells the run to save a checkpoint and stop, at most 65535.
    sweep: File with the options of the array tasks, one task per line. It must
      be on a file system that all nodes share.
    array: Array tasks to run, such as '1-8%2'. Defaults to all lines in the
      sweep. For commands with --shard_from_env, this option specifies the
      shards, such as '0-15'.
    max_restarts: Maximum number of requeues, including those at the time limit,
      before a failed job is given up. It is also the maximum number of restarts
      per hour within the allocation.
    restart_policy: Reaction to a failure: requeue the job, or first restart its
      processes within the allocation.
    logs: Directory for the logs, relative to the job's working directory.
      Defaults to the working directory itself.
    nccl_socket_ifname: Network interface for NCCL's control connections
      (NCCL_SOCKET_IFNAME).
    env: Environment variable for the processes, as NAME=VALUE.
    entrypoint: Shell command that runs xlflax, such as "apptainer exec --nv
      image.sif xlflax".
    sbatch_arg: Additional argument for sbatch, such as --exclusive.
  """

  commands: ClassVar[tuple[str, ...]] = (
    *job_base.DISTRIBUTED_COMMANDS,
    *job_base.SHARDED_COMMANDS,
  )
  command: tuple[str, ...]
  nodes: validation.PositiveInt = 1
  gpus_per_node: validation.NonNegativeInt = 0
  ntasks_per_node: validation.PositiveInt = 1
  cpus_per_task: validation.PositiveInt | None = None
  mem: str | None = None
  partition: str | None = None
  account: str | None = None
  time: str | None = None
  job_name: str = 'xlflax'
  signal_seconds: Annotated[int, annotated_types.Interval(ge=1, le=65_535)] = (
    120
  )
  sweep: pathlib.Path | None = None
  array: str | None = None
  max_restarts: validation.NonNegativeInt = 20
  restart_policy: RestartPolicy = RestartPolicy.REQUEUE
  logs: pathlib.Path | None = None
  nccl_socket_ifname: str | None = None
  env: tuple[str, ...] = job_base.multiline(default=())
  entrypoint: str = 'xlflax'
  sbatch_arg: tuple[str, ...] = ()

  def __post_init__(self):
    job_base.check_text(self)
    job_base.parse_variables(self.env, '--env')
    self._check_directives()
    if self.gpus_per_node and self.gpus_per_node % self.ntasks_per_node:
      raise errors.ConfigError(
        f'--gpus_per_node={self.gpus_per_node} must be a multiple of '
        f'--ntasks_per_node={self.ntasks_per_node}, so that all processes of a '
        'node have the same number of GPUs'
      )
    is_sharded = self.command[0] in job_base.SHARDED_COMMANDS
    if self.array and not self.sweep and not is_sharded:
      raise errors.ConfigError(
        f'--array requires --sweep for the command `{self.command[0]}`',
        got=self.array,
        fix=(
          'Pass --sweep=FILE, where the file contains one line of options for '
          'each array task.'
        ),
      )
    num_processes = self.nodes * self.ntasks_per_node
    if self.array and is_sharded and num_processes > 1:
      raise errors.ConfigError(
        'Each array task processes one shard, so a job with '
        f'--array={self.array} must have one node and one process, but found '
        f'{num_processes} processes',
        fix='Pass a larger --array, or pass --nodes without --array.',
      )

  def _check_directives(self):
    """Raises ConfigError if a value is not allowed in an #SBATCH line."""
    if '/' in self.job_name:
      raise errors.ConfigError(
        '--job_name must not contain /, because it is part of a file name',
        got=self.job_name,
      )
    if self.time is not None and not _TIME_LIMIT.fullmatch(self.time):
      raise errors.ConfigError(
        '--time must be a Slurm time limit in the form minutes, '
        'hours:minutes:seconds or days-hours, such as 24:00:00 or 1-0',
        got=self.time,
      )
    for argument in self.sbatch_arg:
      if not argument.startswith('-'):
        raise errors.ConfigError(
          'Each value of --sbatch_arg must be a complete option of `sbatch`, '
          'such as --exclusive or --comment=TEXT',
          got=argument,
        )
    values = [
      *(
        (f'--{name}', getattr(self, name))
        for name in ('mem', 'partition', 'account', 'time', 'job_name', 'array')
      ),
      ('--logs', str(self.logs) if self.logs else None),
      *(('--sbatch_arg', argument) for argument in self.sbatch_arg),
    ]
    for option, value in values:
      if value is not None and not _DIRECTIVE.fullmatch(value):
        raise errors.ConfigError(
          f'The value of {option} cannot be written to an #SBATCH line. It '
          'must not contain spaces, quotes, backslashes or the characters #, '
          '$, ;, < and >',
          got=value,
          where=option,
          fix=(
            'Print the script with --dry_run, and pass the value to '
            '`sbatch` on its command line.'
          ),
        )

  def _warn_of_missing_units(self):
    """Logs a warning for numbers that sbatch reads as megabytes or minutes."""
    # All memory of a node is allocated for --mem=0, and --time=0 is no limit.
    mem, time = (
      int(value) if value and value.isdecimal() else 0
      for value in (self.mem, self.time)
    )
    if 0 < mem < _MIN_MEGABYTES:
      logging.warning(
        'Slurm reads --mem=%s as %s MB per node. Did you mean --mem=%sG?',
        mem,
        mem,
        mem,
      )
    if time:
      logging.warning(
        'Slurm reads --time=%s as %s minutes. For %s hours, pass '
        '--time=%s:00:00.',
        time,
        time,
        time,
        time,
      )

  @property
  def restarts_in_place(self) -> bool:
    """True if failed processes are restarted without a new Slurm allocation."""
    return (
      self.restart_policy is RestartPolicy.IN_PLACE
      and self.command[0] in job_base.DISTRIBUTED_COMMANDS
    )

  def check(self) -> None:
    """Checks the sweep file, and the command of each array task.

    Logs a warning for memory and time limits that probably lack a unit, and for
    gin flags that all lines of the sweep file override.
    """
    self._warn_of_missing_units()
    if self.sweep is not None:
      # The script reads the file on the node of each array task.
      preflight.check_input_not_node_local(
        '--sweep', os.path.abspath(self.sweep)
      )
    tasks = self.task_commands()
    if self.sweep is not None:
      self._warn_of_overridden_bindings(tasks)
      self._check_different_directories()
    for task in tasks:
      with task.adding_location():
        job_base.check_gin_files(task.command)
        job_base.check_model_dir(task.command)
        if self.nodes > 1:
          preflight.check_not_node_local(task.command, self.working_directory)

  def _check_different_directories(self) -> None:
    """Checks that each run of a sweep has its own output directory.

    Raises:
      ConfigError: If lines of the sweep set no directory, or the same one.
    """
    flag = _OUTPUT_FLAGS.get(self.command[0])
    if flag is None:
      return  # The array tasks write the shards of one output.
    sweep = self._sweep_commands()
    missing = [
      number
      for number, task in sweep.items()
      if job_base.lacks_model_dir(task.command)
    ]
    if missing:
      raise errors.ConfigError(
        f'Each line of the sweep file must specify {flag}. Line numbers '
        f'without it: {_format_ranges(missing)}',
        got=' '.join(sweep[missing[0]].command),
        where=sweep[missing[0]].location,
        fix=f'Add a different {flag}=DIR to each line of the sweep file.',
      )
    lines_by_directory: dict[str, list[int]] = {}
    for number, task in sweep.items():
      if '--dry_run' not in task.command:
        directory = _output_directory(task.command, flag)
        lines_by_directory.setdefault(directory, []).append(number)
    for directory, lines in lines_by_directory.items():
      if len(lines) > 1:
        raise errors.ConfigError(
          f'Each line of the sweep file must set a different {flag}, because '
          'each line starts a run. Line numbers with the same directory: '
          f'{_format_ranges(lines)}',
          got=directory,
          where=f'{sweep[lines[0]].location} and {sweep[lines[1]].location}',
          fix=f'Pass a different {flag}=DIR in each of these lines.',
        )

  def _warn_of_overridden_bindings(
    self, tasks: Sequence[job_base.TaskCommand]
  ) -> None:
    """Logs a warning for each gin flag that all lines of a sweep override."""
    for word in self.command:
      name, sign, _ = word.partition('=')
      if not name.startswith('--gin.') or not sign:
        continue
      is_overridden = all(
        any(
          other.startswith(f'{name}=') and other != word
          for other in task.command[len(self.command) :]
        )
        for task in tasks
      )
      if is_overridden:
        logging.warning(
          '%s is set by %s and by each line of the sweep file %s. The values '
          'in the file are used.',
          name.removeprefix('--gin.'),
          word,
          self.sweep,
        )

  def task_commands(self) -> list[job_base.TaskCommand]:
    """Returns the command of each array task that a sweep starts.

    Raises:
      ConfigError: If the file of the sweep cannot be read, if a line contains
        an unmatched quotation mark, or if `array` selects a line without
        options.
    """
    if self.sweep is None:
      return super().task_commands()
    return list(self._sweep_commands().values())

  def _sweep_commands(self) -> dict[int, job_base.TaskCommand]:
    """Returns the commands of the selected lines of a sweep, by number."""
    lines = self._sweep_lines()
    ranges: Sequence[Iterable[int]] = [list(lines)]
    if self.array is not None:
      ranges = _parse_array(self.array) or ranges
    commands = {}
    for number in itertools.chain(*ranges):
      if number not in lines:
        raise errors.ConfigError(
          '--array selects a line of the sweep file that does not exist or '
          'contains no options',
          got=number,
          expected=f'line numbers in {_format_ranges(list(lines))}',
          where=str(self.sweep),
        )
      location = errors.line_location(str(self.sweep), number)
      words = _split_words(lines[number], location)
      commands[number] = job_base.TaskCommand((*self.command, *words), location)
    return commands

  @property
  def working_directory(self) -> str:
    """Absolute path of the directory in which Slurm runs the job."""
    directory = ''
    for argument in self.sbatch_arg:
      name, sign, value = argument.partition('=')
      if argument.startswith('-D'):
        directory = argument.removeprefix('-D')
      # sbatch accepts abbreviations of its options.
      elif sign and len(name) >= len('--ch') and '--chdir'.startswith(name):
        directory = value
    return os.path.join(os.getcwd(), directory)

  def context(self) -> dict[str, Any]:
    """Returns the values of the variables in the batch script's template.

    - job: This object.
    - directives: Options for sbatch and their values, which become #SBATCH
      lines.
    - command: Command that each process runs.
    - env: Environment variables for the processes.
    - adds_flags: Whether the processes join into one JAX job, so that
      `preemption_flag` is added to the command.
    - user_error_status, preempted_status, interrupted_status: Exit statuses of
      a process after a user error, after a preemption, and after a signal
      before its first step.
    """
    has_gpus = 'gpu' if self.gpus_per_node else None
    env = job_base.parse_variables(self.env, '--env')
    if self.nccl_socket_ifname:
      env['NCCL_SOCKET_IFNAME'] = self.nccl_socket_ifname
    return {
      'job': self,
      'directives': self._directives(),
      'command': [
        *self.command,
        *job_base.platform_flags(self.command, has_gpus),
      ],
      'env': env,
      'adds_flags': self.command[0] in job_base.DISTRIBUTED_COMMANDS,
      'preemption_flag': job_base.PREEMPTION_FLAG,
      'user_error_status': int(errors.ExitStatus.MISTAKE),
      'preempted_status': int(errors.ExitStatus.STOPPED),
      'interrupted_status': int(errors.ExitStatus.INTERRUPTED),
    }

  def _directives(self) -> dict[str, Any]:
    """Returns the options of sbatch that have a value."""
    log = '%x_%A_%a.log' if self._array() else '%x_%j.log'
    # In a file name, sbatch replaces %%, %j and so on.
    logs = str(self.logs).replace('%', '%%') + '/' if self.logs else ''
    options = {
      'job-name': self.job_name,
      'nodes': self.nodes,
      'ntasks-per-node': self.ntasks_per_node,
      'gpus-per-node': self.gpus_per_node or None,
      'cpus-per-task': self.cpus_per_task,
      'mem': self.mem,
      'partition': self.partition,
      'account': self.account,
      'time': self.time,
      'signal': f'USR1@{self.signal_seconds}',
      'array': self._array(),
      'output': f'{logs}{log}',
    }
    return {k: v for k, v in options.items() if v is not None}

  def _array(self) -> str | None:
    """Returns the indices of the array tasks, or None."""
    if self.sweep is None:
      return self.array
    return self.array or _format_ranges(list(self._sweep_lines()))

  def _sweep_lines(self) -> dict[int, str]:
    """Returns the lines of the sweep file that contain options, by number."""
    assert self.sweep is not None
    try:
      text = self.sweep.read_bytes().removeprefix(codecs.BOM_UTF8).decode()
    except (OSError, UnicodeError) as error:
      raise errors.ConfigError(
        'The sweep file cannot be read. It must be a text file that contains '
        'the options of one array task on each line',
        got=str(error),
        where=str(self.sweep),
      ) from error
    lines = {
      number: line
      for number, line in enumerate(line_splitting.split_text(text), start=1)
      if line.strip()
    }
    if not lines:
      raise errors.ConfigError(
        'The sweep file contains no options', where=str(self.sweep)
      )
    return lines

  def render(self) -> str:
    """Returns the batch script."""
    return templates.render_shell('slurm/slurm.sbatch.j2', self.context())

  def launch(self) -> int:
    """Submits the script and prints Slurm's response."""
    print(submit_job(self, dict(os.environ)))
    return 0


def _output_directory(command: Sequence[str], flag: str) -> str:
  """Returns the directory to which a run writes, for comparison.

  If only a gin file can bind the directory, the result names the gin files.
  """
  binding = job_base.flag_value(command, '--gin.MODEL_DIR')
  value = binding or job_base.flag_value(command, flag)
  if value is None:
    return ' '.join(
      f'--gin_file={name}'
      for name in job_base.flag_values(command, '--gin_file')
    )
  scheme, separator, path = value.strip('\'"').rpartition('://')
  return scheme + separator + os.path.normpath(path)


def _split_words(line: str, location: str) -> list[str]:
  """Splits a line of a sweep into words, as `xargs` does in the job."""
  lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
  lexer.whitespace = ' \t\r\n'
  lexer.whitespace_split = True
  lexer.commenters = ''
  lexer.escapedquotes = ''  # A backslash between quotation marks is literal.
  try:
    return list(lexer)
  except ValueError as error:
    raise errors.ConfigError(
      'A line of the sweep file contains an unmatched quotation mark or ends '
      'with a backslash',
      got=line.strip(),
      where=location,
    ) from error


def _parse_array(array: str) -> list[range]:
  """Returns the indices that `--array` selects, such as '1-8:2%4', as ranges.

  The result is empty if the text is not valid, which `sbatch` reports.
  """
  ranges = []
  for part in array.partition('%')[0].split(','):
    match = re.fullmatch(r'(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?', part)
    if match is None:
      return []
    first, last, step = match.groups()
    stop = int(last or first) + 1
    ranges.append(range(int(first), stop, max(int(step or 1), 1)))
  return ranges


def _format_ranges(indices: Sequence[int]) -> str:
  """Formats increasing indices for Slurm: '1-2,4' for 1, 2 and 4."""
  ranges: list[list[int]] = []
  for index in indices:
    if ranges and index == ranges[-1][1] + 1:
      ranges[-1][1] = index
    else:
      ranges.append([index, index])
  return ','.join(
    f'{first}-{last}' if first < last else str(first) for first, last in ranges
  )


def submit_job(job: SlurmJob, environment: dict[str, str]) -> str:
  """Submits a job with `sbatch` and returns its output.

  Args:
    job: The job to submit.
    environment: Environment variables for `sbatch`.

  Raises:
    ConfigError: If `sbatch` is missing or rejects the job.
  """
  if not shutil.which('sbatch', path=environment.get('PATH')):
    raise errors.ConfigError(
      '`sbatch` was not found',
      fix='Run the command on a login node, or print the script with --dry_run.',
    )
  script = job.render()
  if job.logs:
    logs = pathlib.Path(job.working_directory, job.logs)
    logs.mkdir(parents=True, exist_ok=True)
  with tempfile.NamedTemporaryFile('w', suffix='.sbatch') as file:
    file.write(script)
    file.flush()
    command = ['sbatch', file.name]
    result = subprocess.run(
      command, env=environment, text=True, capture_output=True, check=False
    )
  if result.returncode:
    raise errors.ConfigError(
      'Slurm rejected the job',
      got=result.stderr.strip(),
      where=shlex.join(command),
    )
  return result.stdout.strip()
