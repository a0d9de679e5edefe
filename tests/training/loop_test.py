"""The loop around its steps: signals, and who may write."""

import os
import signal
import types

import jax.numpy as jnp
import pytest

from xlflax import errors
from xlflax.training import loop
from xlflax.training.processes import lease as lease_lib


class _Loop(loop._Loop):
  """One without steps that notes what is done."""

  def __init__(self, tmp_path, during_close):
    self._setup = types.SimpleNamespace(model_dir=tmp_path)
    self._settings = types.SimpleNamespace(steps=1)
    self._losses, self._interrupted = {}, False
    self._checkpoints = types.SimpleNamespace(directory=tmp_path)
    self._during_close = during_close
    self.saved = False

  def _restore_or_start(self):
    return types.SimpleNamespace(step=jnp.int32(0))

  def _open_feeds(self, step):
    return {}

  def _open_progress(self, step):
    return None

  def _steps_until(self, state, step, stop):
    os.kill(os.getpid(), signal.SIGUSR1)
    assert stop.should_stop(1)
    return state

  def _save(self, state):
    os.kill(os.getpid(), signal.SIGTERM)

  def _close(self):
    self._during_close()
    self.saved = True


def test_further_signals_wait_for_the_last_checkpoint(tmp_path):
  """SIGUSR1, then SIGTERM while it is written, as Slurm sends them."""

  def during_close():
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGUSR1)

  def fatal(number, frame):
    raise AssertionError(f'{signal.Signals(number).name} was not held back')

  before = [signal.signal(n, fatal) for n in (signal.SIGTERM, signal.SIGUSR1)]
  try:
    made = _Loop(tmp_path, during_close)
    made.run()
    assert made.saved
  finally:
    for number, handler in zip(
      (signal.SIGTERM, signal.SIGUSR1), before, strict=True
    ):
      signal.signal(number, handler)


def test_a_run_that_another_has_taken_over_writes_no_more(tmp_path):
  class _Lost(lease_lib.Lease):
    def check(self):
      raise errors.RunDirectoryError('taken over')

  made = _Loop(tmp_path, lambda: None)
  made._lease = _Lost(tmp_path)
  for method in (loop._Loop._save, loop._Loop._report):
    with pytest.raises(errors.RunDirectoryError, match='taken over'):
      method(made, None)
