"""Tests of stop requests by signals."""

import hashlib
import os
import signal
import threading
import time

import pytest

from xlflax.training.distributed import preemption
from xlflax.utils import signals


@pytest.mark.parametrize('number', signals.SIGNALS)
def test_signal_requests_a_stop(number, warnings_logged):
  with preemption.StopRequest() as stop:
    assert not stop.should_stop()
    os.kill(os.getpid(), number)
    assert stop.should_stop() and stop.should_stop()
  assert warnings_logged() == [
    f'{number.name}: saving a checkpoint at the end of this step.'
  ]


def test_signal_before_the_first_step_logs_no_checkpoint(warnings_logged):
  with preemption.StopRequest() as stop:
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.should_stop()
  assert warnings_logged() == ['SIGTERM: stopping before the first step.']


def test_signal_before_the_first_check_is_kept():
  """Covers a signal that was noted before the request was created."""
  with preemption.StopRequest() as stop:
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.should_stop()
  signals.note_signal(signal.SIGTERM)
  try:
    with preemption.StopRequest() as stop:
      assert stop.should_stop()
  finally:
    signals.note_signal(None)


def test_signal_after_the_last_check_is_passed_on(monkeypatch):
  """The caller's handler or the next step of the command receives it."""
  requests = []
  before = signal.signal(
    signal.SIGTERM, lambda number, _: requests.append(number)
  )
  try:
    for is_command in (False, True):
      monkeypatch.setattr(signals.process_exit, '_is_command', is_command)
      with preemption.StopRequest() as stop:
        assert not stop.should_stop()
        os.kill(os.getpid(), signal.SIGTERM)
    assert requests == [signal.SIGTERM]
    with pytest.raises(signals.Stopped):
      signals.check_stop_request()
  finally:
    signals.note_signal(None)
    signal.signal(signal.SIGTERM, before)


def test_ignored_hangup_does_not_request_a_stop():
  before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
  try:
    with preemption.StopRequest() as stop:
      os.kill(os.getpid(), signal.SIGHUP)
      assert not stop.should_stop()
  finally:
    signal.signal(signal.SIGHUP, before)


def test_second_sigint_raises_keyboard_interrupt():
  with preemption.StopRequest() as stop:
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
      os.kill(os.getpid(), signal.SIGINT)
    assert stop.should_stop()


def test_second_sigterm_does_not_interrupt():
  with preemption.StopRequest() as stop:
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.should_stop()


def test_signal_handlers_are_restored():
  before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]
  with preemption.StopRequest():
    assert signal.getsignal(signal.SIGTERM) is not before[0]
  assert [
    signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)
  ] == before


def test_stop_request_outside_the_main_thread_ignores_signals():
  requests = []

  def work():
    with preemption.StopRequest() as stop:
      requests.append(stop.should_stop())

  thread = threading.Thread(target=work)
  thread.start()
  thread.join()
  assert requests == [False]


def test_signals_are_received_while_the_main_thread_is_blocked():
  """The main thread is blocked in a computation, as when it waits for devices."""
  requests = []
  with preemption.StopRequest(
    lambda: requests.append(time.monotonic())
  ) as stop:
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    while not stop.should_stop():
      hashlib.pbkdf2_hmac('sha256', b'', b'', 1_500_000)
      end = time.monotonic()
    timer.join()
  assert len(requests) == 1 and requests[0] < end - 0.05


def test_previous_wakeup_fd_is_restored():
  reader, writer = os.pipe()
  os.set_blocking(writer, False)
  before = signal.set_wakeup_fd(writer)
  try:
    with preemption.StopRequest() as stop:
      os.kill(os.getpid(), signal.SIGINT)
      assert stop.should_stop()
    assert signal.set_wakeup_fd(before) == writer
  finally:
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(
  'requested_step, number',
  [(1, 'SIGTERM'), pytest.param(0, 'SIGINT', marks=pytest.mark.slow)],
)
def test_all_processes_stop_after_the_same_step(
  start_job, requested_step, number
):
  job = start_job({}, {})
  job.wait_for_step()
  job.signal(requested_step, signal.Signals[number])
  assert job.exit_codes() == [0, 0], job.errors()
  first, second = (result['stopped_at'] for result in job.results())
  assert 5 <= first == second < 2000


def test_signal_before_the_first_step_stops_all_processes(start_job):
  """JAX's preemption service loses the signal in resumed runs."""
  job = start_job({}, {'signal_at_start': True})
  assert job.exit_codes() == [0, 0], job.errors()
  first, second = (result['stopped_at'] for result in job.results())
  assert first == second < 2000


def test_stop_request_reaches_a_process_that_starts_later(start_job):
  job = start_job({'signal_at_start': True}, {'delay': 2})
  assert job.exit_codes() == [0, 0], job.errors()
  first, second = (result['stopped_at'] for result in job.results())
  assert first == second < 2000
