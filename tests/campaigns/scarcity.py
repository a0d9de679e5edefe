"""Full disks and few descriptors: every command ends with one message.

The output of a command lies on a disk (tmpfs) of a random part of what it
needs, or its process may have few files open. It ends with status 74 and one
message that names a file, or it is done; what there is of its output is whole.
With room again, it leaves what one undisturbed call leaves.
"""

import contextlib
import os
import pathlib
import random
import re
import subprocess
from collections.abc import Iterator

from tests.campaigns import counts as counts_lib
from tests.campaigns import killed_commands, kills, stops
from tests.end_to_end import conftest as end_to_end
from xlflax.utils import errors

_ROOMY = 64 << 20
_DESCRIPTORS = (24, 40, 64, 128)
_MESSAGE = re.compile(r'^xlflax [a-z-]+: ', re.MULTILINE)
_DISTURBED = int(errors.ExitStatus.FAILURE)


def full_disks(
  space: end_to_end.Workspace,
  directory: pathlib.Path,
  *,
  cases: int,
  seed: int = 0,
) -> counts_lib.Counts:
  """Each command in turns on disks that are too small; needs root.

  Args:
    space: text, vocabulary and cache.
    directory: to work in.
    cases: how many, at least.
    seed: of the disks' sizes.
  """
  rng, found = random.Random(seed), counts_lib.Counts()
  with _prepared(space, directory / 'disks') as commands:
    needs = [_size(command.place) for command in commands]
    while found.cases < cases:
      for command, size in zip(commands, needs, strict=True):
        _on_a_full_disk(command, round(rng.uniform(0.1, 0.9) * size), found)
  return found


def few_descriptors(
  space: end_to_end.Workspace, directory: pathlib.Path
) -> counts_lib.Counts:
  """Each command with few files that may be open.

  Args:
    space: text, vocabulary and cache.
    directory: to work in.
  """
  found = counts_lib.Counts()
  with _prepared(space, directory / 'descriptors') as commands:
    for most in _DESCRIPTORS:
      for command in commands:
        command.begin()
        status, _ = command.call(most=str(most))
        _judge(command, status, found, f'{most} descriptors')
  return found


@contextlib.contextmanager
def _prepared(
  space: end_to_end.Workspace, work: pathlib.Path
) -> Iterator[list[stops.Command]]:
  """The commands, called once without a disturbance."""
  work.mkdir()
  server = kills.Server(space.environment(), stops.CALL)
  try:
    yield [
      stops.Command(server, work, command)
      for command in killed_commands.prepare(stops.Plain(server), space, work)
    ]
  finally:
    server.close()


def _on_a_full_disk(
  command: stops.Command, size: int, found: counts_lib.Counts
) -> None:
  """One call on a disk of some bytes."""
  place = str(command.place)
  command.begin()
  with _disk(place, _ROOMY):
    command.begin()
    used = _size(command.place)
    _remount(place, used + size)
    status, _ = command.call()
    _remount(place, _ROOMY)
    _judge(command, status, found, f'{size} bytes')


def _judge(
  command: stops.Command, status: int, found: counts_lib.Counts, what: str
) -> None:
  """Counts a call, and what the next one makes of what it left."""
  said, problem = command.said(), ''
  if status not in (0, _DISTURBED):
    problem = f'status {status}: {said}'
  elif 'Traceback' in said or 'damaged' in said:
    problem = said
  elif status and len(_MESSAGE.findall(said)) != 1:
    problem = f'{len(_MESSAGE.findall(said))} messages: {said}'
  elif status and 'Where: ' not in said and '(' not in said:
    problem = f'no file is named: {said}'
  problem = problem or command.ends_whole()
  outcome = 'reported, then completed' if status else 'completed'
  found.add(outcome, problem and f'{command.command.name}, {what}: {problem}')


def may_mount() -> bool:
  """Returns whether this process may mount a disk."""
  return os.geteuid() == 0


@contextlib.contextmanager
def _disk(place: str, size: int) -> Iterator[None]:
  """Context with a disk of some bytes at a place."""
  _call('mount', '-t', 'tmpfs', '-o', f'size={size}', 'tmpfs', place)
  try:
    yield
  finally:
    _call('umount', '--lazy', place)


def _remount(place: str, size: int) -> None:
  _call('mount', '-o', f'remount,size={size}', place)


def _call(*words: str) -> None:
  subprocess.run(words, check=True, capture_output=True)


def _size(directory: pathlib.Path) -> int:
  """Bytes of a directory's files, in whole pages as a disk counts them."""
  sizes = [p.stat().st_size for p in directory.rglob('*') if p.is_file()]
  return sum(-(-size // 4096) * 4096 for size in sizes)
