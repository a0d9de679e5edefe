"""Tests of metrics accumulated between reports and stored as JSON."""

import json
import math

import jax.numpy as jnp
import numpy as np
import pytest

from xlflax.objectives import objective_base
from xlflax.training import metric_accumulator, train_step


def _output(
  loss, *, finite=True, tokens=10.0, norm=1.0, total=(1.0, 2.0), moved=1.0
):
  return train_step.StepOutput(
    metrics={
      'mlm/loss': objective_base.WeightedMean(jnp.asarray(total), jnp.ones(2)),
      'mlm/rows': objective_base.WeightedMean(
        jnp.float32(3.0), jnp.float32(1.0)
      ),
    },
    loss=jnp.float32(loss),
    grad_norm=jnp.float32(norm),
    finite=jnp.asarray(finite),
    param_norm=jnp.float32(moved),
    tokens=jnp.float32(tokens),
  )


def _filled(*outputs):
  accumulator = metric_accumulator.MetricAccumulator()
  for output in outputs:
    accumulator.add(output)
  return accumulator


def test_means_and_sums_are_accumulated():
  sums = _filled(_output(1.0, norm=2.0), _output(4.0, norm=5.0)).peek()
  assert (sums.steps, sums.skipped, sums.loss, sums.grad_norm, sums.tokens) == (
    2,
    0,
    2.5,
    3.5,
    20.0,
  )
  total, weight = sums.metrics['mlm/loss']
  np.testing.assert_array_equal(total, [2.0, 4.0])
  np.testing.assert_array_equal(weight, [2.0, 2.0])
  assert total.dtype == np.float64


def test_non_finite_steps_are_counted_and_excluded():
  nan = float('nan')
  sums = _filled(
    _output(1.0),
    _output(nan, finite=False, norm=nan, total=(nan, nan)),
    _output(3.0),
  ).peek()
  assert (sums.steps, sums.skipped, sums.loss, sums.grad_norm) == (3, 1, 2, 1)
  np.testing.assert_array_equal(sums.metrics['mlm/loss'][0], [2.0, 4.0])
  assert sums.tokens == 30.0  # Tokens of skipped steps are counted.


def test_loss_without_finite_steps_is_nan():
  sums = _filled(_output(math.inf, finite=False)).peek()
  assert math.isnan(sums.loss) and sums.skipped == 1 and not sums.metrics


def test_take_resets_and_peek_does_not():
  accumulator = _filled(_output(1.0))
  assert accumulator.peek().steps == accumulator.peek().steps == 1
  assert accumulator.take().loss == 1.0
  assert accumulator.peek().steps == 0
  accumulator.add(_output(5.0))
  assert accumulator.take().loss == 5.0


def _values(i):
  rng = np.random.default_rng(i)
  return _output(
    rng.normal(),
    norm=rng.random(),
    tokens=rng.integers(1, 99),
    total=tuple(rng.normal(size=2).astype(np.float32)),
  )


@pytest.mark.parametrize('cut', [0, 1, 4, 7])
def test_accumulator_is_restored_bit_exactly(cut):
  outputs = [_values(i) for i in range(7)]
  uninterrupted = _filled(*outputs).take()
  saved = json.loads(json.dumps(_filled(*outputs[:cut]).to_json()))
  accumulator = metric_accumulator.MetricAccumulator.from_json(saved)
  for output in outputs[cut:]:
    accumulator.add(output)
  assert accumulator.to_json() == _filled(*outputs).to_json()
  resumed = accumulator.take()
  for field in ('steps', 'skipped', 'loss', 'grad_norm', 'tokens'):
    assert getattr(resumed, field) == getattr(uninterrupted, field)
  for name, (total, weight) in uninterrupted.metrics.items():
    np.testing.assert_array_equal(resumed.metrics[name][0], total)
    np.testing.assert_array_equal(resumed.metrics[name][1], weight)
    assert resumed.metrics[name][0].shape == total.shape


def test_streaks_of_non_finite_steps_are_counted():
  """A streak continues across reports and checkpoints."""
  bad = _output(math.nan, finite=False)
  accumulator = _filled(_output(1.0), bad, bad)
  assert accumulator.take().streak == 2
  accumulator.add(bad)
  again = metric_accumulator.MetricAccumulator.from_json(
    json.loads(json.dumps(accumulator.to_json()))
  )
  again.add(bad)
  assert again.peek().streak == 4
  again.add(_output(1.0, moved=math.inf))
  sums = again.peek()
  assert (sums.streak, sums.unsound) == (0, 1)
