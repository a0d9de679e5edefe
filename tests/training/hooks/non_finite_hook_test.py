"""Tests of stopping a run after non-finite steps."""

import types

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.training import metric_accumulator, train_step
from xlflax.training.hooks import non_finite_hook
from xlflax.utils import errors


def _sums(**fields):
  return metric_accumulator.Sums(steps=10, **fields)


@pytest.mark.parametrize(
  ('fields', 'step', 'message'),
  [
    ({'skipped': 3, 'streak': 3}, 50, None),
    ({'skipped': 10, 'streak': 20}, 50, 20),
    ({'skipped': 10, 'streak': 10}, 100, 10),
    ({'unsound': 1}, 50, '1 of the last 10'),
  ],
)
def test_too_many_skipped_steps_stop_the_run(fields, step, message, caplog):
  settings = types.SimpleNamespace(
    non_finite=train_step.NonFinitePolicy.SKIP,
    max_consecutive_skips=20,
    steps=100,
  )
  if message is None:
    non_finite_hook.check_finite_step(
      _sums(**fields), step, settings, lambda: 7
    )
    assert_mentions(caplog.text, 3, 50)
    return
  with raises_error(errors.TrainingError, mentions=(message, step)) as error:
    non_finite_hook.check_finite_step(
      _sums(**fields), step, settings, lambda: 7
    )
  assert_mentions(error.value, 'step 7')
