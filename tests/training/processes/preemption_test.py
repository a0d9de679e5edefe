"""Signals: the first one asks to stop, a second Ctrl-C interrupts."""

import os
import signal
import threading

import pytest

from xlflax.training.processes import preemption


@pytest.mark.parametrize(
  'number', [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]
)
def test_signal_asks_to_stop(number, warnings_logged):
  with preemption.StopRequest() as stop:
    assert not stop.should_stop(1)
    os.kill(os.getpid(), number)
    assert stop.should_stop(2) and stop.should_stop(3)
  assert warnings_logged() == [
    f'{number.name}: saving a checkpoint at the end of this step.'
  ]


def test_second_interrupt_does_not_wait():
  with preemption.StopRequest() as stop:
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
      os.kill(os.getpid(), signal.SIGINT)
    assert stop.should_stop(1)


def test_second_sigterm_is_patient():
  with preemption.StopRequest() as stop:
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.should_stop(1)


def test_handlers_are_put_back():
  before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]
  with preemption.StopRequest():
    assert signal.getsignal(signal.SIGTERM) is not before[0]
  assert [
    signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)
  ] == before


def test_outside_the_main_thread_it_is_silent():
  seen = []

  def work():
    with preemption.StopRequest() as stop:
      seen.append(stop.should_stop(1))

  thread = threading.Thread(target=work)
  thread.start()
  thread.join()
  assert seen == [False]
