"""Failure propagation, which ends all processes of a job if one fails.

`jax.distributed` detects killed and frozen processes by missing heartbeats and
aborts the others. This module adds features that it lacks:

- Exit code 74 instead of SIGABRT (134), the Python stacks of all threads, the
  host names, and the current activity of the process (`abort_handler`).
- The message and the exit code of a process that fails with an exception. JAX
  would end the other processes with "another task died" (`FailureMonitor`).
- The numbers of the processes that do not respond, a few seconds after a
  connection is lost instead of after the heartbeat timeout (roll call).

Other mechanisms of JAX are not suitable. `missed_heartbeat_callback` cannot be
a Python function, because its argument does not have a Python type in jaxlib
0.10 (it terminates with std::bad_cast). `jax_enable_recoverability` reports
lost processes to Python, but is experimental, and the loss of process 0 still
aborts the others.
"""

import contextlib
import ctypes
import faulthandler
import itertools
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from xlflax.utils import errors

_EVENT_KEY = 'xlflax/event/'
_ROLL_CALL = 'xlflax/roll_call'
_FOREVER_MS = 10**9
_LOCAL_ERROR_SECONDS = 3.0  # Time in which a process may raise the same error.
_ROLL_CALL_SECONDS = 5.0
_STACKS_SECONDS = 20.0  # Writing the stacks takes time on a busy machine.
_SERVICE_SECONDS = 1.0  # Process 0 keeps JAX's service for the last replies.
_JOIN_SECONDS = 10.0
_MAX_NUMBERS = 10
# Errors of Gloo, NCCL and JAX's coordination service after a process is lost.
_LOST_PROCESS = re.compile(
  r'(closed|reset) by peer|gloo .*(timed? ?out|connect|read error)|'
  r'nccl.*(remote process|network error|system error|abort)|'
  r'(?<!optimization[_-])(?<!opt-)barrier|coordination service|heartbeat|'
  r'task .*(unhealthy|disconnect|died)',
  re.IGNORECASE | re.DOTALL,
)
_STATUS = re.compile(r'[A-Z_]+: ')
# The end of the error of a barrier of JAX that timed out.
_TIMED_OUT_TASKS = re.compile(r'timed out task names:\s*((?:\d+\s)+)')


def is_lost_process(error: BaseException) -> bool:
  """Returns whether an error reports that another process was lost."""
  return bool(_LOST_PROCESS.search(errors.error_reason(error)))


def is_raised_by_jax(error: BaseException) -> bool:
  """Returns whether an error may have been raised by JAX.

  Some errors of collectives are a ValueError with the text of a C++ status.
  """
  is_status = isinstance(error, ValueError) and _STATUS.match(str(error))
  return isinstance(error, RuntimeError) or bool(is_status)


def timed_out_processes(text: str) -> list[int]:
  """Returns the processes that did not reach a barrier.

  Args:
    text: Error message that JAX raises when a barrier times out.
  """
  match = _TIMED_OUT_TASKS.search(text)
  return sorted(map(int, match[1].split())) if match else []


def describe_processes(
  numbers: Sequence[int], hosts: Sequence[str] = ()
) -> str:
  """Formats process numbers as '2 on host-b, 5 on host-c and 12 more'.

  Args:
    numbers: Numbers of the processes to list in the text.
    hosts: Host name of each process in the job. May be empty.
  """
  names = [
    f'{number} on {hosts[number]}' if number < len(hosts) else str(number)
    for number in numbers[:_MAX_NUMBERS]
  ]
  num_omitted = len(numbers) - _MAX_NUMBERS
  return ', '.join(names) + (
    f' and {num_omitted} more' if num_omitted > 0 else ''
  )


def describe_hosts(hosts: Sequence[str]) -> str:
  """Formats host names as '0-3 on host-a, 4-7 on host-b'.

  Args:
    hosts: Host name of each process in the job.
  """
  texts, first = [], 0
  for host, group in itertools.groupby(hosts):
    last = first + len(list(group)) - 1
    texts.append(f'{first if first == last else f"{first}-{last}"} on {host}')
    first = last + 1
  return ', '.join(texts)


@contextlib.contextmanager
def abort_handler(end: Callable[[], object]) -> Iterator[None]:
  """Context in which a SIGABRT calls a function before the process aborts.

  JAX aborts from a C++ thread, where `signal.signal` has no effect: Python
  would run its handler in the main thread after the process has ended.

  Args:
    end: Function that ends the process. It is called in the thread that raised
      SIGABRT.
  """
  c_library = ctypes.CDLL(None)
  c_library.signal.restype = ctypes.c_void_p
  c_library.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
  handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: end())
  pointer = ctypes.cast(handler, ctypes.c_void_p)
  previous = c_library.signal(signal.SIGABRT, pointer)
  try:
    yield
  finally:
    c_library.signal(signal.SIGABRT, previous)


class FailureMonitor:
  """Monitor that exchanges failure reports and stop requests between processes.

  Events (failures and stop requests) are values in the key-value store of JAX's
  coordination service, numbered in order of arrival. A thread in each process
  waits for the next event.

  Args:
    process_id: Number of this process in the job.
    hosts: Host name of each process in the job.
    client: Client of the coordination service that JAX runs for the job.
    exit_process: Function that ends the process with an exit code.

  Attributes:
    process_id: Number of this process in the job.
    hosts: Host name of each process in the job.
    client: Client of the coordination service that JAX runs for the job.
    doing: Function that returns the current activity of this process.
    last_words: Function that returns a sentence to print when the failure of
      another process ends this one, for example the checkpoint from which the
      run can be resumed.
  """

  def __init__(
    self,
    process_id: int,
    hosts: Sequence[str],
    client: Any,
    exit_process: Callable[[int], object] = os._exit,
  ):
    self.process_id, self.hosts, self.client = process_id, hosts, client
    self.doing: Callable[[], str] = lambda: 'starting'
    self.last_words: Callable[[], str] = lambda: ''
    self._stop_lock = threading.Lock()
    self._on_stop_request: Callable[[str], None] | None = None
    self._unhandled_stop_requests: list[str] = []
    self._exit = exit_process
    self._exit_code: int | None = None
    # The lock is never released, so that only one thread ends the process.
    self._ending = threading.Lock()
    self._num_events = 0
    self._context = contextlib.ExitStack()
    self._thread = threading.Thread(
      target=self._listen, name='xlflax failures', daemon=True
    )

  def start(self) -> None:
    """Starts listening for failures of other processes."""
    self._context.enter_context(abort_handler(self._end_after_abort))
    self._thread.start()

  def close(self) -> None:
    """Stops listening for failures, after JAX's client has been shut down."""
    self._thread.join(_JOIN_SECONDS)
    self._context.close()

  @property
  def name(self) -> str:
    """Name of this process in messages."""
    host = self.hosts[self.process_id]
    return f'process {self.process_id} of {len(self.hosts)} on {host}'

  def request_stop(self, reason: str) -> None:
    """Requests that all processes, including this one, stop."""
    self._publish({'stop': reason})

  def handle_stop_requests(self, handler: Callable[[str], None]) -> None:
    """Sets the function to call with the description of each stop request.

    It is also called with the requests that have already arrived, for example
    from a process that started training earlier.
    """
    with self._stop_lock:
      self._on_stop_request = handler
      reasons = self._unhandled_stop_requests
      self._unhandled_stop_requests = []
    for reason in reasons:
      handler(reason)

  def fail(self, message: str, exit_code: int, *, stacks: bool = False) -> None:
    """Reports this process's failure. The process must exit afterwards.

    Args:
      message: Message that describes the reason for the failure.
      exit_code: Exit code for this process and all other processes of the job.
      stacks: Whether the other processes write the stack traces of their
        threads.
    """
    self._ending.acquire()
    self._exit_code = exit_code
    failure = {
      'process': self.process_id,
      'message': f'{self.name} failed: {message}',
      'exit_code': int(exit_code),
      'stacks': stacks,
      'wait': 0.0 if stacks else _LOCAL_ERROR_SECONDS,
    }
    self._publish({'failure': failure})
    self._call_roll(failure)

  def end_after_lost_connection(self, error: BaseException) -> NoReturn:
    """Ends all processes of a job after the connection to one of them is lost.

    `is_lost_process` recognizes the errors that report this. If the lost
    process has reported its own failure, this process exits as required by that
    failure.
    """
    failure = {
      'process': self.process_id,
      'message': f'{self.name} lost the connection to another process: '
      f'{_first_line(error)}',
      'exit_code': int(errors.ExitStatus.FAILURE),
      'stacks': False,
      'wait': 0.0,
    }
    self._publish({'failure': failure})
    # The listener thread follows this or an earlier event and ends the process.
    time.sleep(_ROLL_CALL_SECONDS + _STACKS_SECONDS)
    write_to_stderr(f'xlflax: {failure["message"]}\n')
    os._exit(errors.ExitStatus.FAILURE)

  def _listen(self) -> None:
    """Waits for events until the job ends."""
    while True:
      key = f'{_EVENT_KEY}{self._num_events}'
      try:
        text = self.client.blocking_key_value_get(key, _FOREVER_MS)
      except Exception:  # The job has ended, or JAX aborts this process.
        return
      self._num_events += 1
      event = json.loads(text)
      if 'stop' in event:
        self._receive_stop_request(event['stop'])
      else:
        self._follow(event['failure'])

  def _receive_stop_request(self, reason: str) -> None:
    """Handles a stop request, or keeps it until there is a handler."""
    with self._stop_lock:
      handler = self._on_stop_request
      if handler is None:
        self._unhandled_stop_requests.append(reason)
        return
    handler(reason)

  def _publish(self, event: Mapping[str, Any]) -> None:
    """Appends an event. Does nothing if JAX's service is no longer available."""
    for number in itertools.count(self._num_events):
      try:
        self.client.key_value_set(f'{_EVENT_KEY}{number}', json.dumps(event))
        return
      except Exception as error:
        if 'ALREADY_EXISTS' not in str(error):
          return

  def _follow(self, failure: Mapping[str, Any]) -> None:
    """Ends this process because of a failure of another process."""
    time.sleep(failure['wait'])
    self._ending.acquire()  # Blocks while the main thread ends the process.
    self._exit_code = failure['exit_code']
    if failure['stacks']:
      _write_stacks()
    last_words = _call_safely(self.last_words)
    write_to_stderr(
      f'xlflax: {failure["message"]}\n'
      f'xlflax: {self.name} exits because of this failure. {last_words}'.rstrip()
      + '\n'
    )
    missing = self._call_roll(failure)
    if missing:
      write_to_stderr(
        'xlflax: no response from process '
        f'{describe_processes(missing, self.hosts)}.\n'
      )
    if self.process_id == 0:
      time.sleep(_SERVICE_SECONDS)
    self._exit(failure['exit_code'])

  def _call_roll(self, failure: Mapping[str, Any]) -> list[int]:
    """Waits until all processes have received the report of a failure.

    Returns:
      The numbers of processes that did not respond.
    """
    seconds = _STACKS_SECONDS if failure['stacks'] else _ROLL_CALL_SECONDS
    try:
      self.client.wait_at_barrier(_ROLL_CALL, int(1000 * seconds))
    except Exception as error:
      return timed_out_processes(f'{error}\n')
    return []

  def _end_after_abort(self) -> NoReturn:
    """Ends this process before JAX aborts it."""
    if self._exit_code is None:
      _write_stacks()
      error = errors.TrainingError(
        'A process of the job was lost, or this process failed inside JAX. At '
        f'that time, {self.name} was {_call_safely(self.doing)}. The message '
        'of JAX above may contain the task number of the lost process. If it '
        'does not, process 0, which runs the coordination service, was lost',
        where=describe_hosts(self.hosts),
        fix='Check the machine of that process. Start the run again to resume '
        'from its last checkpoint (docs/trouble.md#interrupted-runs).',
        status=errors.ExitStatus.FAILURE,
      )
      write_to_stderr(f'xlflax: {error}\n')
      self._exit_code = errors.ExitStatus.FAILURE
    os._exit(self._exit_code)


def write_to_stderr(text: str) -> None:
  """Writes to standard error's file descriptor, bypassing Python's stream."""
  with contextlib.suppress(OSError):
    os.write(2, text.encode(errors='replace'))


def _write_stacks() -> None:
  with contextlib.suppress(Exception):
    faulthandler.dump_traceback(2, all_threads=True)


def _first_line(error: BaseException) -> str:
  return f'{type(error).__name__}: {(str(error).splitlines() or [""])[0]}'


def _call_safely(describe: Callable[[], str]) -> str:
  """Returns the result of a function, or '' if it raises an exception.

  The cause of the failure, such as a lost disk, may also affect the function.
  """
  try:
    return describe()
  except Exception:
    return ''
