"""Loss and gradient of sequence regression."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlflax.objectives.finetuning import sequence_regression

_PREDICTIONS = jnp.array([1.0, 2.0, -3.0])
_GOLD = jnp.array([4.0, jnp.nan, -2.0])
_LANGUAGES = jnp.array([0, 0, 1])


def _loss(predictions, gold=_GOLD):
  out = sequence_regression.squared_error('r', predictions, gold, _LANGUAGES, 2)
  return out.loss.total / out.loss.weight, out


@pytest.mark.parametrize('run', [lambda f: f, jax.jit])
def test_loss_computed_by_hand(run):
  value = run(lambda predictions: _loss(predictions)[0])(_PREDICTIONS)
  assert float(value) == pytest.approx((9 + 1) / 2)
  metric = _loss(_PREDICTIONS)[1].metrics['r/loss']
  np.testing.assert_allclose(metric.total, [9, 1])
  np.testing.assert_allclose(metric.weight, [1, 1])


def test_gradient_of_missing_values_is_zero():
  gradient = jax.grad(lambda x: _loss(x)[0])(_PREDICTIONS)
  np.testing.assert_allclose(gradient, [-3, 0, -1])


def test_floats_round_trip_through_int32_bits():
  numbers = np.array([3.2, -0.0, 5.0], np.float32)
  back = jax.lax.bitcast_convert_type(
    jnp.array(numbers.view(np.int32)), jnp.float32
  )
  np.testing.assert_array_equal(back, numbers)
  # The fill value -1 of missing values is NaN.
  fill = jax.lax.bitcast_convert_type(jnp.int32(-1), jnp.float32)
  assert bool(jnp.isnan(fill))
