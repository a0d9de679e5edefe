"""The loop around its steps: signals, and who may write."""

import contextlib
import os
import signal
import threading
import types

import jax.numpy as jnp
import pytest

from xlflax.foundation import errors
from xlflax.storage import lease as lease_lib
from xlflax.training import (
  in_flight,
  loop,
  metric_accumulator,
  replay,
  reporting,
  train_step,
)
from xlflax.training.optimization import spikes
from xlflax.training.processes import (
  activities,
  preemption,
  step_times,
  watchdog,
)


class _Watchdog(contextlib.nullcontext):
  """One that never barks."""

  def begin(self, activity, detail=''):
    pass

  def stopping(self):
    pass


class _Reporter(reporting.Reporter):
  """One without progress."""

  def open_progress(self, loaders, step):
    pass

  def restart_clocks(self, step):
    pass


class _Loop(loop.Loop):
  """One without steps that notes what is done."""

  def __init__(self, tmp_path, during_close):
    self._settings = types.SimpleNamespace(
      steps=1, log_to=(), replay_every=None
    )
    self._setup = types.SimpleNamespace(
      model_dir=tmp_path, description={}, settings=self._settings
    )
    self._loaders = {}
    self._ahead = contextlib.nullcontext()
    self._interrupted = False
    self._spikes = spikes.Watch(None)
    self._replay = replay.Replay(self._setup, lambda: None)
    self._checkpoints = types.SimpleNamespace(
      directory=tmp_path, describe_last=str
    )
    self._activities = activities.Activities()
    self._times = step_times.StepTimes()
    self._reporter = _Reporter(self._setup, self._activities, self._times)
    self._watchdog = watchdog.Watchdog(self._activities, 0)
    self._during_close = during_close
    self._watchdog = _Watchdog()
    self._stop = preemption.StopRequest()
    self._in_flight = in_flight.InFlight(lambda step: None)
    self.saved = False

  def _restore_or_start(self):
    return types.SimpleNamespace(step=jnp.int32(0))

  def _open_feeds(self, step):
    return {}

  def _steps_until(self, state, step):
    os.kill(os.getpid(), signal.SIGUSR1)
    assert self._stop.should_stop()
    return types.SimpleNamespace(step=jnp.int32(step + 1))

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


def test_a_restore_that_hangs_is_found(tmp_path):
  """A model directory on a file system that is gone."""
  ended, told = threading.Event(), []

  def end(message):
    told.append(message)
    ended.set()

  class _Blocked(_Loop):
    def _restore_or_start(self):
      assert ended.wait(30)
      raise TimeoutError

  made = _Blocked(tmp_path, lambda: None)
  made._watchdog = watchdog.Watchdog(made._activities, 0.02, end=end)
  with pytest.raises(TimeoutError):
    made.run()
  [message] = told
  assert message.startswith('This process has been making or restoring its')


def test_a_run_that_another_has_taken_over_writes_no_more(tmp_path):
  class _Lost(lease_lib.Lease):
    def check(self):
      raise errors.RunDirectoryError('taken over')

  made = _Loop(tmp_path, lambda: None)
  made._lease = _Lost(tmp_path)
  for method in (loop.Loop._save, loop.Loop._report):
    with pytest.raises(errors.RunDirectoryError, match='taken over'):
      method(made, None)


class _Notes:
  """What the loop tells its watchdog, and when a background write is seen."""

  def __init__(self):
    self.seen = []

  def begin(self, activity, detail=''):
    self.seen.append((activity, detail))

  def background_write(self, is_writing):
    self.seen.append(is_writing())


def test_the_watchdog_knows_what_the_loop_is_at(tmp_path):
  """A batch, the first step, a later one, a checkpoint, an evaluation."""
  made = _Loop(tmp_path, lambda: None)
  made._watchdog = notes = _Notes()
  made._steps = {}
  made._ahead = types.SimpleNamespace(
    step_of=lambda active: lambda state, batches: batches
  )
  made._setup.streams_of = lambda active: ['mono']
  made._feeds = {'mono': types.SimpleNamespace(next=lambda: 'batch')}
  made._checkpoints = types.SimpleNamespace(
    is_writing=True, save=lambda *_: None, check=lambda: None
  )
  made._settings = types.SimpleNamespace(
    objectives=types.SimpleNamespace(active=lambda step: (0,)),
    non_finite=train_step.NonFinite.SKIP,
    seed=1,
    evaluation=types.SimpleNamespace(is_due=lambda *_: True, run=lambda *_: {}),
    steps=3,
    checkpoints=types.SimpleNamespace(best_metric=None),
  )
  for step in (0, 1):
    assert made._one_step(None, step) == {'mono': 'batch'}
  made._lease = made._inputs = None
  made._accumulator = metric_accumulator.MetricAccumulator()
  loop.Loop._save(made, types.SimpleNamespace(step=2))
  made._maybe_evaluate(None, 2)
  at = activities.Activity
  assert notes.seen == [
    (at.BATCH, "of stream 'mono'"),
    True,
    (at.COMPILATION, '(step 1)'),
    (at.BATCH, "of stream 'mono'"),
    True,
    (at.STEP, '(step 2)'),
    (at.SAVE, 'of step 2'),
    (at.EVALUATION, 'step 2'),
  ]


def test_a_write_that_failed_is_noticed_before_the_next_step(tmp_path):
  def check():
    raise errors.CheckpointError('A checkpoint could not be written')

  made = _Loop(tmp_path, lambda: None)
  made._steps = {}
  made._setup.streams_of = lambda active: []
  made._settings = types.SimpleNamespace(
    objectives=types.SimpleNamespace(active=lambda step: (0,))
  )
  made._checkpoints = types.SimpleNamespace(check=check)
  with pytest.raises(errors.CheckpointError, match='could not be written'):
    made._one_step(None, 0)


def test_an_evaluation_is_saved_for_its_best_metric(tmp_path):
  """And a metric that was not evaluated is refused."""
  saved = []

  class _Saves(_Loop):
    def _save(self, state, metrics=None):
      saved.append((state, metrics))

  made = _Saves(tmp_path, lambda: None)
  found = {'f1': 0.25, 'mrr': 0.5}
  made._settings.evaluation = types.SimpleNamespace(
    is_due=lambda step, steps: step == 1, run=lambda setup, state: found
  )
  for made._settings.checkpoints in (
    types.SimpleNamespace(best_metric='f1'),
    types.SimpleNamespace(best_metric=None),
  ):
    made._maybe_evaluate('state', 0)
    made._maybe_evaluate('state', 1)
  assert saved == [('state', found)]
  made._settings.checkpoints = types.SimpleNamespace(best_metric='bleu')
  with pytest.raises(errors.ConfigError, match='Got: bleu. .*one of f1, mrr'):
    made._maybe_evaluate('state', 1)
  assert saved[1:] == [('state', None)]  # what was trained is not lost
