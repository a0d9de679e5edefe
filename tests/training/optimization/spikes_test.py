"""Loss spikes: limits, skipped updates, and a loop that goes back."""

import contextlib
import json
import math
import types
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.training import tiny
from xlflax.foundation import errors
from xlflax.objectives import mixture as mixture_lib
from xlflax.training import (
  in_flight,
  loop,
  metric_accumulator,
  replay,
  reporting,
  train_step,
)
from xlflax.training.checkpointing import checkpoints
from xlflax.training.optimization import optimizers, spikes
from xlflax.training.processes import activities, step_times, watchdog

_FEW = dict(after=2, window=4)
_KEY = (0,)


def _output(loss, *, finite=True):
  one = jnp.float32(1)
  return train_step.StepOutput(
    {}, jnp.float32(loss), one, jnp.asarray(finite), one, one
  )


def _watch(losses, **fields):
  watch = spikes.Watch(spikes.LossSpikes(**_FEW | fields))
  for step, loss in enumerate(losses, 1):
    watch.add(step, _KEY, _output(loss))
  watch.update()
  return watch


def test_the_limit_is_of_median_and_deviation():
  options = spikes.LossSpikes(deviations=2, **_FEW)
  assert options.limit([1.0]) == math.inf
  # Median 3, absolute deviations 2, 1, 0, 1, 97: their median is 1.
  assert options.limit([1, 2, 3, 4, 100]) == pytest.approx(3 + 2 * 1.4826)
  assert options.limit([5.0] * 4) == pytest.approx(5.1)  # a hundredth each


def test_each_kind_of_step_has_its_limit():
  watch = _watch([1.0, 1.0])
  assert watch.arguments(_KEY) == pytest.approx((1.1,))
  assert watch.arguments((1,)) == (math.inf,)
  assert spikes.Watch(None).arguments(_KEY) == ()
  assert _watch([1.0, 1.0], response='rewind').arguments(_KEY) == ()


def test_only_good_losses_count_and_the_last_ones():
  watch = _watch([9.0, 1.0, 1.0, 1.0, 1.0])
  watch.add(6, _KEY, _output(math.nan, finite=False))
  watch.add(7, _KEY, _output(50.0, finite=False))
  watch.update()
  assert watch.arguments(_KEY) == pytest.approx((1.1,))
  assert watch.to_undo() is None


def test_a_watch_is_the_same_after_a_checkpoint():
  watch = _watch([1.0, 2.0, 1.5])
  saved = json.loads(json.dumps(watch.to_json()))
  again = spikes.Watch(spikes.LossSpikes(**_FEW), saved)
  assert again.to_json() == watch.to_json()
  assert again.arguments(_KEY) == watch.arguments(_KEY)


@pytest.mark.parametrize(
  'fields',
  [{'deviations': 0}, {'after': 1}, {'after': 300}, {'most_rewinds': 0}],
)
def test_options_are_checked(fields):
  with pytest.raises(errors.ConfigError, match=next(iter(fields))):
    spikes.LossSpikes(**fields)


def test_the_update_of_a_spike_is_skipped():
  """And a limit that is not reached changes no bit."""
  optimizer = optimizers.AdamW(learning_rate=0.1)
  entry = mixture_lib.Entry(stream='mono', objective=tiny.Regression())
  builder = train_step.TrainStepBuilder(
    model=None,
    mixture=tiny.make_mixture(entry),
    optimizer=optimizer,
    vocabulary=tiny.SPEC,
    seed=0,
  )
  state = tiny.regression_state(optimizer)
  batches = {'mono': tiny.make_batch()}
  step = jax.jit(builder.build((0,)))
  plain, output = step(state, batches)
  same, _ = step(state, batches, np.float32(math.inf))
  tiny.assert_trees_equal(same, plain)
  assert float(output.loss) > 0
  kept, skipped = step(state, batches, np.float32(output.loss) / 2)
  assert not bool(skipped.finite)
  tiny.assert_trees_equal(kept.replace(step=state.step), state)
  accumulator = metric_accumulator.MetricAccumulator()
  accumulator.add(skipped)
  accumulator = metric_accumulator.MetricAccumulator.from_json(
    json.loads(json.dumps(accumulator.to_json()))
  )
  sums = accumulator.peek()
  assert (sums.steps, sums.skipped, sums.spikes, sums.streak) == (1, 0, 1, 1)


class _State(NamedTuple):
  step: jax.Array
  total: jax.Array  # of the batches that were trained on


class _Saved:
  """Checkpoints in memory; the state is copied, as devices' arrays are."""

  def __init__(self):
    self.all, self.is_writing = {}, False

  def save(self, state, meta, metrics):
    self.all[int(state.step)] = (np.array(state.total), json.dumps(meta))

  def restore_last(self, factory):
    if not self.all:
      return None
    step = max(self.all)
    total, meta = self.all[step]
    state = _State(jnp.int32(step), jnp.asarray(total))
    return checkpoints.Restored(step, state, json.loads(meta))

  def wait(self):
    pass

  def check(self):
    pass


class _Feed:
  """Batches that are their own losses."""

  def __init__(self, loader, *, first_step, **_):
    self._losses = iter(loader[first_step:])

  def next(self):
    return next(self._losses)

  def close(self):
    pass


class _Reporter(reporting.Reporter):
  """One without progress."""

  def open_progress(self, loaders, step):
    self._progress = types.SimpleNamespace(
      advance=lambda *_: None,
      begin=lambda *_: None,
      leave_out=lambda *_: None,
      report=lambda *_: {},
      close=lambda: None,
    )


class _Loop(loop.Loop):
  def __init__(self, directory, saved, losses, **options):
    self._settings = types.SimpleNamespace(
      steps=16,
      last_step=16,
      log_every_steps=2,
      log_to=(),
      checkpoints=types.SimpleNamespace(every_steps=4, best_metric=None),
      evaluation=None,
      objectives=tiny.make_mixture(),
      optimizer=types.SimpleNamespace(rate_at=lambda step: 0.1),
      non_finite=train_step.NonFinite.STOP,
      most_skipped=10,
      seed=0,
      prefetch=1,
      partitioner=types.SimpleNamespace(batch_sharding=None),
      spikes=spikes.LossSpikes(response='rewind', **_FEW | options),
      replay_every=None,
    )
    self._setup = types.SimpleNamespace(
      settings=self._settings,
      model_dir=directory,
      description={},
      factory=None,
      spec=tiny.SPEC,
      streams_of=lambda active: ['mono'],
      jitted_step=lambda active: self._train,
      initial_state=lambda **_: _State(jnp.int32(0), jnp.float32(0)),
    )
    self._loaders, self._checkpoints = {'mono': losses}, saved
    self._lease = self._inputs = None
    self._steps, self._interrupted = {}, False
    self._accumulator = metric_accumulator.MetricAccumulator()
    self._spikes = spikes.Watch(self._settings.spikes)
    self._replay = replay.Replay(self._setup, lambda: None)
    self._activities = activities.Activities()
    self._times = step_times.StepTimes()
    self._reporter = _Reporter(self._setup, self._activities, self._times)
    self._watchdog = watchdog.Watchdog(self._activities, 0)
    self._ahead = types.SimpleNamespace(
      step_of=self._setup.jitted_step, wait_lowered=lambda: None
    )
    nothing = types.SimpleNamespace(
      before=lambda _: None, after=lambda *_: None
    )
    self._profiler = nothing
    self._stop = self
    self._in_flight = in_flight.InFlight(self._made)
    self._done = self.stop_at = self.killed_at = None

  def _train(self, state, batches):
    loss = batches['mono']
    state = _State(state.step + 1, state.total + np.float32(loss))
    return state, _output(loss)

  def _one_step(self, state, step):
    self._done = step + 1
    return super()._one_step(state, step)

  def should_stop(self):
    if self._done and self._done == self.killed_at:
      raise KeyboardInterrupt
    return bool(self._done) and self._done == self.stop_at

  def train(self):
    """As `run`, without its signals; the total and the steps' metrics."""
    state = self._restore_or_start()
    step = int(state.step)
    self._reporter.open_metrics(first_time=not step)
    self._feeds = self._open_feeds(step)
    self._reporter.open_progress(self._loaders, step)
    state = self._steps_until(state, step)
    self._save(state)
    self._reporter.close()
    return float(state.total), _logged(self._setup.model_dir)


def _logged(directory):
  lines = (directory / 'metrics.jsonl').read_text().splitlines()
  return [json.loads(line)['step'] for line in lines]


@pytest.fixture
def losses(monkeypatch):
  """Powers of two apart from a spike as the tenth batch, 24 of them."""
  monkeypatch.setattr(loop.prefetch, 'Prefetcher', _Feed)
  values = [1 + n / 1024 for n in range(24)]
  values[9] = 100.0
  return values


def test_a_run_goes_back_past_the_batches_of_a_spike(
  tmp_path, losses, warnings_logged
):
  """Batch 10 is found at step 10: 9 and 10 are passed over from step 8 on."""
  saved = _Saved()
  total, logged = _Loop(tmp_path, saved, losses).train()
  assert total == sum(losses[:8]) + sum(losses[10:18])
  assert logged == [2, 4, 6, 8, 10, 12, 14, 16]
  assert sorted(saved.all) == [4, 8, 12, 16]
  assert json.loads(saved.all[16][1])['spikes']['passed'] == {'mono': 2}
  (told,) = warnings_logged()
  assert told == (
    'The loss of step 10 has risen suddenly: the run goes on from step 8, '
    'past the batches that were read since then (2 of mono).'
  )


@pytest.mark.parametrize('step', [9, 11, 14])
@pytest.mark.parametrize('how', ['stop_at', 'killed_at'])
def test_an_end_in_between_changes_nothing(tmp_path, losses, step, how):
  """Step 11 is after the spike, and before the next checkpoint.

  Only a stop (not a kill) at step 9 makes a checkpoint beside the others, to
  which the run then goes back.
  """
  saved, whole = _Saved(), _Loop(tmp_path / 'whole', _Saved(), losses).train()
  ended = _Loop(tmp_path / 'again', saved, losses)
  setattr(ended, how, step)
  with contextlib.suppress(KeyboardInterrupt):
    ended.train()
  total, logged = _Loop(tmp_path / 'again', saved, losses).train()
  assert logged == whole[1]
  if (how, step) == ('stop_at', 9):
    assert total == sum(losses[:9]) + sum(losses[10:17])
  else:
    assert total == whole[0]


def test_a_state_that_a_spike_has_made_is_not_saved(
  tmp_path, losses, warnings_logged
):
  losses[8:10] = 100.0, 1.0
  saved = _Saved()
  stopped = _Loop(tmp_path, saved, losses)
  stopped.stop_at = 9
  stopped.train()
  assert sorted(saved.all) == [4, 8]
  assert 'Step 9 is not saved: the loss of step 9' in warnings_logged()[-1]


def test_spikes_without_end_end_the_run(tmp_path, losses):
  losses[9:] = [100.0] * 100
  with pytest.raises(errors.TrainingError, match='again and again') as error:
    _Loop(tmp_path, _Saved(), losses, most_rewinds=3).train()
  assert 'Got: 4 spikes after step 8' in str(error.value)


def test_without_a_checkpoint_the_run_begins_anew(tmp_path, losses):
  losses[2], losses[9] = 100.0, 1.0
  total, logged = _Loop(tmp_path, _Saved(), losses).train()
  assert total == sum(losses[4:20])
  assert logged[:2] == [2, 4]
