"""Pools of worker processes for parallel CPU work."""

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
  """Starts a pool of worker processes that ignore terminal signals.

  A terminal sends Ctrl-C and hangups to the workers, too. The workers ignore
  these signals, because the command stops them.

  Args:
    num_processes: The number of worker processes.
    initializer: Function that each worker process calls first.
    *arguments: The arguments of `initializer`.
  """
  return concurrent.futures.ProcessPoolExecutor(
    num_processes,
    multiprocessing.get_context('spawn'),
    _initialize_worker,
    (initializer, *arguments),
  )


def get_result(future: 'concurrent.futures.Future[T]') -> T:
  """Waits for a worker process and returns its result.

  Args:
    future: The future that holds the result.

  Raises:
    XlflaxError: If the process ended abruptly, for example because the machine
      is out of memory.
    Exception: If the worker raised an exception, which is raised again.
  """
  try:
    return future.result()
  except concurrent.futures.process.BrokenProcessPool as error:
    raise errors.XlflaxError(
      'A worker process ended abruptly',
      got=str(error),
      fix='Check whether the machine ran out of memory, and pass a smaller '
      '--num_workers. Run the same command again to resume '
      '(docs/trouble.md#out-of-memory).',
      status=errors.ExitStatus.FAILURE,
    ) from error


def _initialize_worker(
  initializer: Callable[..., None], *arguments: Any
) -> None:
  """Ignores the signals of the terminal and calls the initializer."""
  for number in (signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
  initializer(*arguments)
