"""Tests of the default learning rate."""

import dataclasses

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.training.optimization import (
  default_learning_rate,
  optimizers,
  schedules,
)
from xlflax.utils import errors

_SMALL = default_learning_rate.Basis(width=128, tokens=2_560, steps=3_000)
_BASE = default_learning_rate.Basis(width=768, tokens=256 * 256, steps=100_000)


def test_reference_point_of_the_rule():
  assert _SMALL.peak() == 8e-3
  assert _SMALL.words() == (
    '8.0e-3, from width 128, 2,560 tokens per step, 3,000 steps. '
    'Set LEARNING_RATE to override it'
  )


@pytest.mark.parametrize('post_norm', [False, True])
@pytest.mark.parametrize('steps', [100_000, 500_000])
def test_rate_of_base_models_is_near_published_rates(post_norm, steps):
  variant = dataclasses.replace(_BASE, post_norm=post_norm, steps=steps)
  assert 1e-4 <= variant.peak() <= 8e-4  # BERT's is 1e-4, XLM-R's 7e-4


def test_factors_of_the_rule_equal_values_computed_by_hand():
  """The rate is halved for twice the width, and limited for large batches."""
  change = dataclasses.replace
  assert change(_SMALL, width=256).peak() == 4e-3
  assert change(_SMALL, tokens=640).peak() == 4e-3
  assert change(_SMALL, width=512, tokens=10_240).peak() == 4e-3
  assert change(_SMALL, width=512, tokens=10**6).peak() == 4e-3
  assert change(_SMALL, steps=30_000).peak() == 2.5e-3  # 10 ** -0.5
  assert change(_SMALL, post_norm=True).peak() == 4e-3
  assert change(_SMALL, continued=True).peak() == 5e-4
  assert change(_SMALL, continued=True, steps=2).peak() == 5e-4
  assert change(_SMALL, width=16).peak() == 1.1e-2  # upper limit
  description = change(_SMALL, post_norm=True, continued=True).words()
  assert_mentions(description, 'post-norm')


def test_description_contains_active_limits():
  short = dataclasses.replace(_SMALL, continued=True, steps=8, tokens=20_480)
  text = short.words()
  assert_mentions(text, '20,480', '10,240', '8', '3,000', 'minimum')
  assert_mentions(dataclasses.replace(_SMALL, steps=8).words(), '1.1e-2')
  assert short.peak() == pytest.approx(8e-3 * 2 / 16)


def test_only_the_peak_is_filled_in():
  schedule = schedules.WSD(peak_value=None, total_steps=9, warmup_steps=3)
  optimizer = optimizers.Muon(learning_rate=schedule)
  assert default_learning_rate.is_open(optimizer)
  filled = default_learning_rate.with_peak(optimizer, _SMALL)
  assert filled == optimizers.Muon(
    learning_rate=dataclasses.replace(schedule, peak_value=8e-3)
  )
  assert not default_learning_rate.is_open(filled)
  assert not default_learning_rate.is_open(optimizers.Muon(learning_rate=1.0))


@pytest.mark.parametrize('kind', [optimizers.SGD, optimizers.Adafactor])
def test_sgd_and_adafactor_have_no_default_learning_rate(kind):
  optimizer = kind(learning_rate=schedules.Constant(peak_value=None))
  with raises_error(
    errors.ConfigError, mentions=(kind.__name__, 'LEARNING_RATE')
  ):
    default_learning_rate.with_peak(optimizer, _SMALL)


@pytest.mark.parametrize(
  'schedule',
  [
    schedules.Constant(peak_value=None),
    schedules.Linear(peak_value=None, total_steps=9),
    schedules.Cosine(peak_value=None, total_steps=9),
    schedules.WSD(peak_value=None, total_steps=9),
    schedules.InverseSqrt(peak_value=None, warmup_steps=3),
  ],
)
def test_schedule_without_a_peak_is_an_error(schedule):
  with raises_error(
    errors.ConfigError, mentions=(type(schedule).__name__, 'peak_value')
  ):
    schedule(0)
