"""Tests of the declarations of metrics."""

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.evaluation.metrics.metric import Better, Metric, Unit
from xlflax.utils import errors


def test_a_metric_without_a_direction_is_rejected():
  with raises_error(
    errors.ConfigError,
    expected='one of Better.HIGHER, Better.LOWER, Better.NEITHER',
    where='Metric',
    mentions='better',
  ):
    Metric('error_rate')  # type: ignore[call-arg]


@pytest.mark.parametrize('better', [Unit.POINTS, False, 'down', None])
def test_a_value_that_is_not_a_direction_is_rejected(better):
  with raises_error(errors.ConfigError, where='Metric.better'):
    Metric('error_rate', better)


def test_a_direction_is_accepted_by_its_value():
  assert Metric('error_rate', 'lower').better is Better.LOWER  # type: ignore[arg-type]


@pytest.mark.parametrize(
  'better, unit, best',
  [
    (Better.HIGHER, Unit.FRACTION, 1.0),
    (Better.HIGHER, Unit.POINTS, 100.0),
    (Better.LOWER, Unit.FRACTION, 0.0),
    (Better.HIGHER, Unit.UNBOUNDED, None),
    (Better.NEITHER, Unit.FRACTION, None),
  ],
)
def test_the_best_possible_value_follows_direction_and_unit(better, unit, best):
  declared = Metric('score', better, unit)
  values = [v for v in (0.0, 0.5, 1.0, 100.0) if declared.is_best_possible(v)]
  assert values == ([] if best is None else [best])


@pytest.mark.parametrize(
  ('name', 'better', 'usual'),
  [
    ('error_rate', Better.HIGHER, 'LOWER'),
    ('accuracy', Better.LOWER, 'HIGHER'),
    ('error_rate', Better.LOWER, None),
    ('errors', Better.NEITHER, None),
    ('reconstruction', Better.HIGHER, None),
  ],
)
def test_unusual_directions_cause_a_warning(name, better, usual, caplog):
  Metric(name, better)
  messages = [record.getMessage() for record in caplog.records]
  assert len(messages) == (usual is not None)
  for message in messages:
    assert_mentions(message, name, f'Better.{better.name}', f'Better.{usual}')
