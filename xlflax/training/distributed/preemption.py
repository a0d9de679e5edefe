"""Preemption: after a signal, a run finishes its step, saves and exits.

The signals are SIGTERM, SIGHUP (a terminal or connection is gone), SIGINT, and
SIGUSR1, which Slurm sends by `--signal=USR1@...` before a time limit or a
preemption. In a job of several processes, a signal to any of them stops all of
them after the same step.

JAX has a preemption service (`multihost_utils.reached_preemption_sync_point`,
also behind Orbax's `reached_preemption`). It is not used, because it handles
SIGTERM only, and replaces Python's handler of it: neither the log nor the
watchdog would learn of the request. It also compares step numbers, so that a
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

_AGREEMENT_SECONDS = 3600  # The watchdog ends a process that hangs sooner.
_consensus: 'StopConsensus | None' = None


class StopConsensus:
  """The step after which all processes of the job stop.

  Each process counts how often it has checked whether to stop. After a request
  the processes exchange these counts, while their training loops wait, and
  stop at the first check that none of them has made.

  Args:
    monitor: Failure monitor, which delivers the requests.

  Attributes:
    on_request: Called in a thread when any process was asked to stop, with
      the description of the request.
  """

  def __init__(self, monitor: failures.FailureMonitor):
    self._monitor = monitor
    self.on_request: Callable[[str], None] = lambda reason: None
    self._lock = threading.Lock()
    self._num_checks = 0
    self._stop_at: int | None = None
    self._is_requested = False
    monitor.on_stop_request = self._receive

  def request(self, reason: str) -> None:
    """Asks all processes to stop, and returns at once."""
    threading.Thread(
      target=self._monitor.request_stop, args=(reason,), daemon=True
    ).start()

  def should_stop(self) -> bool:
    """Returns whether to stop now, the same on all processes.

    All processes must call it equally often. It waits while they agree.
    """
    with self._lock:
      self._num_checks += 1
      return self._stop_at is not None and self._num_checks >= self._stop_at

  def _receive(self, reason: str) -> None:
    if self._is_requested:
      return
    self._is_requested = True
    # The monitor's thread must stay free to receive failures.
    threading.Thread(target=self._agree, args=(reason,), daemon=True).start()

  def _agree(self, reason: str) -> None:
    client, number = self._monitor.client, self._monitor.process_id
    self.on_request(reason)
    with self._lock, contextlib.suppress(Exception):  # JAX ends the job.
      client.key_value_set(
        f'xlflax/checks/{number}', json.dumps(self._num_checks)
      )
      client.wait_at_barrier('xlflax/stop', 1000 * _AGREEMENT_SECONDS)
      rows = client.key_value_dir_get('xlflax/checks')
      self._stop_at = max(json.loads(text) for _, text in rows) + 1


def _job_consensus() -> StopConsensus | None:
  """Returns the consensus of the job; None for a single process."""
  global _consensus
  monitor = distributed_job.failure_monitor()
  if _consensus is None and monitor is not None:
    _consensus = StopConsensus(monitor)
  return _consensus


class StopRequest:
  """Context manager that notes requests to stop the run.

  A request that comes before it is opened, or too late for the last check, is
  not lost: it is kept in `signals.pending_signal`, for the next run of the process or
  for the code that started this one.

  A further SIGTERM, SIGHUP or SIGUSR1 changes nothing, as Slurm sends two in a
  row. A second SIGINT interrupts at once.

  Args:
    on_asked: Called when the run is asked to stop, in another thread and at
      once. Python's own handler has to wait until a call of JAX that blocks
      the main thread returns.
  """

  def __init__(self, on_asked: Callable[[], None] = lambda: None):
    self._on_asked = on_asked
    self._number: int | None = signals.pending_signal()
    self._pending = [None]  # Emptied by the first request, in some thread.
    self._is_followed = False
    self._is_logged = False
    self._previous: dict[int, Any] = {}
    self._consensus: StopConsensus | None = None
    self._context = contextlib.ExitStack()

  def __enter__(self):
    self._consensus = _job_consensus()
    if self._consensus is not None:
      self._consensus.on_request = self._hear_of_others
    if threading.current_thread() is threading.main_thread():
      self._context.enter_context(signals.listen_for_signals(self._hear))
      for number in filter(signals.is_heard, signals.SIGNALS):
        self._previous[number] = signal.signal(number, self._handle)
    if self._number is not None:
      self._hear(self._number)
    return self

  def __exit__(self, kind, *exc):
    for number, handler in self._previous.items():
      # None: a handler of another library, which Python cannot restore.
      signal.signal(number, signal.SIG_DFL if handler is None else handler)
    self._context.close()
    if self._consensus is not None:
      self._consensus.on_request = lambda reason: None
    if kind is None:
      signals.pass_on(self._number, followed=self._is_followed)

  def _hear(self, number: int) -> None:
    """Notes a signal, in any thread."""
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
    self._on_asked()

  def _hear_of_others(self, reason: str) -> None:
    if self._number is None:
      logging.warning('%s: all processes stop after the same step.', reason)
    self._on_asked()

  def _handle(self, number, frame):
    del frame
    name = signal.Signals(number).name
    if self._is_logged and number == signal.SIGINT:
      raise signals.Stopped(number)
    if self._is_logged:
      logging.warning('%s: the run is saving already.', name)
      return
    self._is_logged = True
    self._hear(number)
    logging.warning('%s: saving a checkpoint at the end of this step.', name)

  def should_stop(self) -> bool:
    """Returns whether to stop now, the same on all processes.

    They must call it equally often: before the first step and after each one.
    """
    if self._consensus is not None:
      stop = self._consensus.should_stop()
    else:
      stop = self._number is not None
    self._is_followed = self._is_followed or stop
    return stop
