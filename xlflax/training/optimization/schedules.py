"""Learning-rate and other schedules: functions of the step, as described data.

Each is a frozen dataclass that is called with a step. `warmup_steps` rises
linearly from 0 to `peak`; after it the named shape begins. Below 1 it is a
share of the total steps, rounded up. `total_steps=None` stands for the steps of
the run, which fills them in before it trains (`resolve_schedules`); `peak=None` is the
learning rate that follows from the run (`learning_rates`).
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

from xlflax.utils import class_registry, errors, validation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule(abc.ABC):
  """A function of the step that a run can record."""

  @abc.abstractmethod
  def __call__(self, step) -> Any:
    """The value at a step, a scalar; the step may be traced."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Peaked(Schedule):
  """Rises to `peak` (None: what follows from the run)."""

  peak: validation.NonNegativeFloat | None

  @property
  def _top(self) -> float:
    if self.peak is None:
      raise errors.ConfigError(
        'A schedule does not know its peak',
        got='peak=None outside of a run, or not as its learning rate',
        where=f'schedules.{type(self).__name__}',
        fix='give the peak',
      )
    return self.peak


@class_registry.register('constant')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Constant(Peaked):
  """`peak` after the warm-up."""

  warmup_steps: validation.NonNegativeInt = 0

  def __call__(self, step):
    after = optax.constant_schedule(self._top)
    return _warm_up(self._top, self.warmup_steps, after)(step)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Decay(Peaked):
  """From `peak` to `end` at `total_steps` (None: the run's)."""

  total_steps: validation.PositiveInt | None = None
  warmup_steps: validation.NonNegativeInt | validation.OpenFraction = 0
  end: validation.NonNegativeFloat = 0.0

  def __post_init__(self):
    if self.total_steps is not None:
      self._decay_steps()

  def __call__(self, step):
    if self.total_steps is None:
      raise errors.ConfigError(
        'A schedule does not know when it ends',
        got='total_steps=None outside of a run',
        where=f'schedules.{type(self).__name__}',
        fix='give total_steps',
      )
    after = self._shape(self._decay_steps())
    return _warm_up(self._top, self._warm_up_steps(), after)(step)

  @abc.abstractmethod
  def _shape(self, decay_steps: int) -> optax.Schedule:
    """What follows the warm-up."""

  def _warm_up_steps(self) -> int:
    assert self.total_steps is not None
    return _steps_of(self.warmup_steps, self.total_steps)

  def _decay_steps(self) -> int:
    assert self.total_steps is not None
    if self._warm_up_steps() >= self.total_steps:
      raise errors.ConfigError(
        'The warm-up leaves no step to decay over',
        got=f'warmup_steps={self._warm_up_steps()}, '
        f'total_steps={self.total_steps}',
        expected='warmup_steps < total_steps',
        where='schedules',
      )
    return self.total_steps - self._warm_up_steps()


@class_registry.register('linear')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Linear(_Decay):
  """From `peak` straight down to `end` at `total_steps` (VECO, PPA)."""

  def _shape(self, decay_steps):
    return optax.linear_schedule(self._top, self.end, decay_steps)


@class_registry.register('cosine')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Cosine(_Decay):
  """Half a cosine from `peak` to `end` at `total_steps`."""

  def _shape(self, decay_steps):
    return optax.cosine_decay_schedule(
      self._top, decay_steps, alpha=self.end / self._top if self._top else 0.0
    )


class Fall(enum.StrEnum):
  """The shape of a decay."""

  LINEAR = 'linear'
  SQRT = 'sqrt'  # peak - (peak - end) * sqrt(share of the decay)


@class_registry.register('wsd')
@dataclasses.dataclass(frozen=True, kw_only=True)
class WSD(_Decay):
  """Warm-up, stable, decay (Hu et al. 2024): falls in the last steps only.

  A run that is to go on longer takes the checkpoint from before the decay.

  Attributes:
    decay_steps: steps of the decay, the run's last; below 1 a share of the
      total steps, rounded up; no more than follow the warm-up.
    shape: linear, or 1 - sqrt (Haegele et al. 2024).
  """

  decay_steps: validation.PositiveInt | validation.OpenFraction = 0.2
  shape: Fall = Fall.SQRT

  def _shape(self, decay_steps):
    assert self.total_steps is not None
    falling = min(_steps_of(self.decay_steps, self.total_steps), decay_steps)
    stable = decay_steps - falling

    def after(step):
      share = jnp.clip((step - stable) / falling, 0.0, 1.0)
      if self.shape is Fall.SQRT:
        share = jnp.sqrt(share)
      return self._top + (self.end - self._top) * share

    return after


@class_registry.register('inverse_sqrt')
@dataclasses.dataclass(frozen=True, kw_only=True)
class InverseSqrt(Peaked):
  """peak * sqrt(warmup_steps / step) after the warm-up (ECS; Vaswani 2017)."""

  warmup_steps: validation.PositiveInt

  def __call__(self, step):
    peak, warmup = self._top, self.warmup_steps

    def decay(step):  # also evaluated, and not used, before the warm-up's end
      return peak * (warmup / (jnp.maximum(step, 0) + warmup)) ** 0.5

    return _warm_up(peak, warmup, decay)(step)


@class_registry.register('piecewise')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Piecewise(Schedule):
  """`values[i]` until step `boundaries[i]`; the last value from then on.

  Suits sampling exponents and mask ratios that change in phases.
  """

  values: tuple[validation.NonNegativeFloat, ...]
  boundaries: tuple[validation.NonNegativeInt, ...]

  def __post_init__(self):
    rising = self.boundaries == tuple(sorted(set(self.boundaries)))
    if len(self.values) != len(self.boundaries) + 1 or not rising:
      raise errors.ConfigError(
        'A piecewise schedule has the wrong numbers',
        got=f'{len(self.values)} values, boundaries {list(self.boundaries)}',
        expected='rising boundaries, and one value more than boundaries',
        where='schedules.Piecewise',
      )

  def __call__(self, step):
    parts = [optax.constant_schedule(v) for v in self.values]
    return optax.join_schedules(parts, list(self.boundaries))(step)


def resolve_schedules(value: Any, total_steps: int) -> Any:
  """`value` with `total_steps` in every schedule in it that leaves it open.

  A warm-up that is as long as the run, or longer, takes a tenth of the run:
  the usual defaults do not keep anyone from a short trial run.

  Args:
    value: a dataclass, tuple, mapping or plain value, at any depth.
    total_steps: of the run.
  """
  if isinstance(value, (list, tuple)) and not hasattr(value, '_fields'):
    return type(value)(resolve_schedules(v, total_steps) for v in value)
  if not dataclasses.is_dataclass(value) or isinstance(
    value, (type, nn.Module)
  ):
    return value
  changed = {
    f.name: new
    for f in dataclasses.fields(value)
    if f.init
    and (new := resolve_schedules(old := getattr(value, f.name), total_steps))
    != old
  }
  if isinstance(value, _Decay) and value.total_steps is None:
    changed['total_steps'] = total_steps
    if value.warmup_steps >= max(total_steps, 1):
      changed['warmup_steps'] = _shortened(value.warmup_steps, total_steps)
  return dataclasses.replace(value, **changed) if changed else value


def _shortened(warmup_steps: float, total_steps: int) -> int:
  """A tenth of a run that is no longer than its warm-up."""
  shortened_warmup = total_steps // 10
  logging.warning(
    'The run has %d steps and a warm-up of %d: it warms up over %d instead '
    '(WARMUP_STEPS).',
    total_steps,
    warmup_steps,
    shortened_warmup,
  )
  return shortened_warmup


def _steps_of(steps: float, total_steps: int) -> int:
  """Steps; below 1, a share of the total, rounded up."""
  return math.ceil(steps * total_steps) if 0 < steps < 1 else int(steps)


def _warm_up(peak, warmup_steps: int, after) -> optax.Schedule:
  if not warmup_steps:
    return after
  return optax.join_schedules(
    [optax.linear_schedule(0.0, peak, warmup_steps), after], [warmup_steps]
  )
