"""The command that every process of a job runs."""

import pathlib
from collections.abc import Sequence

from xlflax import errors, paths

JOINING = ('train',)  # commands whose processes join
STOPPED = 75  # exit status of a run that a signal stopped: start it again


def check(command: Sequence[str]) -> tuple[str, ...]:
  """The command without a leading 'xlflax'.

  Raises:
    ConfigError: there is none, it can't run as several processes, or it says
      itself what its launcher decides.
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
  if words[0] not in JOINING:
    raise errors.ConfigError(
      'This command does not run as several processes',
      got=words[0],
      expected='one of ' + ', '.join(JOINING),
    )
  for flag in (
    '--coordinator',
    '--num_processes',
    '--process_id',
    '--cluster',
    '--stopped_status',
  ):
    if any(w == flag or w.startswith(f'{flag}=') for w in words):
      raise errors.ConfigError(
        'A flag of the command is the business of its launcher',
        got=flag,
        fix='leave it out',
      )
  return words


def flag_value(command: Sequence[str], flag: str) -> str | None:
  """The value of `--flag=value` or `--flag value`; the last one counts."""
  value = None
  for i, word in enumerate(command):
    if word.startswith(f'{flag}='):
      value = word.partition('=')[2]
    elif word == flag and i + 1 < len(command):
      value = command[i + 1]
  return value


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
