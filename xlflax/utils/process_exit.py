"""The end of a command's process: what holds it up, and what does not."""

import atexit
import os
import sys
import threading
from collections.abc import Callable

_partings: list[Callable[[], None]] = []
_left: list[threading.Thread] = []
_is_command = False


def is_command() -> bool:
  """Returns whether the process runs a command and nothing after it."""
  return _is_command


def begin_command() -> None:
  """Says that `end_command` will end the process."""
  global _is_command
  _is_command = True


def leave_to_itself(thread: threading.Thread) -> None:
  """Does not wait for a thread's foreign code at the end of the command."""
  _left.append(thread)


def part_by(part: Callable[[], None]) -> None:
  """Has the process, at its end, wait for the other processes of its job.

  Args:
    part: returns when all of them have come to their end; signals do not cut
      it short.
  """
  _partings.append(part)
  atexit.register(_part)


def is_awaited() -> bool:
  """Returns whether other processes need this one until their own end."""
  return bool(_partings)


def _part() -> None:
  while _partings:
    _partings[-1]()
    _partings.pop()


def end_command(status: int) -> int:
  """Returns the status, or ends the process with it where threads are left.

  Foreign code that returns while Python shuts down would abort the process.
  """
  if any(thread.is_alive() for thread in _left):
    _part()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
  return status
