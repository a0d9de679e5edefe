"""Pre-emption: after a signal, a run finishes its step, saves and exits.

These are SIGTERM, SIGINT and SIGUSR1, which Slurm sends by `--signal=USR1@...`
before a time limit or a pre-emption.

With several processes all must stop at the same step; JAX's coordination
service agrees on it when any of them is asked.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import jax


class StopRequest:
  """Whether the run was asked to stop; used as a context manager.

  A further SIGTERM or SIGUSR1 changes nothing: Slurm sends both in a row.

  A second SIGINT interrupts at once, as a person who presses it twice wants.

  Args:
    on_asked: called when the run is asked to stop.
  """

  def __init__(self, on_asked: Callable[[], None] = lambda: None):
    self._on_asked = on_asked
    self._asked = threading.Event()
    self._previous: dict[int, Any] = {}

  def __enter__(self):
    if threading.current_thread() is threading.main_thread():
      signals = [signal.SIGINT, signal.SIGUSR1]
      if jax.process_count() == 1:  # else JAX's own service listens to it
        signals.append(signal.SIGTERM)
      for number in signals:
        self._previous[number] = signal.signal(number, self._ask)
    return self

  def __exit__(self, *exc):
    for number, handler in self._previous.items():
      signal.signal(number, handler)

  def _ask(self, number, frame):
    del frame
    if self._asked.is_set() and number == signal.SIGINT:
      raise KeyboardInterrupt
    if self._asked.is_set():
      logging.warning('%s: it is saving.', signal.Signals(number).name)
      return
    self._asked.set()
    self._on_asked()
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
