"""Errors for user-defined learning rate schedules with invalid values."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.errors import assert_mentions, raises_error
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Renamed(schedules.Peaked):
  """A schedule with a field that the run does not set."""

  num_steps: int | None = None

  def __call__(self, step):
    return self.peak_value * (1 - step / self.num_steps)


def test_a_field_that_the_run_does_not_set_is_named():
  optimizer = optimizers.AdamW(learning_rate=_Renamed(peak_value=1e-3))
  with raises_error(
    errors.ConfigError,
    mentions=('_Renamed.__call__', '_Renamed.num_steps', '`total_steps`'),
  ) as caught:
    schedule_checks.check_learning_rates(optimizer, 10)
  assert_mentions(caught.value.fix, '_Renamed.num_steps')
  assert 'peak_value' not in caught.value.fix


def test_other_exceptions_do_not_mention_the_fields_of_the_run():
  @dataclasses.dataclass(frozen=True, kw_only=True)
  class _Optional(schedules.Schedule):
    scale: float | None = None

    def __call__(self, step):
      raise KeyError('peak')

  with pytest.raises(errors.ConfigError) as caught:
    schedule_checks.check_scalars(_Optional())
  assert caught.value.fix is None


_LINEAR = schedules.Linear(peak_value=1e-3, total_steps=300_000)


@pytest.mark.parametrize(
  'rate, num_steps, maximum, name',
  [
    (0.25, 10, 0.25, 'constant'),
    (schedules.Constant(peak_value=2e-3), 10, 2e-3, 'Constant'),
    (
      dataclasses.replace(_LINEAR, warmup_steps=99_998),
      300_000,
      1e-3,
      'Linear',
    ),
    (schedules.Piecewise(values=(0.1, 0.3), boundaries=(8,)), 8, 0.1, None),
    (schedules.Piecewise(values=(0.1, 0.3), boundaries=(8,)), 9, 0.3, None),
    (
      _UserSchedule(compute=lambda step: 0.5 - step / 100),
      10,
      0.5,
      '_UserSchedule',
    ),
    (_UserSchedule(compute=lambda step: 1e-3), 10, 1e-3, '_UserSchedule'),
  ],
)
def test_the_maximum_learning_rate_of_a_run(rate, num_steps, maximum, name):
  optimizer = optimizers.AdamW(
    learning_rate=rate, learning_rate_overrides=(('heads/', 1e-5),)
  )
  first, second = schedule_checks.find_max_rates(optimizer, num_steps)
  assert first.pattern is None
  assert first.schedule == (name or 'Piecewise')
  assert first.maximum == pytest.approx(maximum, rel=1e-6)
  assert second == schedule_checks.MaxRate('heads/', 'constant', 1e-5)


def test_a_schedule_whose_maximum_is_unknown_is_still_named():
  callback = _UserSchedule(
    compute=lambda step: jax.pure_callback(
      lambda _: np.float32(1), jax.ShapeDtypeStruct((), jnp.float32), step
    )
  )
  optimizer = optimizers.AdamW(learning_rate=callback)
  assert schedule_checks.find_max_rates(optimizer, 4) == [
    schedule_checks.MaxRate(None, '_UserSchedule', None)
  ]


def _factor(step):
  return jnp.minimum(1.0, (step + 1) / 3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _OwnAdam(optimizers.Optimizer):
  steps_as_adam = True

  def make(self, rate):
    return optax.adam(rate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _OwnSGD(optimizers.Optimizer):
  def make(self, rate):
    return optax.sgd(rate)


@pytest.mark.parametrize('make', [optimizers.AdamW, optimizers.Muon, _OwnAdam])
def test_a_factor_in_place_of_a_learning_rate_causes_a_warning(make, caplog):
  optimizer = make(learning_rate=_UserSchedule(compute=_factor))
  schedule_checks.warn_of_high_rates(optimizer, 10)
  (record,) = caplog.records
  assert_mentions(
    record.getMessage(), '_UserSchedule', '1', type(optimizer).__name__
  )


@pytest.mark.parametrize(
  'optimizer',
  [
    optimizers.AdamW(learning_rate=_UserSchedule(compute=lambda step: 0.1)),
    optimizers.AdamW(learning_rate=schedules.Constant(peak_value=0.1)),
    optimizers.AdamW(learning_rate=0.1),
    # The warmup is longer than the run.
    optimizers.AdamW(
      learning_rate=schedules.Constant(peak_value=1.0, warmup_steps=1000)
    ),
    optimizers.SGD(learning_rate=5.0),
    optimizers.Adafactor(learning_rate=1.0),
    optimizers.Adafactor(learning_rate=0.3, multiply_by_parameter_scale=False),
    _OwnSGD(learning_rate=schedules.Linear(peak_value=5.0, total_steps=10)),
    optimizers.SGD(learning_rate=_UserSchedule(compute=_factor)),
    optimizers.Adafactor(learning_rate=_UserSchedule(compute=_factor)),
    _OwnSGD(learning_rate=_UserSchedule(compute=_factor)),
  ],
)
def test_usual_learning_rates_cause_no_warning(optimizer, caplog):
  schedule_checks.warn_of_high_rates(optimizer, 10)
  assert not caplog.records


_HIGH = schedules.Linear(peak_value=5e5, total_steps=10)


@pytest.mark.parametrize(
  'optimizer, mentions',
  [
    (
      optimizers.AdamW(
        learning_rate=_HIGH, learning_rate_overrides=(('^heads/', _HIGH),)
      ),
      ('5e+05', 'Linear', 'AdamW', 'LEARNING_RATE', '5e-5'),
    ),
    (optimizers.Adam(learning_rate=2.0), ('2', 'Adam', 'LEARNING_RATE')),
    (_OwnAdam(learning_rate=_HIGH), ('5e+05', '_OwnAdam', 'LEARNING_RATE')),
    (
      optimizers.AdamW(
        learning_rate=1e-3, learning_rate_overrides=(('^heads/', _HIGH),)
      ),
      ('^heads/', '5e+05', 'AdamW.learning_rate_overrides'),
    ),
    (
      optimizers.AdamW(
        learning_rate=schedules.Piecewise(values=(2.0, 1.0), boundaries=(5,))
      ),
      ('2', 'Piecewise'),
    ),
  ],
)
def test_high_rates_of_xlflax_schedules_cause_a_warning(
  optimizer, mentions, caplog
):
  schedule_checks.warn_of_high_rates(optimizer, 10)
  (record,) = caplog.records
  assert_mentions(record.getMessage(), *mentions)


@pytest.mark.parametrize(
  'compute, num_steps, warns',
  [
    (lambda step: 1e-3 * (step + 1) / 1000, 30, True),
    (lambda step: 1e-3 * (step + 1) / 1000, 5, False),
    (lambda step: 1e-3 * jnp.minimum((step + 1) / 20, 1.0), 30, False),
    (lambda step: 1e-3 * (1 - step / 30), 30, False),
    (lambda step: 1e-3, 30, False),
  ],
)
def test_schedule_that_rises_until_the_last_step_causes_a_warning(
  compute, num_steps, warns, caplog
):
  optimizer = optimizers.AdamW(learning_rate=_UserSchedule(compute=compute))
  schedule_checks.warn_of_unfinished_warmup(optimizer, num_steps)
  messages = [record.getMessage() for record in caplog.records]
  assert len(messages) == warns
  for message in messages:
    assert_mentions(message, '_UserSchedule', num_steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Cosine(schedules.Peaked):
  """Cosine decay over a number of steps of its own."""

  decay_steps: int = 100_000
  warmup_steps: int = 0

  def __call__(self, step):
    warmup = jnp.minimum(1.0, (step + 1) / (self.warmup_steps + 1))
    fraction = jnp.clip((step - self.warmup_steps) / self.decay_steps, 0, 1)
    return self.peak_value * warmup * (1 + jnp.cos(jnp.pi * fraction)) / 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class _TotalSteps(schedules.Peaked):
  """Linear decay whose default length is not that of the run."""

  total_steps: int = 1000

  def __call__(self, step):
    return self.peak_value * (1 - step / self.total_steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _StableDecay(schedules.Peaked):
  """Constant value, followed by a decay."""

  stable_steps: int = 1000
  decay_steps: int = 10

  def __call__(self, step):
    fraction = jnp.clip((step - self.stable_steps) / self.decay_steps, 0, 1)
    return self.peak_value * (1 - fraction)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _InverseSqrt(schedules.Peaked):
  """Slow decay with a time scale in steps."""

  scale_steps: int = 1000

  def __call__(self, step):
    return (
      self.peak_value * (self.scale_steps / (self.scale_steps + step)) ** 0.5
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Restarts(schedules.Peaked):
  """Cosine decays to half of the peak, with restarts."""

  cycle_steps: int = 1000

  def __call__(self, step):
    fraction = (step % self.cycle_steps) / self.cycle_steps
    return self.peak_value * (3 + jnp.cos(jnp.pi * fraction)) / 4


@pytest.mark.parametrize(
  ('rate', 'num_steps', 'field'),
  [
    (_Cosine(peak_value=1e-3), 60, '_Cosine.decay_steps'),
    (
      _Cosine(peak_value=1e-3, warmup_steps=20, decay_steps=200),
      60,
      '_Cosine.decay_steps',
    ),
    (_TotalSteps(peak_value=1e-3), 60, '_TotalSteps.total_steps'),
    # The schedule of a run that is extended later.
    (_TotalSteps(peak_value=1e-3, total_steps=2000), 60, None),
    (_Cosine(peak_value=1e-3, decay_steps=60), 60, None),
    (_Cosine(peak_value=1e-3, decay_steps=80), 60, None),
    (_Cosine(peak_value=1e-3), 5, None),
    (_Cosine(peak_value=0.0), 60, None),
    (_StableDecay(peak_value=1e-3), 60, None),
    (_InverseSqrt(peak_value=1e-3), 60, None),
    (_Restarts(peak_value=1e-3), 60, None),
    (schedules.Cosine(peak_value=1e-3, total_steps=1000), 60, None),
    (1e-3, 60, None),
  ],
)
def test_decay_after_the_last_step_causes_a_warning(
  rate, num_steps, field, caplog
):
  optimizer = optimizers.AdamW(learning_rate=rate)
  schedule_checks.warn_of_late_decay(optimizer, num_steps)
  messages = [record.getMessage() for record in caplog.records]
  assert len(messages) == (field is not None)
  for message in messages:
    assert_mentions(message, f'{field} = {num_steps}', 'total_steps', 'None')


def test_late_decay_of_overridden_rates_causes_a_warning(caplog):
  optimizer = optimizers.AdamW(
    learning_rate=1e-3,
    learning_rate_overrides=(('heads/', _Cosine(peak_value=1e-3)),),
  )
  schedule_checks.warn_of_late_decay(optimizer, 60)
  assert_mentions(caplog.text, '_Cosine.decay_steps', '100,000', 60)


@pytest.mark.parametrize(
  ('compute', 'num_warnings'),
  [
    # The factor sqrt(warmup_steps) is missing.
    (
      lambda s: 1e-3 * jnp.where(s < 20, s / 20, jnp.maximum(s, 1.0) ** -0.5),
      1,
    ),
    (
      lambda s: (
        1e-3 * jnp.where(s < 20, s / 20, (20 / jnp.maximum(s, 1.0)) ** 0.5)
      ),
      0,
    ),
    # Steps, warm restarts, and a drop at the last step.
    (lambda s: 1e-3 * jnp.minimum(s / 10, 1) * jnp.where(s < 50, 1, 0.1), 0),
    (lambda s: 1e-3 * (1 - (s % 20) / 20), 0),
    (lambda s: 1e-3 * jnp.where(s < 99, s / 100, 0.1), 0),
    (lambda s: 1e-3, 0),
  ],
)
def test_drop_after_the_warmup_causes_a_warning(compute, num_warnings, caplog):
  optimizer = optimizers.AdamW(learning_rate=_UserSchedule(compute=compute))
  schedule_checks.warn_of_drop_after_warmup(optimizer, 100)
  messages = [record.getMessage() for record in caplog.records]
  assert len(messages) == num_warnings
  for message in messages:
    assert_mentions(message, '_UserSchedule', 19, 'sqrt(warmup_steps)')


@pytest.mark.parametrize(
  ('rate', 'head_rate', 'has_warning'),
  [
    (0.0, None, True),
    (0.0, 0.0, True),
    (schedules.Linear(peak_value=0.0, total_steps=8), None, True),
    (schedules.WSD(peak_value=0.0, total_steps=8, warmup_steps=2), 0.0, True),
    (0.0, 1e-3, False),
    (1e-3, 0.0, False),
    (schedules.Linear(peak_value=1e-9, total_steps=1), None, False),
    (
      schedules.Linear(peak_value=1e-9, total_steps=2, warmup_steps=1),
      0,
      False,
    ),
    (schedules.Piecewise(values=(0.0, 1e-3), boundaries=(7,)), None, False),
  ],
)
def test_learning_rate_of_zero_causes_a_warning(
  rate, head_rate, has_warning, caplog
):
  rates = () if head_rate is None else (('^heads/', head_rate),)
  optimizer = optimizers.AdamW(
    learning_rate=rate, learning_rate_overrides=rates
  )
  schedule_checks.warn_of_zero_rates(optimizer, getattr(rate, 'total_steps', 8))
  messages = [record.getMessage() for record in caplog.records]
  assert len(messages) == has_warning
  for message in messages:
    assert_mentions(message, 'LEARNING_RATE', 'all steps')


@pytest.mark.parametrize(
  'rate',
  [
    # The value is 0 because of an integer division.
    _UserSchedule(compute=lambda step: 1e-3 * (step // 1000)),
    schedules.Piecewise(values=(0.0, 0.0), boundaries=(7,)),
  ],
)
def test_schedule_of_zeros_is_named(rate, caplog):
  optimizer = optimizers.AdamW(learning_rate=rate)
  schedule_checks.warn_of_zero_rates(optimizer, 8)
  (record,) = caplog.records
  assert_mentions(record.getMessage(), type(rate).__name__)
  assert 'LEARNING_RATE' not in record.getMessage()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _FixedLinear(schedules.Schedule):
  """A linear decay with its own number of steps."""

  num_warmup_steps: int = 2
  num_decay_steps: int = 20

  def __call__(self, step):
    return 1e-3 * jnp.maximum(0.0, 1 - step / self.num_decay_steps)


@pytest.mark.parametrize(
  'rate, num_steps, end, mentions',
  [
    (_FixedLinear(), 60, 20, ('_FixedLinear.num_decay_steps', '`total_steps`')),
    (_FixedLinear(), 400, 20, ('_FixedLinear.num_decay_steps',)),
    (
      _FixedLinear(num_decay_steps=120_001),
      300_000,
      '120,001',
      ('_FixedLinear.num_decay_steps',),
    ),
    (
      schedules.Linear(peak_value=1e-3, total_steps=20, warmup_steps=3),
      60,
      20,
      ('Linear.total_steps',),
    ),
    (
      schedules.Piecewise(values=(1e-3, 0.0), boundaries=(20,)),
      60,
      20,
      ('Piecewise',),
    ),
    (
      _UserSchedule(compute=lambda step: jnp.where(step < 20, 1e-3, 0.0)),
      60,
      20,
      ('_UserSchedule.__call__',),
    ),
  ],
)
def test_zeros_at_the_end_of_a_run_cause_a_warning(
  rate, num_steps, end, mentions, caplog
):
  optimizer = optimizers.AdamW(
    learning_rate=rate, learning_rate_overrides=(('^heads/', 0.0),)
  )
  schedule_checks.warn_of_zero_rates(optimizer, num_steps)
  (record,) = caplog.records
  assert_mentions(record.getMessage(), end, f'{num_steps:,}', *mentions)
  assert 'all steps' not in record.getMessage()


@pytest.mark.parametrize(
  'rate, num_steps',
  [
    (schedules.Linear(peak_value=1e-3, total_steps=60), 60),
    (schedules.Linear(peak_value=1e-3, total_steps=59), 60),
    (schedules.Cosine(peak_value=1e-3, total_steps=100_000), 100_000),
    (schedules.WSD(peak_value=1e-3, total_steps=300_000), 300_000),
    (_FixedLinear(num_decay_steps=58), 60),
    (_FixedLinear(num_decay_steps=990), 1000),
    (schedules.Piecewise(values=(0.0, 1e-3), boundaries=(400,)), 401),
    (_UserSchedule(compute=lambda step: 1e-3 * (step % 2)), 9),
    (
      _UserSchedule(
        compute=lambda step: jax.pure_callback(
          lambda _: np.float32(0), jax.ShapeDtypeStruct((), jnp.float32), step
        )
      ),
      60,
    ),
  ],
)
def test_zeros_at_a_few_steps_cause_no_warning(rate, num_steps, caplog):
  optimizer = optimizers.AdamW(learning_rate=rate)
  schedule_checks.warn_of_zero_rates(optimizer, num_steps)
  assert not caplog.records


@pytest.mark.parametrize(
  'compute, num_steps, first, last',
  [
    (lambda step: 1e-3 * jnp.minimum(1.0, step // 10), 40, 0, 9),
    (lambda step: 1e-3 * jnp.minimum(1.0, step // 3), 40, 0, 2),
    (lambda step: 1e-3 * (step // 20 != 1), 100, 20, 39),
    (
      lambda step: 1e-3 * jnp.minimum(1.0, step // 20_000),
      300_000,
      0,
      '19,999',
    ),
  ],
)
def test_zeros_of_a_user_defined_schedule_cause_a_warning(
  compute, num_steps, first, last, caplog
):
  optimizer = optimizers.AdamW(learning_rate=_UserSchedule(compute=compute))
  schedule_checks.warn_of_zero_rates(optimizer, num_steps)
  (record,) = caplog.records
  assert_mentions(
    record.getMessage(),
    f'step {first}',
    f'step {last}',
    '_UserSchedule.__call__',
    'step // warmup_steps',
  )


@pytest.mark.parametrize(
  'compute, num_steps',
  [
    (lambda step: 1e-3 * jnp.minimum(1.0, step // 2), 40),
    (lambda step: 1e-3 * jnp.minimum(1.0, step // 10), 1000),
    # Restarts that reach 0, and updates in every second step.
    (lambda step: 1e-3 * (1 - (step % 10) / 9), 100),
    (lambda step: 1e-3 * (step % 2), 200_000),
  ],
)
def test_few_zeros_of_a_user_defined_schedule_cause_no_warning(
  compute, num_steps, caplog
):
  optimizer = optimizers.AdamW(learning_rate=_UserSchedule(compute=compute))
  schedule_checks.warn_of_zero_rates(optimizer, num_steps)
  assert not caplog.records


def test_parameters_that_are_trained_later_cause_no_warning(caplog):
  late = _UserSchedule(compute=lambda step: 1e-3 * (step >= 20))
  for optimizer in (
    optimizers.AdamW(
      learning_rate=late, learning_rate_overrides=(('^heads/', 1e-3),)
    ),
    optimizers.AdamW(
      learning_rate=schedules.Piecewise(values=(0.0, 1e-3), boundaries=(20,))
    ),
  ):
    schedule_checks.warn_of_zero_rates(optimizer, 40)
  assert not caplog.records


def test_zeros_of_some_parameters_cause_no_warning(caplog):
  optimizer = optimizers.AdamW(
    learning_rate=_FixedLinear(), learning_rate_overrides=(('heads/', 1e-4),)
  )
  schedule_checks.warn_of_zero_rates(optimizer, 60)
  assert not caplog.records


def test_absolute_adafactor_is_checked(caplog):
  optimizer = optimizers.Adafactor(
    learning_rate=_UserSchedule(compute=_factor),
    multiply_by_parameter_scale=False,
  )
  schedule_checks.warn_of_high_rates(optimizer, 10)
  assert len(caplog.records) == 1


@pytest.mark.parametrize(
  'rate, mentions',
  [
    (_LINEAR, ('LEARNING_RATE', 'WARMUP_STEPS')),
    (1.0, ('LEARNING_RATE',)),
    (_UserSchedule(compute=_factor), ('_UserSchedule', '1')),
    (schedules.Piecewise(values=(0.5,), boundaries=()), ('Piecewise', '0.5')),
  ],
)
def test_the_setting_that_lowers_a_learning_rate(rate, mentions):
  text = schedule_checks.suggest_lower_rate(
    optimizers.AdamW(learning_rate=rate), 10
  )
  assert_mentions(text, *mentions)
  assert ('LEARNING_RATE' in text) == ('LEARNING_RATE' in mentions)
  assert ('WARMUP_STEPS' in text) == ('WARMUP_STEPS' in mentions)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _UserPeaked(schedules.Peaked):
  """A user-defined schedule with a peak value.

  Attributes:
    factor: Ratio of the maximum to the peak value.
  """

  factor: float

  def __call__(self, step):
    return self.factor * self.peak_value * (1 + jnp.cos(step / 100))


@pytest.mark.parametrize(
  ('factor', 'num_warnings'), [(0.5, 0), (1.0, 1), (0.1, 1), (-0.1, 0)]
)
def test_maximum_that_differs_from_the_peak_causes_a_warning(
  factor, num_warnings, caplog
):
  schedule = _UserPeaked(peak_value=2e-3, factor=factor)
  optimizer = optimizers.AdamW(learning_rate=schedule)
  schedule_checks.warn_of_other_maximum(optimizer, 100)
  assert len(caplog.records) == num_warnings
  if num_warnings:
    maximum = f'{4e-3 * factor:.4g}'
    assert_mentions(caplog.text, '_UserPeaked', maximum, '0.002', 'peak_value')


@dataclasses.dataclass(frozen=True, kw_only=True)
class _WarmupCosine(schedules.Peaked):
  """A cosine decay after a warmup of 10 steps.

  Attributes:
    boundary: Step at which the decay starts.
  """

  boundary: int
  total_steps: int | None = None

  def __call__(self, step):
    return optax.join_schedules(
      [
        optax.linear_schedule(0.0, self.peak_value, 10),
        optax.cosine_decay_schedule(self.peak_value, 90),
      ],
      [self.boundary],
    )(step)


@pytest.mark.parametrize(
  ('boundary', 'total_steps', 'num_warnings'),
  [(10, 100, 0), (100, 100, 1), (100, 200, 0), (100, None, 0)],
)
def test_schedule_that_does_not_decay_causes_a_warning(
  boundary, total_steps, num_warnings, caplog
):
  schedule = _WarmupCosine(
    peak_value=1e-3, boundary=boundary, total_steps=total_steps
  )
  optimizer = optimizers.AdamW(learning_rate=schedule)
  schedule_checks.warn_of_missing_decay(optimizer, 100)
  assert len(caplog.records) == num_warnings
  if num_warnings:
    assert_mentions(caplog.text, '_WarmupCosine.__call__', '0.001')
