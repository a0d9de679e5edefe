"""Processes of this machine that work for a command."""

import concurrent.futures
import concurrent.futures.process
import multiprocessing
import signal
from collections.abc import Callable
from typing import Any, TypeVar

from xlflax.utils import errors

T = TypeVar('T')


def start_process_pool(
  num_processes: int, initializer: Callable[..., None], *arguments: Any
) -> concurrent.futures.ProcessPoolExecutor:
  """Starts processes with `initializer(*arguments)`.

  A terminal sends Ctrl-C, and its end, to them too: they leave it to the
  command, which tells them to stop.
  """
  return concurrent.futures.ProcessPoolExecutor(
    num_processes,
    multiprocessing.get_context('spawn'),
    _begin,
    (initializer, *arguments),
  )


def get_result(future: 'concurrent.futures.Future[T]') -> T:
  """Returns what a process found.

  Raises:
    XlflaxError: the process is gone, such as for want of memory.
    Exception: what it raised.
  """
  try:
    return future.result()
  except concurrent.futures.process.BrokenProcessPool as error:
    raise errors.XlflaxError(
      'A process that worked for this one is gone',
      got=str(error),
      fix='see whether the machine ran out of memory, or give a smaller '
      '--num_workers; the same command goes on '
      '(docs/trouble.md#out-of-memory)',
      status=errors.ExitStatus.FAILURE,
    ) from error


def _begin(initializer: Callable[..., None], *arguments: Any) -> None:
  for number in (signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
  initializer(*arguments)
