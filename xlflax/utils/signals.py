"""Signal handling, which ends a process in an orderly way.

SIGTERM, SIGHUP and SIGUSR1 end a command like Ctrl-C: `Stopped` is raised in
the main thread, so that temporary files are removed and workers end. Training
(`training.distributed.preemption`) handles the same signals and saves a
checkpoint first.
"""

import atexit
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import machinery
from types import FrameType

from xlflax.utils import errors, process_exit

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
# Seconds until a process ends whose main thread does not handle a signal.
_GRACE_SECONDS = 10.0
_RESEND_SECONDS = 0.1  # Seconds until a signal is sent again.
_END_LINE = 'xlflax: {}: The main thread did not respond. Ending the process.\n'


class Stopped(KeyboardInterrupt):
  """Exception raised when a signal requests that the process end.

  Attributes:
    number: Number of the signal.
  """

  def __init__(self, number: int):
    self.number = signal.Signals(number)
    super().__init__(self.number.name)


class _State:
  """State of the signal handling of a process."""

  def __init__(self):
    self.pending: int | None = None  # The signal that was not handled yet.
    self.raised = threading.Event()
    self.status: int | None = None  # Exit status of a command that has ended.
    self.close_listener: Callable[[], None] | None = None


_state = _State()


def pending_signal() -> int | None:
  """Returns the signal that requested a stop and has not been handled yet."""
  return _state.pending


def note_signal(number: int | None) -> None:
  """Sets the pending signal for `check_stop_request`.

  Args:
    number: Number of the signal. If None, the pending signal is cleared.
  """
  _state.pending = number


def pass_on_signal(number: int | None, *, followed: bool) -> None:
  """Forwards the signal that stopped a run to the code that called `train`.

  In a command, `check_stop_request` then raises `Stopped` before the next step
  after the run. In other programs, a signal that arrived too late for the run
  is raised again for the handlers of the program, which are installed again.

  Args:
    number: The signal, or None if this process received none.
    followed: Whether the run has already stopped in response to `number` or to
      a signal that another process received.
  """
  if process_exit.is_command():
    note_signal(signal.SIGTERM if followed and number is None else number)
  elif number is not None and not followed:
    signal.raise_signal(number)


def check_stop_request() -> None:
  """Raises `Stopped` if a stop signal is pending."""
  if _state.pending is not None:
    raise Stopped(_state.pending)


def is_handled(number: int) -> bool:
  """Returns whether xlflax handles a signal.

  A SIGHUP that `nohup` ignores is not handled. SIGINT is always handled: A
  script starts its background processes with SIGINT ignored, but may send
  SIGINT to stop them.
  """
  ignored = signal.getsignal(number) is signal.SIG_IGN
  return not (ignored and number == signal.SIGHUP)


def start_command() -> None:
  """Installs the signal handlers of a process that runs a single command.

  The handlers raise `Stopped` in the main thread. If the main thread executes
  native code and does not raise `Stopped` within ten seconds, the process ends.
  """
  sys.unraisablehook = _unraisablehook
  for number in filter(is_handled, SIGNALS):
    signal.signal(number, _raise_stopped)
  # The function that is registered first is called last.
  atexit.register(_end_process)
  os.register_at_fork(
    before=_block_signals,
    after_in_parent=_unblock_signals,
    after_in_child=_reset_child,
  )
  _state.close_listener = _start_listener(_end_if_unresponsive)


def end_command(status: int) -> None:
  """Sets a command's final exit status, which later signals do not change.

  A signal then ends the process with this status. While other processes of the
  job wait for this one (`process_exit.wait_at_exit`), signals have no effect.

  Args:
    status: The exit status of the command.
  """
  _state.status = status


def _end_process() -> None:
  """Ends the process of a command that has ended.

  Python would remove the signal handlers next. A signal that arrives during the
  shutdown of native code would then change the exit status.
  """
  if _state.status is not None:
    # The streams may be closed or have no reader.
    with contextlib.suppress(OSError, ValueError):
      sys.stdout.flush()
      sys.stderr.flush()
    os._exit(_state.status)


def _has_ended() -> bool:
  """Returns whether the command has ended.

  The process ends here if no other process waits for it.
  """
  if _state.status is not None and not process_exit.is_awaited():
    os._exit(_state.status)
  return _state.status is not None


def _raise_stopped(number: int, frame: FrameType | None) -> None:
  """Raises `Stopped`; this is the signal handler."""
  if _has_ended():
    return
  if _state.raised.is_set() and number != signal.SIGINT:
    return  # The process is ending already.
  if _is_initializing_extension(frame):
    _send_later(number)
    return
  _state.raised.set()
  _state.pending = number
  raise Stopped(number)


def raise_again(error: Stopped) -> None:
  """Resends a signal whose `Stopped` exception was ignored by Python.

  Args:
    error: Exception raised for the signal. Python ignored it, because it was
      raised in code such as a `__del__` method.
  """
  _state.raised.clear()
  _send_later(error.number)


def _unraisablehook(unraisable: 'sys.UnraisableHookArgs') -> None:
  """Calls the default hook, or resends the signal of a `Stopped` exception.

  For example, Python ignores exceptions in the callbacks with which it releases
  the locks of imported modules.
  """
  if isinstance(unraisable.exc_value, Stopped):
    raise_again(unraisable.exc_value)
  else:
    sys.__unraisablehook__(unraisable)


def _is_initializing_extension(frame: FrameType | None) -> bool:
  """Returns whether a frame belongs to the import of an extension module.

  Some extension modules, such as those of jaxlib, crash the process if an
  exception is raised while they are initialized.
  """
  while frame is not None:
    if frame.f_code.co_name in ('create_module', 'exec_module') and isinstance(
      frame.f_locals.get('self'), machinery.ExtensionFileLoader
    ):
      return True
    frame = frame.f_back
  return False


def _send_later(number: int) -> None:
  """Sends a signal to the main thread after a short time."""
  arguments = threading.main_thread().ident, number
  timer = threading.Timer(_RESEND_SECONDS, signal.pthread_kill, arguments)
  timer.daemon = True
  timer.start()


@contextlib.contextmanager
def reraise_stop() -> Iterator[None]:
  """Context in which `Stopped` replaces errors that a signal has caused.

  Foreign code, such as the initialization of an extension module, converts a
  `Stopped` that a signal raises in it to another exception. Such an exception
  would otherwise be reported as an error of the user.
  """
  try:
    yield
  except Exception as error:
    if not _state.raised.is_set():
      raise
    raise Stopped(_state.pending or signal.SIGTERM) from error


def describe_stop(error: KeyboardInterrupt) -> str:
  """Describes the signal that ended a command, as in 'stopped by SIGTERM'.

  The description of SIGINT is 'interrupted'.
  """
  if isinstance(error, Stopped) and error.number != signal.SIGINT:
    return f'stopped by {error.number.name}'
  return 'interrupted'


def _block_signals() -> None:
  """Blocks signals during a fork, because a child would lose them."""
  signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def _unblock_signals() -> None:
  """Unblocks signals after a fork."""
  signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _reset_child() -> None:
  """Restores the default signal handling in a child process.

  The parent or a signal ends a child without a message.
  """
  global _state
  _state = _State()
  signal.set_wakeup_fd(-1)
  for number in SIGNALS:
    if signal.getsignal(number) is _raise_stopped:
      signal.signal(
        number,
        signal.default_int_handler
        if number == signal.SIGINT
        else signal.SIG_DFL,
      )
  _unblock_signals()


def _end_if_unresponsive(number: int) -> None:
  """Ends the process if its main thread does not respond to a signal."""
  if number not in SIGNALS or signal.getsignal(number) is not _raise_stopped:
    return
  if _has_ended():
    return
  if not _state.raised.wait(_GRACE_SECONDS):
    with contextlib.suppress(Exception):
      sys.stderr.write(_END_LINE.format(signal.Signals(number).name))
      sys.stderr.flush()
    os._exit(errors.ExitStatus.INTERRUPTED)


@contextlib.contextmanager
def listen_for_signals(on_signal: Callable[[int], None]) -> Iterator[None]:
  """Context in which a separate thread handles each signal immediately.

  Python's own handlers wait until native code that blocks the main thread
  returns. The context must be entered in the main thread.

  Args:
    on_signal: Function called with the number of each signal.
  """
  close = _start_listener(on_signal)
  try:
    yield
  finally:
    close()


def _start_listener(on_signal: Callable[[int], None]) -> Callable[[], None]:
  """Starts the thread that receives signals.

  Args:
    on_signal: Function called with the number of each signal.

  Returns:
    A function that ends the thread.
  """
  read_socket, write_socket = socket.socketpair()
  write_socket.setblocking(False)
  previous = signal.set_wakeup_fd(
    write_socket.fileno(), warn_on_full_buffer=False
  )

  def listen() -> None:
    with read_socket:
      while numbers := read_socket.recv(64):
        for number in numbers:
          on_signal(number)

  thread = threading.Thread(target=listen, name='xlflax signals', daemon=True)
  thread.start()

  def close() -> None:
    signal.set_wakeup_fd(previous)
    write_socket.close()  # Ends the thread.
    thread.join(timeout=10)

  return close
