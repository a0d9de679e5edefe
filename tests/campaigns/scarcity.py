"""Full disks and few file descriptors: each command exits with one message.

Either the output of a command is on a disk (tmpfs) with a random fraction of
the required space, or its process may open only a few files. The command exits
with status 74 and one message that names a file, or it finishes. Its output is
valid in both cases. Once there is enough space, the next call produces the same
output as one uninterrupted call.
"""

import contextlib
import os
import pathlib
import random
import re
import subprocess
from collections.abc import Iterator

from tests.campaigns import counts, killed_commands, kills, stops
from tests.end_to_end import conftest as end_to_end
from xlflax.utils import errors

_SUFFICIENT_SIZE = 64 << 20
_DESCRIPTORS = (24, 40, 64, 128)
_MESSAGE = re.compile(r'^xlflax [a-z-]+: ', re.MULTILINE)
_FAILURE = int(errors.ExitStatus.FAILURE)


def full_disks(
  space: end_to_end.Workspace,
  directory: pathlib.Path,
  *,
  cases: int,
  seed: int = 0,
) -> counts.Counts:
  """Runs each command in turn on disks that are too small; requires root.

  Args:
    space: Workspace with text, vocabulary and cache.
    directory: Working directory.
    cases: Minimum total number of cases. Every command is run at least once.
    seed: Random seed for the sizes of the disks.
  """
  rng, totals = random.Random(seed), counts.Counts()
  with _prepared_commands(space, directory / 'disks') as commands:
    required_sizes = [_size(command.directory) for command in commands]
    while totals.cases < cases:
      for command, size in zip(commands, required_sizes, strict=True):
        _run_on_full_disk(command, round(rng.uniform(0.1, 0.9) * size), totals)
  return totals


def few_descriptors(
  space: end_to_end.Workspace, directory: pathlib.Path
) -> counts.Counts:
  """Runs each command with a low limit on open files.

  Args:
    space: Workspace with text, vocabulary and cache.
    directory: Working directory.
  """
  totals = counts.Counts()
  with _prepared_commands(space, directory / 'descriptors') as commands:
    for max_files in _DESCRIPTORS:
      for command in commands:
        command.reset()
        status, _ = command.call(max_files=str(max_files))
        _count_call(command, status, totals, f'{max_files} descriptors')
  return totals


@contextlib.contextmanager
def _prepared_commands(
  space: end_to_end.Workspace, work: pathlib.Path
) -> Iterator[list[stops.Command]]:
  """Yields the commands, each called once without a disturbance."""
  work.mkdir()
  server = kills.Server(space.environment(), stops.CALL)
  try:
    yield [
      stops.Command(server, work, command)
      for command in killed_commands.prepare_commands(
        stops.ServerWithoutSignals(server), space, work
      )
    ]
  finally:
    server.close()


def _run_on_full_disk(
  command: stops.Command, size: int, totals: counts.Counts
) -> None:
  """Calls a command on a disk with `size` free bytes."""
  directory = str(command.directory)
  command.reset()
  with _disk(directory, _SUFFICIENT_SIZE):
    command.reset()
    used_size = _size(command.directory)
    _remount(directory, used_size + size)
    status, _ = command.call()
    _remount(directory, _SUFFICIENT_SIZE)
    _count_call(command, status, totals, f'{size} bytes')


def _count_call(
  command: stops.Command, status: int, totals: counts.Counts, condition: str
) -> None:
  """Counts a call and checks that the next call completes its output."""
  output, problem = command.output(), ''
  if status not in (0, _FAILURE):
    problem = f'status {status}: {output}'
  elif 'Traceback' in output or 'damaged' in output:
    problem = output
  elif status and len(_MESSAGE.findall(output)) != 1:
    problem = f'{len(_MESSAGE.findall(output))} messages: {output}'
  elif status and 'Where: ' not in output and '(' not in output:
    problem = f'no file is named: {output}'
  problem = problem or command.check_completion()
  outcome = 'reported, then completed' if status else 'completed'
  totals.add(
    outcome, problem and f'{command.command.name}, {condition}: {problem}'
  )


def may_mount() -> bool:
  """Returns whether this process may mount a disk."""
  return os.geteuid() == 0


@contextlib.contextmanager
def _disk(path: str, size: int) -> Iterator[None]:
  """Mounts a disk of a given size at a path in this context."""
  _call('mount', '-t', 'tmpfs', '-o', f'size={size}', 'tmpfs', path)
  try:
    yield
  finally:
    _call('umount', '--lazy', path)


def _remount(path: str, size: int) -> None:
  _call('mount', '-o', f'remount,size={size}', path)


def _call(*arguments: str) -> None:
  subprocess.run(arguments, check=True, capture_output=True)


def _size(directory: pathlib.Path) -> int:
  """Returns the bytes of a directory's files, rounded up to disk pages."""
  sizes = [p.stat().st_size for p in directory.rglob('*') if p.is_file()]
  return sum(-(-size // 4096) * 4096 for size in sizes)
