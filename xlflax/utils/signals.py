"""Signals that ask a process to end: it leaves in order, or is made to.

SIGTERM, SIGHUP and SIGUSR1 end a command as Ctrl-C does: `Stopped` is raised
in the main thread, so that temporary files are removed and workers end. Training
(`training.processes.preemption`) hears the same signals, and saves first.
"""

import atexit
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from xlflax.utils import errors, process_exit

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
_GRACE = 10.0  # seconds until a main thread that does not hear is ended
_AGAIN = 0.1  # seconds until a signal is raised again
_END_LINE = 'xlflax: {}: the process did not come to its end by itself.\n'


class Stopped(KeyboardInterrupt):
  """A signal asked the process to end.

  Attributes:
    number: which one.
  """

  def __init__(self, number: int):
    self.number = signal.Signals(number)
    super().__init__(self.number.name)


class _State:
  """What the process has been asked; one for each process."""

  def __init__(self):
    self.asked: int | None = None  # a signal that nothing has followed yet
    self.raised = threading.Event()
    self.status: int | None = None  # of a command that has come to its end
    self.close_ear: Callable[[], None] | None = None


_state = _State()


def pending_signal() -> int | None:
  """Returns the signal that asked for an end and was not followed yet."""
  return _state.asked


def note_signal(number: int | None) -> None:
  """Remembers a signal for `check_stop_request`; None: it was followed."""
  _state.asked = number


def pass_on(number: int | None, *, followed: bool) -> None:
  """Has what called a run hear of the signal that asked the run to stop.

  In a command, what would come after the run is not begun: `check_stop_request` raises.
  Elsewhere a signal that came too late for the run reaches the caller's own
  handlers, which are in place again.

  Args:
    number: the signal; None where there was none in this process.
    followed: whether the run has stopped for it, or for another process's.
  """
  if process_exit.is_command():
    note_signal(signal.SIGTERM if followed and number is None else number)
  elif number is not None and not followed:
    signal.raise_signal(number)


def check_stop_request() -> None:
  """Raises Stopped if a signal came while the process could not follow it."""
  if _state.asked is not None:
    raise Stopped(_state.asked)


def is_heard(number: int) -> bool:
  """Returns whether a signal counts: `nohup` has SIGHUP ignored."""
  ignored = signal.getsignal(number) is signal.SIG_IGN
  return not (ignored and number == signal.SIGHUP)


def begin_command() -> None:
  """Has signals raise `Stopped` from now on, in a process with one command.

  Where the main thread, in a call of foreign code, does not come to raise it
  within ten seconds, the process ends.
  """
  for number in SIGNALS:
    if signal.getsignal(number) is not signal.SIG_IGN:
      signal.signal(number, _raise)
  atexit.register(_end_process)  # the first to be there is the last to run
  os.register_at_fork(
    before=_hold, after_in_parent=_let_go, after_in_child=_forget
  )
  _state.close_ear = _open_ear(_end_later)


def end_command(status: int) -> None:
  """Says how the command ends; a signal then ends the process like that.

  What is left must not make another status of it. While other processes of a
  job need this one (`process_exit.part_by`), a signal changes nothing.
  """
  _state.status = status


def _end_process() -> None:
  """Ends the process of a command that has come to its end.

  Python would take the handlers away next, and a signal that comes while
  foreign code is torn down would make another status of it.
  """
  if _state.status is not None:
    with contextlib.suppress(OSError, ValueError):  # closed, or nobody reads
      sys.stdout.flush()
      sys.stderr.flush()
    os._exit(_state.status)


def _has_ended() -> bool:
  """Whether the command has; ends the process if nothing awaits it."""
  if _state.status is not None and not process_exit.is_awaited():
    os._exit(_state.status)
  return _state.status is not None


def _raise(number: int, frame: FrameType | None) -> None:
  del frame
  if _has_ended():
    return
  if _state.raised.is_set() and number != signal.SIGINT:
    return  # it is on its way out
  _state.raised.set()
  _state.asked = number
  raise Stopped(number)


def raise_again(error: Stopped) -> None:
  """Has a signal reach the main thread that came where Python drops errors."""
  _state.raised.clear()
  to = threading.main_thread().ident, error.number
  timer = threading.Timer(_AGAIN, signal.pthread_kill, to)
  timer.daemon = True
  timer.start()


def describe_stop(error: KeyboardInterrupt) -> str:
  """Returns 'interrupted', or 'stopped by SIGTERM'."""
  if isinstance(error, Stopped) and error.number != signal.SIGINT:
    return f'stopped by {error.number.name}'
  return 'interrupted'


def _hold() -> None:
  """Has signals wait for the end of a fork; a child would lose one."""
  signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def _let_go() -> None:
  signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _forget() -> None:
  """In a child: it ends by its parent, or by a signal, without a message."""
  global _state
  _state = _State()
  signal.set_wakeup_fd(-1)
  for number in SIGNALS:
    if signal.getsignal(number) is _raise:
      signal.signal(
        number,
        signal.default_int_handler
        if number == signal.SIGINT
        else signal.SIG_DFL,
      )
  _let_go()


def _end_later(number: int) -> None:
  """Ends the process if its main thread does not."""
  if number not in SIGNALS or signal.getsignal(number) is not _raise:
    return
  if _has_ended():
    return
  if not _state.raised.wait(_GRACE):
    with contextlib.suppress(Exception):
      sys.stderr.write(_END_LINE.format(signal.Signals(number).name))
      sys.stderr.flush()
    os._exit(errors.ExitStatus.INTERRUPTED)


@contextlib.contextmanager
def listen_for_signals(on_signal: Callable[[int], None]) -> Iterator[None]:
  """Context in which another thread is told of each signal at once.

  Python's own handlers have to wait until a call of foreign code that blocks
  the main thread returns. Needs the main thread.

  Args:
    on_signal: called with a signal's number.
  """
  close = _open_ear(on_signal)
  try:
    yield
  finally:
    close()


def _open_ear(on_signal: Callable[[int], None]) -> Callable[[], None]:
  """Starts the thread; returns what ends it."""
  heard, write_socket = socket.socketpair()
  write_socket.setblocking(False)
  previous = signal.set_wakeup_fd(
    write_socket.fileno(), warn_on_full_buffer=False
  )

  def listen() -> None:
    with heard:
      while numbers := heard.recv(64):
        for number in numbers:
          on_signal(number)

  thread = threading.Thread(target=listen, name='xlflax signals', daemon=True)
  thread.start()

  def close() -> None:
    signal.set_wakeup_fd(previous)
    write_socket.close()  # the thread's end
    thread.join(timeout=10)

  return close
