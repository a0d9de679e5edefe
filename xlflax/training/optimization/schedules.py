"""Schedules of values over training steps, such as learning rates.

Each schedule is a frozen dataclass that is called with a step. During the first
`warmup_steps` steps, the value rises linearly from 0 to `peak_value`. The decay
follows. A value of `warmup_steps` below 1 is a fraction of the total steps,
which is rounded up. `total_steps=None` stands for the number of steps of the
run, which is filled in before training (`resolve_schedules`). `peak_value=None`
stands for the default learning rate of the run (`default_learning_rate`).
"""

import abc
import dataclasses
import enum
import logging
import math
from typing import Any

import jax.numpy as jnp
import optax
from flax import linen as nn

from xlflax.utils import (
  class_registry,
  errors,
  logs,
  plurals,
  user_modules,
  validation,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule(validation.ValidatedFields, abc.ABC):
  """Schedule of a value, such as the learning rate, over the training steps.

  The fields of a schedule are recorded with the run. If a subclass has a field
  `total_steps` with the value None, the run sets it to its number of steps
  (`resolve_schedules`).
  """

  @abc.abstractmethod
  def __call__(self, step) -> Any:
    """Returns the value at a step, a scalar. The step may be traced."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Peaked(Schedule):
  """Base class of schedules with a maximum value, `peak_value`.

  Attributes:
    peak_value: Maximum value of the schedule. If None, the default learning
      rate of the run is used.
  """

  peak_value: validation.NonNegativeFloat | None

  @property
  def _required_peak(self) -> float:
    """The peak, which must be set or filled in by the run.

    Raises:
      ConfigError: If `peak_value` is None.
    """
    if self.peak_value is None:
      raise errors.ConfigError(
        f'The schedule {type(self).__name__} requires `peak_value`, which is '
        'only set automatically if the schedule is the learning rate of a run',
        fix='Set `peak_value`.',
      )
    return self.peak_value


@class_registry.register('constant')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Constant(Peaked):
  """Constant `peak_value` after the warmup.

  Attributes:
    warmup_steps: Number of warmup steps, in which the value rises from 0.
  """

  warmup_steps: validation.NonNegativeInt = 0

  def __call__(self, step):
    constant = optax.constant_schedule(self._required_peak)
    return _add_warmup(self._required_peak, self.warmup_steps, constant)(step)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Decay(Peaked):
  """Base class of decays from `peak_value` to `end_value` at `total_steps`.

  Attributes:
    total_steps: Step at which the decay ends. If None, the decay ends at the
      last step of the run.
    warmup_steps: Number of warmup steps, in which the value rises from 0. A
      number below 1 is a fraction of the total steps, rounded up.
    end_value: Value at the end of the decay.
  """

  total_steps: validation.PositiveInt | None = None
  warmup_steps: validation.NonNegativeInt | validation.OpenFraction = 0
  end_value: validation.NonNegativeFloat = 0.0

  def __post_init__(self):
    if self.total_steps is not None:
      self._num_decay_steps()

  def __call__(self, step):
    if self.total_steps is None:
      raise errors.ConfigError(
        f'The schedule {type(self).__name__} requires `total_steps`, which is '
        'only set automatically if the schedule is used in a run',
        fix='Set `total_steps`.',
      )
    decay = self._make_decay(self._num_decay_steps())
    return _add_warmup(self._required_peak, self._num_warmup_steps(), decay)(
      step
    )

  @abc.abstractmethod
  def _make_decay(self, decay_steps: int) -> optax.Schedule:
    """Returns the decay schedule, in which step 0 is the end of the warmup."""

  def _decay_start(self) -> int:
    """Returns the last step at which the value is `peak_value`."""
    return self._num_warmup_steps()

  def _num_warmup_steps(self) -> int:
    assert self.total_steps is not None
    return _resolve_steps(self.warmup_steps, self.total_steps)

  def _num_decay_steps(self) -> int:
    """Returns the number of steps after the warmup.

    Raises:
      ConfigError: If `total_steps` is None.
    """
    assert self.total_steps is not None
    if self._num_warmup_steps() >= self.total_steps:
      raise errors.ConfigError(
        '`warmup_steps` must be less than `total_steps`, which is '
        f'{self.total_steps}',
        got=self._num_warmup_steps(),
        where=errors.field_location(self, 'warmup_steps'),
      )
    return self.total_steps - self._num_warmup_steps()


@class_registry.register('linear')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Linear(_Decay):
  """Linear decay from `peak_value` to `end_value` at `total_steps` (VECO, PPA)."""

  def _make_decay(self, decay_steps):
    return optax.linear_schedule(
      self._required_peak, self.end_value, decay_steps
    )


@class_registry.register('cosine')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Cosine(_Decay):
  """Cosine decay from `peak_value` to `end_value` at `total_steps`."""

  def _make_decay(self, decay_steps):
    return optax.cosine_decay_schedule(
      self._required_peak,
      decay_steps,
      alpha=self.end_value / self._required_peak
      if self._required_peak
      else 0.0,
    )


class DecayShape(enum.StrEnum):
  """Shape of a schedule's decay as a function of its elapsed fraction f.

  Attributes:
    LINEAR: Linear decay: peak - (peak - end) * f, where f is the elapsed
      fraction of the decay.
    SQRT: Square-root decay: peak - (peak - end) * sqrt(f), where f is the
      elapsed fraction of the decay.
  """

  LINEAR = 'linear'
  SQRT = 'sqrt'


@class_registry.register('wsd')
@dataclasses.dataclass(frozen=True, kw_only=True)
class WSD(_Decay):
  """Warmup-stable-decay (Hu et al. 2024): decays in the last steps only.

  To extend a run, continue from a checkpoint before the decay.

  Attributes:
    decay_steps: Number of steps at the end of the run in which the value
      decays. A number below 1 is a fraction of the total steps, rounded up: 0.2
      is 20 % of the steps, and 20 is 20 steps. The decay is limited to the
      steps after the warmup. The startup log shows the first and last step.
    decay_shape: Shape of the decay, LINEAR or SQRT (Haegele et al. 2024).
  """

  decay_steps: validation.PositiveInt | validation.OpenFraction = 0.2
  decay_shape: DecayShape = DecayShape.SQRT

  def _make_decay(self, decay_steps):
    assert self.total_steps is not None
    stable_steps = self._decay_start() - self._num_warmup_steps()
    final_steps = decay_steps - stable_steps

    def decay(step):
      fraction = jnp.clip((step - stable_steps) / final_steps, 0.0, 1.0)
      if self.decay_shape is DecayShape.SQRT:
        fraction = jnp.sqrt(fraction)
      return (
        self._required_peak + (self.end_value - self._required_peak) * fraction
      )

    return decay

  def _decay_start(self):
    assert self.total_steps is not None
    final_steps = _resolve_steps(self.decay_steps, self.total_steps)
    return max(self.total_steps - final_steps, self._num_warmup_steps())


@class_registry.register('inverse_sqrt')
@dataclasses.dataclass(frozen=True, kw_only=True)
class InverseSqrt(Peaked):
  """Inverse square root decay (Vaswani et al. 2017; ECS).

  After the warmup, the value is peak * sqrt(warmup_steps / step).

  Attributes:
    warmup_steps: Number of warmup steps, in which the value rises from 0.
  """

  warmup_steps: validation.PositiveInt

  def __call__(self, step):
    peak, warmup = self._required_peak, self.warmup_steps

    def decay(step):
      # During the warmup, the result is computed but not used.
      return peak * (warmup / (jnp.maximum(step, 0) + warmup)) ** 0.5

    return _add_warmup(peak, warmup, decay)(step)


@class_registry.register('piecewise')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Piecewise(Schedule):
  """Piecewise constant schedule, whose value changes at given steps.

  The value is `values[i]` before step `boundaries[i]`, and the last value from
  the last boundary on. Sampling exponents and mask ratios that change in phases
  are examples.

  Attributes:
    values: Value of each segment. n boundaries separate n + 1 segments.
    boundaries: Steps at which the value changes, in increasing order.
  """

  values: tuple[validation.NonNegativeFloat, ...]
  boundaries: tuple[validation.NonNegativeInt, ...]

  def __post_init__(self):
    is_increasing = self.boundaries == tuple(sorted(set(self.boundaries)))
    if len(self.values) != len(self.boundaries) + 1 or not is_increasing:
      raise errors.ConfigError(
        'A piecewise schedule must have increasing boundaries and one more '
        f'value than boundaries. The number of boundaries is '
        f'{len(self.boundaries)}, and the number of values is '
        f'{len(self.values)}',
        got=list(self.boundaries),
        where=errors.field_location(self, 'boundaries'),
      )

  def __call__(self, step):
    constants = [optax.constant_schedule(value) for value in self.values]
    return optax.join_schedules(constants, list(self.boundaries))(step)


def describe_phases(schedule: Any) -> str:
  """Describes the steps of the warmup and of the decay, for the log.

  An example is 'warmup to step 100, decay from step 800 to 1,000'.

  Args:
    schedule: Number or schedule. The description of numbers and of user-defined
      schedules is empty.
  """
  if user_modules.is_user_extension(type(schedule)):
    return ''
  warmup_steps, decay = 0, ''
  if isinstance(schedule, _Decay) and schedule.total_steps is not None:
    warmup_steps = schedule._num_warmup_steps()
    start, end = schedule._decay_start(), schedule.total_steps
    decay = f'decay from step {start:,} to {end:,}'
  elif isinstance(schedule, InverseSqrt):
    warmup_steps = schedule.warmup_steps
    decay = f'decay from step {warmup_steps:,}'
  elif isinstance(schedule, Constant):
    warmup_steps = schedule.warmup_steps
  warmup = f'warmup to step {warmup_steps:,}' if warmup_steps else ''
  return ', '.join(filter(None, (warmup, decay)))


def resolve_schedules(value: Any, total_steps: int) -> Any:
  """Sets `total_steps` in the schedules that an object contains.

  Schedules that set it already are not changed. A warmup that is at least as
  long as the run is shortened to a tenth of the run, so that default settings
  can be used in short test runs. In a schedule without `total_steps`, with a
  `total_steps` that is already set, or of a class that xlflax does not define,
  such a warmup is not changed, but a warning is logged.

  Args:
    value: Dataclass, tuple, list or plain value. Nested values are resolved,
      too.
    total_steps: Number of steps in the run.

  Returns:
    A copy of the value in which all schedules have a `total_steps`.
  """
  if isinstance(value, (list, tuple)) and not hasattr(value, '_fields'):
    return type(value)(resolve_schedules(v, total_steps) for v in value)
  if not dataclasses.is_dataclass(value) or isinstance(
    value, (type, nn.Module)
  ):
    return value
  changed: dict[str, Any] = {}
  for field in dataclasses.fields(value):
    if not field.init:
      continue
    old = getattr(value, field.name)
    new = resolve_schedules(old, total_steps)
    if new != old:
      changed[field.name] = new
  if isinstance(value, Schedule) and getattr(value, 'total_steps', 0) is None:
    changed['total_steps'] = total_steps
  if 'total_steps' in changed and isinstance(value, _Decay):
    warmup_steps = _resolve_steps(value.warmup_steps, total_steps)
    if warmup_steps >= max(total_steps, 1):
      changed['warmup_steps'] = _shorten_warmup(warmup_steps, total_steps)
  else:
    _warn_about_long_warmup(value, total_steps)
  return dataclasses.replace(value, **changed) if changed else value


def _shorten_warmup(warmup_steps: int, total_steps: int) -> int:
  """Returns a tenth of the run's steps as the new warmup and logs a warning."""
  shortened_warmup = total_steps // 10
  logging.warning(
    'The warmup of %s is not shorter than the run of %s. Shortening it to %s '
    '(WARMUP_STEPS).',
    plurals.format_count(warmup_steps, 'step'),
    plurals.format_count(total_steps, 'step'),
    plurals.format_count(shortened_warmup, 'step'),
    extra=logs.ONCE,
  )
  return shortened_warmup


def _warn_about_long_warmup(schedule: Any, total_steps: int) -> None:
  """Logs a warning if a fixed warmup is not shorter than the run."""
  warmup_steps: int | None
  if isinstance(schedule, _Decay):
    warmup_steps = schedule._num_warmup_steps()
  elif isinstance(schedule, Schedule):
    # Schedules of users may have a warmup, too.
    warmup_steps = getattr(schedule, 'warmup_steps', None)
  else:
    return
  if isinstance(warmup_steps, int) and warmup_steps >= max(total_steps, 1):
    logging.warning(
      'The warmup of %s is not shorter than the run of %s, so the schedule '
      'does not reach its peak value. Decrease %s, or train for more steps.',
      plurals.format_count(warmup_steps, 'step'),
      plurals.format_count(total_steps, 'step'),
      errors.field_location(schedule, 'warmup_steps'),
      extra=logs.ONCE,
    )


def _resolve_steps(steps: float, total_steps: int) -> int:
  """Converts a fraction of the total steps to a number, rounded up."""
  return math.ceil(steps * total_steps) if 0 < steps < 1 else int(steps)


def _add_warmup(peak, warmup_steps: int, schedule) -> optax.Schedule:
  """Returns a linear warmup to `peak`, followed by `schedule`."""
  if not warmup_steps:
    return schedule
  return optax.join_schedules(
    [optax.linear_schedule(0.0, peak, warmup_steps), schedule], [warmup_steps]
  )
