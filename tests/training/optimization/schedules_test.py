"""Tests of schedules, compared with values computed by hand."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.objectives.pretraining import masked_lm
from xlflax.training.optimization import optimizers, schedules
from xlflax.utils import errors


def _values(schedule, steps):
  return [float(schedule(s)) for s in steps]


def test_constant_warms_up_and_stays_constant():
  schedule = schedules.Constant(peak_value=2.0, warmup_steps=4)
  assert _values(schedule, [0, 1, 2, 3, 4, 5, 1000]) == pytest.approx(
    [0, 0.5, 1.0, 1.5, 2.0, 2.0, 2.0]
  )


def test_first_step_without_warmup_has_the_peak_value():
  assert float(schedules.Constant(peak_value=2.0)(0)) == 2.0
  assert float(schedules.Linear(peak_value=2.0, total_steps=4)(0)) == 2.0


def test_linear_decays_to_the_end_value():
  schedule = schedules.Linear(
    peak_value=1.0, total_steps=10, warmup_steps=2, end_value=0.2
  )
  assert _values(schedule, [0, 1, 2, 6, 10, 11]) == pytest.approx(
    [0, 0.5, 1.0, 0.6, 0.2, 0.2]
  )


@pytest.mark.parametrize('make', [schedules.Linear, schedules.Cosine])
def test_fractional_warmup_is_relative_to_the_total_steps(make):
  """A tenth of 25 steps, rounded up."""
  share = make(peak_value=1.0, total_steps=25, warmup_steps=0.1)
  steps = make(peak_value=1.0, total_steps=25, warmup_steps=3)
  assert _values(share, range(26)) == _values(steps, range(26))
  with raises_error(errors.ConfigError, got=2.5):
    make(peak_value=1.0, total_steps=25, warmup_steps=2.5)


def test_cosine_decays_over_half_a_period():
  schedule = schedules.Cosine(
    peak_value=1.0, total_steps=10, warmup_steps=2, end_value=0.1
  )
  quarter = 0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2
  assert _values(schedule, [1, 2, 4, 6, 10, 20]) == pytest.approx(
    [0.5, 1.0, quarter, 0.55, 0.1, 0.1]
  )


def test_inverse_sqrt_decays_after_the_warmup():
  schedule = schedules.InverseSqrt(peak_value=1.0, warmup_steps=4)
  assert _values(schedule, [0, 2, 3, 4, 16, 64, 400]) == pytest.approx(
    [0, 0.5, 0.75, 1.0, 0.5, 0.25, 0.1]
  )


def test_piecewise_changes_at_its_boundaries():
  schedule = schedules.Piecewise(values=(0.7, 0.5, 0.3), boundaries=(10, 20))
  assert _values(schedule, [0, 9, 10, 19, 20, 1000]) == pytest.approx(
    [0.7, 0.7, 0.5, 0.5, 0.3, 0.3]
  )


@pytest.mark.parametrize(
  'schedule',
  [
    schedules.Linear(peak_value=1.0, total_steps=9, warmup_steps=3),
    schedules.Cosine(peak_value=1.0, total_steps=9, warmup_steps=3),
    schedules.WSD(peak_value=1.0, total_steps=9, warmup_steps=3),
    schedules.InverseSqrt(peak_value=1.0, warmup_steps=3),
  ],
)
def test_schedules_have_the_same_values_under_jit(schedule):
  inside = jax.jit(lambda s: schedule(s))
  for step in (0, 2, 3, 7):
    assert float(inside(jnp.int32(step))) == pytest.approx(
      float(schedule(step)), rel=1e-6
    )


def test_inverse_sqrt_requires_a_warmup():
  with raises_error(
    errors.ConfigError, got=0, where='InverseSqrt.warmup_steps'
  ):
    schedules.InverseSqrt(peak_value=1.0, warmup_steps=0)


@pytest.mark.parametrize('make', [schedules.Linear, schedules.Cosine])
def test_warmup_must_be_shorter_than_the_run(make):
  with raises_error(
    errors.ConfigError,
    got=10,
    where=f'{make.__name__}.warmup_steps',
    mentions=('total_steps', 10),
  ):
    make(peak_value=1.0, total_steps=10, warmup_steps=10)


@pytest.mark.parametrize(
  ('values', 'boundaries'),
  [
    ((1.0, 2.0), ()),
    ((1.0,), (5,)),
    ((1.0, 2.0, 3.0), (5, 4)),
    ((1.0, 2.0, 3.0), (5, 5)),
  ],
)
def test_piecewise_rejects_wrong_numbers_of_values(values, boundaries):
  with raises_error(
    errors.ConfigError, mentions=(len(values), list(boundaries))
  ):
    schedules.Piecewise(values=values, boundaries=boundaries)


def test_negative_warmup_is_rejected():
  with raises_error(
    errors.ConfigError, mentions=('Constant.warmup_steps', '-1')
  ):
    schedules.Constant(peak_value=1.0, warmup_steps=-1)


def test_warmup_longer_than_the_run_becomes_a_tenth_of_it(caplog):
  """For example, a trial run has 40 steps and the default warmup has 1,000."""
  schedule = schedules.Linear(peak_value=1.0, warmup_steps=1000)
  resolved = schedules.resolve_schedules(schedule, 40)
  assert resolved == schedules.Linear(
    peak_value=1.0, warmup_steps=4, total_steps=40
  )
  assert_mentions(caplog.text, '1,000', 4)
  assert float(schedules.resolve_schedules(schedule, 1)(0)) == 1.0
  unchanged = schedules.resolve_schedules(schedule, 1001)
  assert unchanged.warmup_steps == 1000


@pytest.mark.parametrize(
  'schedule',
  [
    schedules.InverseSqrt(peak_value=1.0, warmup_steps=40),
    schedules.Constant(peak_value=1.0, warmup_steps=40),
    schedules.Linear(peak_value=1.0, warmup_steps=0.4, total_steps=100),
  ],
)
def test_fixed_warmup_longer_than_the_run_is_reported(caplog, schedule):
  optimizer = optimizers.AdamW(learning_rate=schedule)
  assert schedules.resolve_schedules(optimizer, 41) == optimizer
  assert not caplog.text
  assert schedules.resolve_schedules(optimizer, 40) == optimizer
  field = f'{type(schedule).__name__}.warmup_steps'
  assert_mentions(caplog.text, 'warmup of 40', 'run of 40', field)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _SquareRootDecay(schedules.Peaked):
  """Schedule of a user, with a warmup of its own."""

  warmup_steps: int = 1000
  total_steps: int | None = None

  def __call__(self, step):
    warmup = jnp.minimum(1.0, (step + 1) / self.warmup_steps)
    return self.peak_value * warmup * (1 - step / self.total_steps) ** 0.5


@pytest.mark.parametrize('total_steps', [None, 40])
def test_long_warmup_of_user_defined_schedules_is_reported(caplog, total_steps):
  schedule = _SquareRootDecay(peak_value=1.0, total_steps=total_steps)
  resolved = schedules.resolve_schedules(schedule, 40)
  assert (resolved.warmup_steps, resolved.total_steps) == (1000, 40)
  assert_mentions(caplog.text, '1,000', 40, '_SquareRootDecay.warmup_steps')


def test_numbers_of_steps_in_messages_agree_with_their_nouns(caplog):
  schedules.resolve_schedules(
    schedules.Linear(peak_value=1.0, warmup_steps=1000), 10
  )
  assert_mentions(caplog.text, '1,000 steps', '10 steps', '1 step ')


def test_schedules_without_warmup_are_not_reported(caplog):
  values = (
    schedules.Constant(peak_value=1.0),
    schedules.Linear(peak_value=1.0, total_steps=9),
    schedules.Piecewise(values=(1.0, 2.0), boundaries=(5,)),
  )
  schedules.resolve_schedules(values, 1)
  assert not caplog.text


def test_wsd_is_constant_before_the_decay():
  """The schedule has 2 warmup steps, 4 constant steps and 4 decay steps."""
  linear = schedules.WSD(
    peak_value=1.0,
    total_steps=10,
    warmup_steps=2,
    decay_steps=4,
    decay_shape='linear',
  )
  assert _values(linear, [0, 1, 2, 5, 6, 7, 8, 10, 12]) == pytest.approx(
    [0, 0.5, 1.0, 1.0, 1.0, 0.75, 0.5, 0.0, 0.0]
  )
  root = schedules.WSD(
    peak_value=1.0, total_steps=10, decay_steps=4, end_value=0.2
  )
  assert _values(root, [0, 6, 7, 10, 11]) == pytest.approx(
    [1.0, 1.0, 0.6, 0.2, 0.2]
  )


def test_wsd_decays_over_a_fraction_of_the_run():
  share = schedules.resolve_schedules(
    schedules.WSD(peak_value=1.0, decay_steps=0.25), 25
  )
  assert _values(share, [18, 25]) == [1.0, 0.0]  # the last seven steps
  assert float(share(19)) < 1.0
  full_schedule = schedules.WSD(
    peak_value=1.0, total_steps=4, decay_steps=4, decay_shape='linear'
  )
  assert _values(full_schedule, range(5)) == [1.0, 0.75, 0.5, 0.25, 0.0]


@pytest.mark.parametrize(
  ('schedule', 'phases'),
  [
    (
      schedules.WSD(peak_value=1.0, warmup_steps=5, decay_steps=20),
      'warmup to step 5, decay from step 40 to 60',
    ),
    (
      schedules.WSD(peak_value=1.0, decay_steps=0.2),
      'decay from step 48 to 60',
    ),
    # The decay is limited to the steps after the warmup.
    (
      schedules.WSD(peak_value=1.0, warmup_steps=10, decay_steps=70),
      'warmup to step 10, decay from step 10 to 60',
    ),
    (schedules.Cosine(peak_value=1.0), 'decay from step 0 to 60'),
    (
      schedules.InverseSqrt(peak_value=1.0, warmup_steps=9),
      'warmup to step 9, decay from step 9',
    ),
    (schedules.Constant(peak_value=1.0, warmup_steps=9), 'warmup to step 9'),
    (0.5, ''),
  ],
)
def test_description_contains_the_steps_of_warmup_and_decay(schedule, phases):
  schedule = schedules.resolve_schedules(schedule, 60)
  assert schedules.describe_phases(schedule) == phases
  if 'to 60' in phases:
    start = int(phases.split()[-3])
    values = [float(schedule(step)) for step in range(61)]
    assert values[start] == max(values)
    assert values[start + 1] < values[start]
    assert values[60] == 0


def test_wsd_decay_is_limited_to_the_length_of_the_run():
  trial = schedules.WSD(
    peak_value=1.0,
    total_steps=5,
    warmup_steps=1,
    decay_steps=800,
    decay_shape='linear',
  )
  assert _values(trial, range(6)) == [0.0, 1.0, 0.75, 0.5, 0.25, 0.0]
  with raises_error(errors.ConfigError, got='cosine', where='WSD.decay_shape'):
    schedules.WSD(peak_value=1.0, decay_shape='cosine')


def test_mask_ratio_follows_a_schedule():
  """The ratio decreases linearly from 0.3 to 0.15 over the run."""
  objective = masked_lm.MaskedLM(
    mask_ratio=schedules.Linear(peak_value=0.3, end_value=0.15),
    max_mask_ratio=0.3,
  )
  ratio = schedules.resolve_schedules(objective, 100).mask_ratio
  assert _values(ratio, [0, 50, 100]) == pytest.approx([0.3, 0.225, 0.15])


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Remaining(schedules.Schedule):
  """Fraction of the steps that remain, as users write schedules."""

  total_steps: int | None = None

  def __call__(self, step):
    return 1 - step / self.total_steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class _WithoutTotalSteps(schedules.Schedule):
  def __call__(self, step):
    return 1.0


def test_user_schedules_receive_the_number_of_steps():
  resolved = schedules.resolve_schedules(
    (_Remaining(), _WithoutTotalSteps()), 8
  )
  assert resolved == (_Remaining(total_steps=8), _WithoutTotalSteps())
  assert resolved[0](2) == 0.75
  schedule = _Remaining(total_steps=4)
  assert schedules.resolve_schedules(schedule, 8) == schedule


@pytest.mark.parametrize('total_steps', [1, 2])
@pytest.mark.parametrize('warmup_steps', [0.1, 0.9, 10])
def test_warmup_is_limited_in_short_runs(total_steps, warmup_steps):
  schedule = schedules.resolve_schedules(
    schedules.Linear(peak_value=2.0, warmup_steps=warmup_steps), total_steps
  )
  assert math.isfinite(float(schedule(0)))
  if total_steps == 1:
    assert float(schedule(0)) == 2.0
