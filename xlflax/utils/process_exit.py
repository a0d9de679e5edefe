"""Process shutdown: waits for other processes and abandons stuck threads."""

import atexit
import os
import sys
import threading
from collections.abc import Callable

_waiters: list[Callable[[], None]] = []
_abandoned_threads: list[threading.Thread] = []
_is_command = False


def is_command() -> bool:
  """Returns whether this process runs a single command and then exits."""
  return _is_command


def start_command() -> None:
  """Marks the start of this process's only command; see `end_command`."""
  global _is_command
  _is_command = True


def abandon_thread(thread: threading.Thread) -> None:
  """Registers a thread that the process does not wait for when exiting.

  The thread executes native code.
  """
  _abandoned_threads.append(thread)


def wait_at_exit(part: Callable[[], None]) -> None:
  """Registers a function that waits for the other processes of the job.

  The function is called before the process exits.

  Args:
    part: Function that waits until all processes of the job have finished.
      Signals must not interrupt it.
  """
  _waiters.append(part)
  atexit.register(_wait_for_processes)


def is_awaited() -> bool:
  """Returns whether other processes are waiting for this process to end."""
  return bool(_waiters)


def _wait_for_processes() -> None:
  """Calls the functions that wait for other processes."""
  while _waiters:
    _waiters[-1]()
    _waiters.pop()


def end_command(status: int) -> int:
  """Returns the exit status, or ends the process if a thread is still running.

  Only threads that were passed to `abandon_thread` are considered. If native
  code in such a thread returned while Python shuts down, the process would be
  aborted.

  Args:
    status: The exit status of the command.
  """
  if any(thread.is_alive() for thread in _abandoned_threads):
    _wait_for_processes()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
  return status
