"""Errors for user-defined learning rate schedules with invalid values."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import assert_mentions
from xlflax.objectives.pretraining import masked_lm
from xlflax.training.optimization import optimizers, schedule_checks, schedules
from xlflax.utils import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class _UserSchedule(schedules.Schedule):
  """A user-defined schedule."""

  compute: Callable

  def __call__(self, step):
    return self.compute(step)


def _check(compute, num_steps=10):
  optimizer = optimizers.AdamW(learning_rate=_UserSchedule(compute=compute))
  schedule_checks.check_learning_rates(optimizer, num_steps)


@pytest.mark.parametrize(
  'compute, words',
  [
    (lambda step: 1e-3 * (1 - step / 5), ('-0.0002', 'step 6')),
    (lambda step: jnp.where(step == 9, -1.0, 1.0), ('-1', 'step 9')),
    (lambda step: -1e-3, ('-0.001', 'step 0')),
    (lambda step: 1e-3 / step, ('inf', 'step 0')),
    (lambda step: jnp.sqrt(3.0 - step), ('nan', 'step 4')),
  ],
)
def test_negative_and_infinite_rates_are_rejected(compute, words):
  with pytest.raises(errors.ConfigError) as caught:
    _check(compute)
  assert_mentions(
    caught.value, '_UserSchedule', 'schedule_checks_test.py', *words
  )


@pytest.mark.parametrize(
  'compute, words',
  [
    (lambda step: jnp.full((1,), 1e-3), ('[1]',)),
    (lambda step: np.ones((2, 3)), ('[2, 3]',)),
    (lambda step: None, ('None', 'return')),
    (lambda step: '0.1', ("'0.1'",)),
    (lambda step: step > 3, ('bool',)),
  ],
)
def test_non_scalar_rates_are_rejected(compute, words):
  with pytest.raises(errors.ConfigError) as caught:
    _check(compute)
  assert_mentions(caught.value, '_UserSchedule.__call__', 'scalar', *words)


def test_schedules_in_objectives_and_datasets_must_return_scalars():
  def objective(compute):
    return masked_lm.MaskedLM(
      mask_ratio=_UserSchedule(compute=compute), max_mask_ratio=0.5
    )

  schedule_checks.check_scalars([objective(lambda step: 0.1 + 0 * step), None])
  with pytest.raises(errors.ConfigError) as caught:
    schedule_checks.check_scalars([objective(lambda step: jnp.ones([2]))])
  assert_mentions(caught.value, '_UserSchedule.__call__', 'scalar', '[2]')


def test_schedules_of_learning_rate_overrides_are_checked():
  optimizer = optimizers.AdamW(
    learning_rate=1e-3,
    learning_rate_overrides=(
      ('heads/', _UserSchedule(compute=lambda step: 1.0 - step)),
    ),
  )
  with pytest.raises(errors.ConfigError, match='_UserSchedule'):
    schedule_checks.check_learning_rates(optimizer, 4)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ScheduledDecay(optimizers.AdamW):
  """A user-defined optimizer with a second schedule."""

  decay: schedules.Schedule


def test_other_schedules_of_an_optimizer_may_be_negative():
  schedule_checks.check_learning_rates(
    _ScheduledDecay(
      learning_rate=1e-3, decay=_UserSchedule(compute=lambda step: -1.0 * step)
    ),
    4,
  )
  with pytest.raises(errors.ConfigError, match='scalar'):
    schedule_checks.check_learning_rates(
      _ScheduledDecay(
        learning_rate=1e-3,
        decay=_UserSchedule(compute=lambda step: jnp.ones(2)),
      ),
      4,
    )


def test_exception_in_a_schedule_is_reported_with_its_class():
  def fail(step):
    raise KeyError('peak')

  with pytest.raises(errors.ConfigError) as caught:
    _check(fail)
  assert_mentions(caught.value, '_UserSchedule.__call__', 'peak')


@pytest.mark.parametrize(
  'compute',
  [
    lambda step: 1e-3,
    lambda step: 0,
    lambda step: np.float32(1e-3),
    lambda step: 1e-3 * (1 - step / 10),
    lambda step: 1e-3 * (1 + jnp.cos(jnp.pi * step / 9)) - 1e-10,
    lambda step: jnp.minimum(step**-0.5, step * 4**-1.5),
    lambda step: jax.pure_callback(
      lambda _: np.float32(1), jax.ShapeDtypeStruct((), jnp.float32), step
    ),
  ],
)
def test_valid_schedules_are_accepted(compute):
  for num_steps in (0, 1, 10):
    _check(compute, num_steps)


def test_long_schedules_are_sampled():
  _check(lambda step: 1.0 - step / 10**9, 10**9)
  with pytest.raises(errors.ConfigError):
    _check(lambda step: 0.9 - step / 10**9, 10**9)
