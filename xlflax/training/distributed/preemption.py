"""Handling of preemption signals, after which a run saves and exits.

After a signal, the run first finishes its current step. The signals are
SIGTERM, SIGHUP (a terminal or connection was closed), SIGINT, and SIGUSR1,
which Slurm sends by `--signal=USR1@...` before a time limit or a preemption. In
a job of several processes, a signal to any process stops all of them after the
same step.

The preemption service of JAX (`multihost_utils.reached_preemption_sync_point`,
also used by Orbax's `reached_preemption`) is not used for two reasons. It
handles only SIGTERM and replaces its Python handler, so that the request would
reach neither the log nor the watchdog. It also compares step numbers, so that a
request before the first step of a resumed run is lost.
"""

import contextlib
import json
import logging
import signal
import threading
from collections.abc import Callable
from typing import Any

import jax

from xlflax.training.distributed import distributed_job, failures
from xlflax.utils import signals

# The watchdog ends a hanging process before this timeout.
_AGREEMENT_SECONDS = 3600
_consensus: 'StopConsensus | None' = None


class StopConsensus:
  """Protocol in which all processes agree on the step after which to stop.

  Each process counts its checks. After a request, the processes exchange these
  counts while their training loops wait, and stop at the first check that no
  process has made yet.

  Args:
    monitor: Failure monitor, which delivers the stop requests.

  Attributes:
    on_request: Function that is called in a thread when any process receives a
      stop request. Its argument describes the request.
  """

  def __init__(self, monitor: failures.FailureMonitor):
    self._monitor = monitor
    self.on_request: Callable[[str], None] = lambda reason: None
    self._lock = threading.Lock()
    self._request_lock = threading.Lock()
    self._num_checks = 0
    self._stop_at: int | None = None
    self._is_requested = False

  def listen(self, on_request: Callable[[str], None]) -> None:
    """Starts handling stop requests, including those that arrived earlier.

    Args:
      on_request: New value of the attribute `on_request`.
    """
    self.on_request = on_request
    self._monitor.handle_stop_requests(self._receive)

  def request(self, reason: str) -> None:
    """Requests that all processes stop, and returns immediately."""
    threading.Thread(
      target=self._monitor.request_stop, args=(reason,), daemon=True
    ).start()

  def should_stop(self) -> bool:
    """Returns whether to stop training now. All processes get the same result.

    All processes must call this method equally often. It waits while the
    processes agree on the step.
    """
    with self._lock:
      self._num_checks += 1
      return self._stop_at is not None and self._num_checks >= self._stop_at

  def _receive(self, reason: str) -> None:
    """Starts the agreement at the first request."""
    with self._request_lock:
      if self._is_requested:
        return
      self._is_requested = True
    # The monitor's thread must stay free to receive failures.
    threading.Thread(target=self._agree, args=(reason,), daemon=True).start()

  def _agree(self, reason: str) -> None:
    """Agrees with the other processes on when to stop."""
    client, number = self._monitor.client, self._monitor.process_id
    self.on_request(reason)
    # If an exchange fails, JAX ends the job.
    with self._lock, contextlib.suppress(Exception):
      client.key_value_set(
        f'xlflax/checks/{number}', json.dumps(self._num_checks)
      )
      client.wait_at_barrier('xlflax/stop', 1000 * _AGREEMENT_SECONDS)
      rows = client.key_value_dir_get('xlflax/checks')
      self._stop_at = max(json.loads(text) for _, text in rows) + 1


def _job_consensus() -> StopConsensus | None:
  """Returns the consensus of the job, or None for a single process."""
  global _consensus
  monitor = distributed_job.failure_monitor()
  if _consensus is None and monitor is not None:
    _consensus = StopConsensus(monitor)
  return _consensus


class StopRequest:
  """Context manager that records requests to stop the run.

  A request before the context is entered, or too late for the last check, is
  not lost. It is kept in `signals.pending_signal` for the next run in the
  process or for the caller.

  A repeated SIGTERM, SIGHUP or SIGUSR1 has no effect, because Slurm sends two
  in a row. A second SIGINT interrupts immediately.

  Args:
    on_stop_request: Function that is called in another thread as soon as the
      run is requested to stop, even while a call of JAX blocks the main thread.
  """

  def __init__(self, on_stop_request: Callable[[], None] = lambda: None):
    self._on_stop_request = on_stop_request
    self._number: int | None = signals.pending_signal()
    self._pending = [None]  # Emptied by the first request, in any thread.
    self._is_followed = False
    self._is_checked = False  # Whether a step may be running.
    self._is_logged = False
    self._previous: dict[int, Any] = {}
    self._consensus: StopConsensus | None = None
    self._context = contextlib.ExitStack()

  def __enter__(self):
    self._consensus = _job_consensus()
    if self._consensus is not None:
      self._consensus.listen(self._receive_from_others)
    if threading.current_thread() is threading.main_thread():
      self._context.enter_context(signals.listen_for_signals(self._receive))
      for number in filter(signals.is_handled, signals.SIGNALS):
        self._previous[number] = signal.signal(number, self._handle)
    if self._number is not None:
      self._receive(self._number)
    return self

  def __exit__(self, kind, *exc):
    for number, handler in self._previous.items():
      # A handler that was not installed from Python is None and cannot be
      # restored.
      signal.signal(number, signal.SIG_DFL if handler is None else handler)
    self._context.close()
    if self._consensus is not None:
      self._consensus.on_request = lambda reason: None
    if kind is None:
      signals.pass_on_signal(self._number, followed=self._is_followed)

  def _receive(self, number: int) -> None:
    """Records a signal, in any thread."""
    if number not in signals.SIGNALS:
      return
    try:
      self._pending.pop()
    except IndexError:
      return
    self._number = number
    if self._consensus is not None:
      name = signal.Signals(number).name
      self._consensus.request(f'{name} in process {jax.process_index()}')
    self._on_stop_request()

  def _receive_from_others(self, reason: str) -> None:
    if self._number is None:
      logging.warning('%s: stopping all processes after the same step.', reason)
    self._on_stop_request()

  def _handle(self, number, frame):
    del frame
    name = signal.Signals(number).name
    if self._is_logged and number == signal.SIGINT:
      raise signals.Stopped(number)
    if self._is_logged:
      logging.warning('%s: already saving a checkpoint.', name)
      return
    self._is_logged = True
    self._receive(number)
    if self._is_checked or self._consensus is not None:
      logging.warning('%s: saving a checkpoint at the end of this step.', name)
    else:
      logging.warning('%s: stopping before the first step.', name)

  def should_stop(self) -> bool:
    """Returns whether to stop training now. All processes get the same result.

    All processes must call this method equally often: before the first step and
    after each step.
    """
    self._is_checked = True
    if self._consensus is not None:
      stop = self._consensus.should_stop()
    else:
      stop = self._number is not None
    self._is_followed = self._is_followed or stop
    return stop
