"""Base class for launchers, and checks on the command that a job runs."""

import abc
import contextlib
import dataclasses
import pathlib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from xlflax.config import config_files
from xlflax.storage import paths
from xlflax.utils import errors

# Commands whose processes join into one JAX job.
DISTRIBUTED_COMMANDS = ('train',)
# Commands whose processes divide the work, with --shard_from_env.
SHARDED_COMMANDS = ('cache', 'preprocess', 'vocab')
# Flags of the joining processes.
COORDINATOR_FLAG = '--coordinator_address'
JOIN_TIMEOUT_FLAG = '--initialization_timeout'
PREEMPTION_FLAG = f'--preemption_exit_code={errors.ExitStatus.STOPPED}'
# Flags of a command that the launcher sets.
_LAUNCHER_FLAGS = (
  COORDINATOR_FLAG,
  '--num_processes',
  '--process_id',
  '--cluster',
  PREEMPTION_FLAG.partition('=')[0],
)
# Instruction for gin files that only this machine has.
_OWN_GIN_FILE = (
  'Copy the file to the image, to a volume or, with --setup_command, to the '
  'TPU workers, and pass its absolute path, or pass the bindings as '
  '--gin.NAME=VALUE.'
)
MULTILINE = 'multiline'  # Key in the metadata of a dataclass field.
_VARIABLE_NAME = re.compile(r'[A-Za-z_]\w*', re.ASCII)
_IMAGE = re.compile(r'[A-Za-z0-9][\w./:@+-]*', re.ASCII)


@dataclasses.dataclass(frozen=True)
class TaskCommand:
  """The complete command of a job, or of one task in a job array.

  Attributes:
    command: Command that each process of the task runs.
    location: File and line from which options of the command were read. None if
      there is no such file.
  """

  command: tuple[str, ...]
  location: str | None = None

  @contextlib.contextmanager
  def adding_location(self) -> Iterator[None]:
    """Context manager that adds `location` to errors raised inside it."""
    try:
      yield
    except errors.XlflaxError as error:
      if self.location is not None:
        inner = f', {error.where}' if error.where else ''
        error.where = f'{self.location}{inner}'
      raise


class Job(abc.ABC):
  """A job that consists of several processes which run the same command.

  A launcher is a frozen dataclass that derives from this class and is
  registered with `xlflax.launch.launcher_registry.register`. Its fields define
  the options of `xlflax launch NAME`.

  Attributes:
    command: Command that each process runs, such as
      `('train', '--gin_file=pretrain/mlm.gin')`.
    commands: Names of the commands that the launcher can start.
    internal_fields: Names of the job's fields that are not command-line
      options.
  """

  command: tuple[str, ...]
  commands: ClassVar[tuple[str, ...]] = DISTRIBUTED_COMMANDS
  internal_fields: ClassVar[tuple[str, ...]] = ()

  def check(self) -> None:
    """Checks a job's files and directories before it is rendered or launched.

    Raises:
      ConfigError: If a gin file or the model directory is missing, if the nodes
        do not share the model directory, or if the processes cannot install
        xlflax.
    """
    check_gin_files(self.command)
    check_model_dir(self.command)

  def task_commands(self) -> list[TaskCommand]:
    """Returns the complete commands of the job's tasks, for checks."""
    return [TaskCommand(self.command)]

  @abc.abstractmethod
  def render(self) -> str:
    """Returns the text that `--dry_run` prints."""

  @abc.abstractmethod
  def launch(self) -> int:
    """Starts or submits the job and returns the exit status.

    Raises:
      ConfigError: If a required program is missing or the cluster rejects the
        job.
    """


def parse_pairs(values: Sequence[str], option: str) -> dict[str, str]:
  """Parses the values NAME=VALUE of a repeated option.

  Args:
    values: Values of the option, each in the form NAME=VALUE.
    option: Name of the option, for error messages.

  Raises:
    ConfigError: If a value has no name or no equals sign, or if a name occurs
      twice.
  """
  pairs: dict[str, str] = {}
  for value in values:
    name, sign, text = value.partition('=')
    if not name or not sign:
      raise errors.ConfigError(
        f'Each value of {option} must have the form NAME=VALUE',
        got=value,
        where=option,
      )
    if name in pairs:
      raise errors.ConfigError(
        f'Each value of {option} must set a different name',
        got=value,
        where=option,
      )
    pairs[name] = text
  return pairs


def parse_variables(values: Sequence[str], option: str) -> dict[str, str]:
  """Parses environment variables NAME=VALUE.

  Args:
    values: Values of the option, each in the form NAME=VALUE.
    option: Name of the option, for error messages.

  Raises:
    ConfigError: If a name is not valid for an environment variable, or a value
      is rejected by `parse_pairs`.
  """
  pairs = parse_pairs(values, option)
  for name in pairs:
    if not _VARIABLE_NAME.fullmatch(name):
      raise errors.ConfigError(
        'The name of an environment variable must consist of letters, digits '
        'and underscores, and must not start with a digit',
        got=name,
        where=option,
      )
  return pairs


def check_command(
  command: Sequence[str], commands: Sequence[str] = DISTRIBUTED_COMMANDS
) -> tuple[str, ...]:
  """Checks a job's command and returns it without a leading 'xlflax'.

  Args:
    command: Command to launch and its arguments, with or without a leading
      'xlflax'.
    commands: Names of the commands that the launcher can start.

  Raises:
    ConfigError: If there is no command, if the command cannot run as several
      processes, or if it has a flag that the launcher sets.
  """
  arguments = tuple(command)
  if arguments[:1] == ('xlflax',):
    arguments = arguments[1:]
  if not arguments:
    raise errors.ConfigError(
      'The arguments must end with -- and the xlflax command to launch',
      fix=(
        'Pass a command, as in `xlflax launch local --nproc_per_node=2 -- '
        'train --gin_file=...`.'
      ),
    )
  name = arguments[0]
  if name not in commands:
    raise errors.ConfigError(
      f'This launcher does not support the command `{name}`',
      got=name,
      expected='one of ' + ', '.join(commands),
    )
  if name in SHARDED_COMMANDS and '--shard_from_env' not in arguments:
    raise errors.ConfigError(
      f'The command `{name}` requires --shard_from_env to divide its work '
      'among processes',
      got=' '.join(arguments),
      fix='Add --shard_from_env to the command.',
    )
  if name in DISTRIBUTED_COMMANDS:
    for flag in _LAUNCHER_FLAGS:
      if any(w == flag or w.startswith(f'{flag}=') for w in arguments):
        raise errors.ConfigError(
          f'The launcher sets {flag} itself, so the command must not '
          'contain it',
          got=flag,
          fix=f'Remove {flag} from the command.',
        )
  return arguments


def flag_value(command: Sequence[str], flag: str) -> str | None:
  """Returns the last value of a flag on a command line, or None."""
  values = flag_values(command, flag)
  return values[-1] if values else None


def flag_values(command: Sequence[str], flag: str) -> list[str]:
  """Returns all values of a flag, given as `--flag=value` or `--flag value`."""
  values = []
  for i, word in enumerate(command):
    if word.startswith(f'{flag}='):
      values.append(word.partition('=')[2])
    elif word == flag and i + 1 < len(command):
      values.append(command[i + 1])
  return values


def check_gin_files(
  command: Sequence[str], *, has_own_files: bool = False
) -> None:
  """Checks that a command's gin files exist.

  Args:
    command: Command that the job runs.
    has_own_files: Whether the processes have a different file system than this
      machine, as in a container. If True, absolute paths are not checked, and
      relative paths must be those of gin files shipped with xlflax.

  Raises:
    ConfigError: If a file is neither shipped with xlflax nor found on the
      search path, if only this machine has the file, or if it is in a bucket.
  """
  search_paths = flag_values(command, '--gin_search_paths')
  folders = config_files.split_search_paths(search_paths)
  for name in flag_values(command, '--gin_file'):
    if paths.is_bucket(name):
      raise errors.ConfigError(
        'Gin files cannot be read from a bucket', got=name, fix=_OWN_GIN_FILE
      )
    if has_own_files and name.startswith('/'):
      continue
    if has_own_files and any(folder.startswith('/') for folder in folders):
      continue
    path = config_files.find_gin_file(name, folders)
    if has_own_files and not path.is_relative_to(config_files.SHIPPED):
      raise errors.ConfigError(
        'The processes of the job cannot read the gin file, because the file '
        'is stored only on this machine. --gin_file must be a gin file '
        'shipped with xlflax, or an absolute path in the container, on a '
        'mounted volume or on the TPU workers',
        got=name,
        fix=_OWN_GIN_FILE,
      )


def lacks_model_dir(command: Sequence[str]) -> bool:
  """Returns whether a training command does not specify its run directory.

  The result is False for commands that do not require a run directory
  (`--dry_run`), and for commands with gin files that are not shipped with
  xlflax, because such files may bind MODEL_DIR.
  """
  gin_files = set(flag_values(command, '--gin_file'))
  return (
    command[0] in DISTRIBUTED_COMMANDS
    and '--dry_run' not in command
    and gin_files <= set(config_files.shipped_file_names())
    and flag_value(command, '--model_dir') is None
    and flag_value(command, '--gin.MODEL_DIR') is None
  )


def check_model_dir(command: Sequence[str]) -> None:
  """Raises ConfigError if a training command lacks its run directory."""
  if lacks_model_dir(command):
    raise errors.ConfigError(
      'The command after -- must specify its run directory',
      got=' '.join(command),
      fix='Add --model_dir=DIR to the command.',
    )


def platform_flags(command: Sequence[str], platform: str | None) -> list[str]:
  """Returns the flag that makes a job fail if its accelerators are missing.

  The list is empty if the job has no accelerators, if the command already has
  the flag, or if the command's processes do not join as one JAX job.
  """
  if (
    platform is None
    or command[0] not in DISTRIBUTED_COMMANDS
    or flag_value(command, '--platform') is not None
  ):
    return []
  return [f'--platform={platform}']


def model_dir(command: Sequence[str]) -> pathlib.Path | None:
  """Returns the value of `--model_dir` as a path, or None."""
  value = flag_value(command, '--model_dir')
  return paths.to_path(value) if value else None


def last_checkpoint(directory: pathlib.Path | None) -> int | None:
  """Returns the step of the newest complete checkpoint of a run, or None."""
  if directory is None:
    return None
  steps = [
    int(path.name)
    for path in paths.list_directory(directory / 'checkpoints')
    if re.fullmatch('0|[1-9][0-9]*', path.name) and _is_complete(path)
  ]
  return max(steps, default=None)


def _is_complete(checkpoint: pathlib.Path) -> bool:
  """Returns whether a checkpoint was written completely."""
  # In a bucket, an unfinished checkpoint has its final name already.
  return (
    not paths.is_bucket(checkpoint)
    or (checkpoint / 'commit_success.txt').exists()
  )


def multiline(**arguments) -> Any:
  """Returns a dataclass field whose text may contain line breaks."""
  return dataclasses.field(metadata={MULTILINE: True}, **arguments)


def check_text(job: Any) -> None:
  """Raises an error if a job's field contains a control character.

  Nested values are also checked. Templates quote each value for YAML or for a
  shell. However, a line break, NUL or escape character is unsafe in a comment,
  a terminal or a directive, even if it is quoted.

  Args:
    job: Job to check, which is a dataclass.

  Raises:
    ConfigError: If a value contains a control character. Line breaks and tabs
      are allowed in fields that `multiline` creates.
  """
  for field in dataclasses.fields(job):
    allowed = '\n\t' if field.metadata.get(MULTILINE) else ''
    for text in _iterate_text(getattr(job, field.name)):
      for character in text:
        if _is_control(character) and character not in allowed:
          raise errors.ConfigError(
            'The options of a job must not contain the control character '
            f'{character!r}',
            got=repr(text),
            where=field.name,
          )


def check_image(image: str | None) -> None:
  """Raises an error if the name of a container image is invalid.

  Args:
    image: Name of the container image. If None, nothing is checked.

  Raises:
    ConfigError: If the name is not valid, for example because a shell would
      read it as a flag, a variable or several words.
  """
  if image is not None and not _IMAGE.fullmatch(image):
    raise errors.ConfigError(
      '--image must be the name of a container image, in the form '
      'REGISTRY/NAME:TAG or REGISTRY/NAME@DIGEST',
      got=image,
    )


def _is_control(character: str) -> bool:
  """Returns whether a character is a control character or a line separator."""
  return unicodedata.category(character) in ('Cc', 'Cs', 'Zl', 'Zp')


def _iterate_text(value: Any) -> Iterator[str]:
  """Yields all text in a value, including keys, items and fields."""
  if isinstance(value, str):
    yield value
  elif isinstance(value, Mapping):
    for key, item in value.items():
      yield from _iterate_text(key)
      yield from _iterate_text(item)
  elif isinstance(value, Sequence) and not isinstance(value, bytes):
    for item in value:
      yield from _iterate_text(item)
  elif dataclasses.is_dataclass(value) and not isinstance(value, type):
    for field in dataclasses.fields(value):
      yield from _iterate_text(getattr(value, field.name))
  elif hasattr(value, '__fspath__'):
    yield str(value)
