"""Tests of limits, skipped updates and rewinds for loss spikes."""

import contextlib
import json
import math

import jax
import numpy as np
import pytest

from tests.errors import assert_mentions
from tests.training import fake_run, tiny
from xlflax.objectives import objective_mixture
from xlflax.training import metric_accumulator, train_loop, train_step
from xlflax.training.hooks import hook_base, loss_spike_hook
from xlflax.training.optimization import loss_spike_options, optimizers
from xlflax.utils import errors

_FEW = dict(min_history=2, window=4)
_KEY = (0,)


def _watch(losses, **fields):
  watch = loss_spike_hook.LossSpikeHook(
    loss_spike_options.LossSpikeGuard(**_FEW | fields)
  )
  for step, loss in enumerate(losses, 1):
    watch.add(step, _KEY, fake_run.output(loss))
  watch.update_limits()
  return watch


def test_limit_is_computed_from_median_and_deviation():
  options = loss_spike_options.LossSpikeGuard(num_std=2, **_FEW)
  assert options.limit([1.0]) == math.inf
  # Median 3, absolute deviations 2, 1, 0, 1, 97: their median is 1.
  assert options.limit([1, 2, 3, 4, 100]) == pytest.approx(3 + 2 * 1.4826)
  assert options.limit([5.0] * 4) == pytest.approx(
    5.1
  )  # The minimum deviation is 1 % of the median.


def _arguments(watch, active=_KEY):
  """Returns the arguments of a step function that the hook wraps."""
  step_function = watch.wrap_train_step(None, lambda *args: args, active)
  return step_function('state', 'batches')[2:]


def test_each_objective_has_its_own_limit():
  watch = _watch([1.0, 1.0])
  assert _arguments(watch) == pytest.approx((1.1,))
  assert _arguments(watch, (1,)) == (math.inf,)
  assert _arguments(_watch([1.0, 1.0], action='rewind')) == ()


def test_limit_uses_the_last_finite_losses():
  watch = _watch([9.0, 1.0, 1.0, 1.0, 1.0])
  watch.add(6, _KEY, fake_run.output(math.nan, finite=False))
  watch.add(7, _KEY, fake_run.output(50.0, finite=False))
  watch.update_limits()
  assert _arguments(watch) == pytest.approx((1.1,))
  assert watch.first_spike() is None


def test_state_is_restored():
  watch = _watch([1.0, 2.0, 1.5])
  saved = json.loads(json.dumps(watch.state_dict()))
  again = _watch([])
  again.load_state_dict(saved)
  assert again.state_dict() == watch.state_dict()
  assert _arguments(again) == _arguments(watch)


@pytest.mark.parametrize(
  'fields',
  [
    {'num_std': 0},
    {'min_history': 1},
    {'min_history': 300},
    {'max_rewinds': 0},
  ],
)
def test_invalid_options_are_rejected(fields):
  with pytest.raises(errors.ConfigError, match=next(iter(fields))):
    loss_spike_options.LossSpikeGuard(**fields)


def test_update_of_a_loss_spike_is_skipped():
  """A limit that is not reached changes no bit of the update."""
  optimizer = optimizers.AdamW(learning_rate=0.1)
  entry = objective_mixture.WeightedObjective(
    dataset='mono', objective=tiny.Regression()
  )
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
  unchanged, skipped = step(state, batches, np.float32(output.loss) / 2)
  assert not bool(skipped.finite)
  tiny.assert_trees_equal(unchanged.replace(step=state.step), state)
  accumulator = metric_accumulator.MetricAccumulator()
  accumulator.add(skipped)
  accumulator = metric_accumulator.MetricAccumulator.from_json(
    json.loads(json.dumps(accumulator.to_json()))
  )
  sums = accumulator.peek()
  assert (sums.steps, sums.skipped, sums.spikes, sums.streak) == (1, 0, 1, 1)


class _End(hook_base.Hook):
  """Stops or kills the run after a step."""

  def __init__(self, step=None, *, kill=False):
    self._step, self._kill = step, kill

  def after_step(self, run, step, output):
    if step != self._step:
      return None
    if self._kill:
      raise KeyboardInterrupt
    return hook_base.Request(stop=True)


@pytest.fixture
def losses():
  """24 losses that are exact in float32. The tenth is a spike."""
  values = [1 + n / 1024 for n in range(24)]
  values[9] = 100.0
  return values


@pytest.fixture
def train(monkeypatch):
  """Trains a run; returns the sum of its batches and the steps it logged."""

  def call(directory, saved, losses, *, end=None, **options):
    guard = loss_spike_hook.LossSpikeHook(
      loss_spike_options.LossSpikeGuard(action='rewind', **_FEW | options)
    )
    run = fake_run.make_run(
      monkeypatch, directory, losses, saved=saved, hooks=[guard]
    )
    run.add_hooks([end or _End()])
    with contextlib.suppress(KeyboardInterrupt):
      train_loop.run_steps(run)
    return float(run.state.total), fake_run.logged_steps(directory)

  return call


def test_run_rewinds_and_skips_the_batches_of_a_spike(
  tmp_path, losses, train, warnings_logged
):
  """Batch 10 is a spike at step 10. Batches 9 and 10 are skipped."""
  saved = fake_run.Checkpoints()
  total, logged = train(tmp_path, saved, losses)
  assert total == sum(losses[:8]) + sum(losses[10:18])
  assert logged == [2, 4, 6, 8, 10, 12, 14, 16]
  assert sorted(saved.saved) == [4, 8, 12, 16]
  assert saved.meta(16)['skipped_batches'] == {'mono': 2}
  assert len(warnings_logged()) == 1


@pytest.mark.parametrize('step', [9, 11, 14])
@pytest.mark.parametrize('kill', [False, True])
def test_resumption_equals_an_uninterrupted_run(
  tmp_path, losses, train, step, kill
):
  """Step 11 is after the spike, and before the next checkpoint.

  Only a stop (not a kill) at step 9 saves another checkpoint, to which the run
  then rewinds.
  """
  uninterrupted = train(tmp_path / 'whole', fake_run.Checkpoints(), losses)
  saved = fake_run.Checkpoints()
  train(tmp_path / 'again', saved, losses, end=_End(step, kill=kill))
  total, logged = train(tmp_path / 'again', saved, losses)
  assert logged == uninterrupted[1]
  if step == 9 and not kill:
    assert total == sum(losses[:9]) + sum(losses[10:17])
  else:
    assert total == uninterrupted[0]


def test_state_after_a_spike_is_not_saved(
  tmp_path, losses, train, warnings_logged
):
  losses[8:10] = 100.0, 1.0
  saved = fake_run.Checkpoints()
  train(tmp_path, saved, losses, end=_End(9))
  assert sorted(saved.saved) == [4, 8]
  assert len(warnings_logged()) == 1


def test_too_many_rewinds_end_the_run(tmp_path, losses, train):
  losses[9:] = [100.0] * 100
  with pytest.raises(errors.TrainingError) as error:
    train(tmp_path, fake_run.Checkpoints(), losses, max_rewinds=3)
  assert_mentions(error.value, 'step 8', 4)


def test_without_a_checkpoint_the_run_rewinds_to_the_start(
  tmp_path, losses, train
):
  losses[2], losses[9] = 100.0, 1.0
  total, logged = train(tmp_path, fake_run.Checkpoints(), losses)
  assert total == sum(losses[4:20])
  assert logged[:2] == [2, 4]
