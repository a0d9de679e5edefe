"""Pre-emption: after a signal, a run finishes its step, saves and exits.

These are SIGTERM, SIGINT and SIGUSR1, which Slurm sends by `--signal=USR1@...`
before a time limit or a pre-emption.

With several processes all must stop at the same step; JAX's coordination
service agrees on it when any of them is asked.
"""

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

import jax


class StopRequest:
  """Whether the run was asked to stop; used as a context manager.

  A further SIGTERM or SIGUSR1 changes nothing: Slurm sends both in a row.

  A second SIGINT interrupts at once, as a person who presses it twice wants.

  Args:
    on_asked: called when the run is asked to stop; in another thread and at
      once, while Python's own handler has to wait until a call of JAX that
      blocks the main thread returns.
  """

  def __init__(self, on_asked: Callable[[], None] = lambda: None):
    self._on_asked = on_asked
    self._asked = threading.Event()
    self._previous: dict[int, Any] = {}
    self._open = contextlib.ExitStack()

  def __enter__(self):
    if threading.current_thread() is threading.main_thread():
      self._hear()
      signals = [signal.SIGINT, signal.SIGUSR1]
      if jax.process_count() == 1:  # else JAX's own service listens to it
        signals.append(signal.SIGTERM)
      for number in signals:
        self._previous[number] = signal.signal(number, self._ask)
    return self

  def __exit__(self, *exc):
    for number, handler in self._previous.items():
      signal.signal(number, handler)
    self._open.close()

  def _hear(self) -> None:
    """Starts a thread that Python writes the signals' numbers to."""
    heard, written = socket.socketpair()
    written.setblocking(False)
    thread = threading.Thread(
      target=self._pass_on, args=(heard,), name='xlflax signals', daemon=True
    )
    previous = signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)
    thread.start()
    self._open.callback(thread.join, timeout=10)
    self._open.enter_context(written)  # the thread's end
    self._open.callback(signal.set_wakeup_fd, previous)

  def _pass_on(self, heard: socket.socket) -> None:
    with heard:
      while numbers := heard.recv(64):
        if set(numbers) & set(self._previous):
          self._on_asked()

  def _ask(self, number, frame):
    del frame
    if self._asked.is_set() and number == signal.SIGINT:
      raise KeyboardInterrupt
    if self._asked.is_set():
      logging.warning('%s: it is saving.', signal.Signals(number).name)
      return
    self._asked.set()
    logging.warning(
      '%s: saving a checkpoint at the end of this step.',
      signal.Signals(number).name,
    )
    if number != signal.SIGTERM and jax.process_count() > 1:
      os.kill(os.getpid(), signal.SIGTERM)  # what JAX's service listens to

  def should_stop(self, step: int) -> bool:
    """Whether to stop after `step`; the same answer on all processes."""
    if jax.process_count() == 1:
      return self._asked.is_set()
    from jax.experimental import multihost_utils

    return multihost_utils.reached_preemption_sync_point(step)
