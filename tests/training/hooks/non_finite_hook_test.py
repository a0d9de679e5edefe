"""What ends a run whose steps are not finite."""

import types

import pytest

from xlflax.training import metric_accumulator, train_step
from xlflax.training.hooks import non_finite_hook
from xlflax.utils import errors


def _sums(**fields):
  return metric_accumulator.Sums(steps=10, **fields)


@pytest.mark.parametrize(
  ('fields', 'step', 'message'),
  [
    ({'skipped': 3, 'streak': 3}, 50, None),
    ({'skipped': 10, 'streak': 20}, 50, 'Got: 20 steps in a row'),
    ({'skipped': 10, 'streak': 10}, 100, 'No step is finite any more'),
    ({'unsound': 1}, 50, 'The parameters are not finite'),
  ],
)
def test_skipping_ends_where_nothing_is_learnt(fields, step, message, caplog):
  settings = types.SimpleNamespace(
    non_finite=train_step.NonFinite.SKIP, most_skipped=20, steps=100
  )
  if message is None:
    non_finite_hook.check_finite_step(
      _sums(**fields), step, settings, lambda: 7
    )
    assert 'Skipped 3 steps up to step 50' in caplog.text
    return
  with pytest.raises(errors.TrainingError, match=message) as error:
    non_finite_hook.check_finite_step(
      _sums(**fields), step, settings, lambda: 7
    )
  assert 'the last good checkpoint is step 7' in str(error.value)
