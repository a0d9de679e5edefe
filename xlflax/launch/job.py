"""Jobs: what every launcher makes of its flags, and the command they run."""

import abc
import argparse
import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

from xlflax.foundation import errors, flag_tables
from xlflax.launch import values
from xlflax.storage import paths

JOINING = ('train',)  # commands whose processes join
# Commands whose processes share work, by --shard=auto.
SHARING = ('cache', 'prepare', 'vocab')


class Job(abc.ABC):
  """The processes of one command, started together; a frozen dataclass.

  A launcher is a subclass with `xlflax.launch.registry.register`.

  Attributes:
    command: what each process runs, such as `('train', '--gin_file=...')`.
    flags: a table of `foundation.flag_tables`.
    flag_kinds: kinds of values that only these flags have.
  """

  command: tuple[str, ...]
  commands: ClassVar[tuple[str, ...]] = JOINING  # that it can start

  flags: ClassVar[str] = ''
  flag_kinds: ClassVar[Mapping[str, Callable[..., Any]]] = {}

  @classmethod
  def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
    """Adds the launcher's flags; each sets the field of its `dest`."""
    flag_tables.add(parser, cls.flags, Pairs=AddPair, **cls.flag_kinds)

  @classmethod
  def from_flags(
    cls, args: argparse.Namespace, command: tuple[str, ...]
  ) -> Self:
    """Returns the job that parsed flags describe.

    Every field of the class that a flag has the name of is taken from it.

    Raises:
      ConfigError: a value has a control character.
    """
    assert dataclasses.is_dataclass(cls)
    flags = {
      field.name: getattr(args, field.name)
      for field in dataclasses.fields(cls)
      if hasattr(args, field.name)
    }
    job = cls(**flags | {'command': command})
    values.check(job)
    return job

  @abc.abstractmethod
  def rendered(self) -> str:
    """Returns what `--dry_run` prints: what would be started or submitted."""

  @abc.abstractmethod
  def start(self) -> int:
    """Starts or submits the job; returns the exit status.

    Raises:
      ConfigError: a program is missing, or the cluster refused the job.
    """


class AddPair(argparse.Action):
  """A flag NAME=VALUE that may be repeated: adds to a dict."""

  def __call__(self, parser, namespace, value, option_string=None):
    name, sign, text = value.partition('=')
    if not name or not sign:
      raise errors.ConfigError(
        'A name has no value',
        got=value,
        expected=self.metavar,
        where=option_string,
      )
    pairs = getattr(namespace, self.dest)
    setattr(namespace, self.dest, pairs | {name: text})


def check(
  command: Sequence[str], commands: Sequence[str] = JOINING
) -> tuple[str, ...]:
  """Returns the command without a leading 'xlflax'.

  Args:
    command: words of a command line.
    commands: that the launcher can start.

  Raises:
    ConfigError: there is no command, it cannot run as several processes, or
      it has a flag that its launcher sets.
  """
  words = tuple(command)
  if words[:1] == ('xlflax',):
    words = words[1:]
  if not words:
    raise errors.ConfigError(
      'There is nothing to launch',
      expected='a command after --',
      fix='xlflax launch local --num_processes=2 -- train --gin_file=...',
    )
  if words[0] not in commands:
    raise errors.ConfigError(
      'This command does not run as several processes',
      got=words[0],
      expected='one of ' + ', '.join(commands),
    )
  if words[0] in SHARING and flag_value(words, '--shard') is None:
    raise errors.ConfigError(
      'Every process would do all of the work',
      got=' '.join(words),
      expected='--shard=auto',
    )
  if words[0] in JOINING:
    _check_flags(words)
  return words


def _check_flags(words: Sequence[str]) -> None:
  """Refuses flags that the launcher sets."""
  for flag in """--coordinator --num_processes --process_id --cluster
    --stopped_status""".split():
    if any(w == flag or w.startswith(f'{flag}=') for w in words):
      raise errors.ConfigError(
        'The launcher sets this flag of the command',
        got=flag,
        fix='leave it out',
      )


def flag_value(command: Sequence[str], flag: str) -> str | None:
  """The value of `--flag=value` or `--flag value`; the last one counts."""
  value = None
  for i, word in enumerate(command):
    if word.startswith(f'{flag}='):
      value = word.partition('=')[2]
    elif word == flag and i + 1 < len(command):
      value = command[i + 1]
  return value


def platform_flag(command: Sequence[str], platform: str | None) -> list[str]:
  """The flag by which a job fails where its accelerators are not seen.

  Empty where the job has none, where the command has the flag itself, and for
  commands that do not join.
  """
  if (
    platform is None
    or command[0] not in JOINING
    or flag_value(command, '--platform') is not None
  ):
    return []
  return [f'--platform={platform}']


def model_dir(command: Sequence[str]) -> pathlib.Path | None:
  """The run's directory, where the command gives it by its flag."""
  value = flag_value(command, '--model_dir')
  return paths.of(value) if value else None


def last_checkpoint(directory: pathlib.Path | None) -> int | None:
  """The newest finished checkpoint's step."""
  if directory is None:
    return None
  steps = [
    int(path.name)
    for path in paths.children(directory / 'checkpoints')
    if path.name.isdigit() and _is_whole(path)
  ]
  return max(steps, default=None)


def _is_whole(checkpoint: pathlib.Path) -> bool:
  """In a bucket, a checkpoint that is being written has its name already."""
  return (
    not paths.is_bucket(checkpoint)
    or (checkpoint / 'commit_success.txt').exists()
  )
