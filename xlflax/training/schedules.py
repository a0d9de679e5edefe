"""Learning-rate and other schedules: functions of the step, from optax parts.

Each returns an optax schedule (step -> value). `warmup_steps` rises linearly
from 0 to `peak`; after it the named shape begins. Below 1, it is a share of
the total steps, rounded up, where these are known.
"""

import math
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import optax

from xlflax import errors

Schedule = Callable[[int], float]


def constant(*, peak: float, warmup_steps: int = 0) -> Schedule:
  """`peak` after the warm-up."""
  return _warm_up(peak, warmup_steps, optax.constant_schedule(peak))


def linear(
  *, peak: float, total_steps: int, warmup_steps: float = 0, end: float = 0.0
) -> Schedule:
  """From `peak` straight down to `end` at `total_steps` (VECO, PPA)."""
  warmup_steps = _whole(warmup_steps, total_steps)
  decay = optax.linear_schedule(
    peak, end, _decay_steps(total_steps, warmup_steps)
  )
  return _warm_up(peak, warmup_steps, decay)


def cosine(
  *, peak: float, total_steps: int, warmup_steps: float = 0, end: float = 0.0
) -> Schedule:
  """Half a cosine from `peak` to `end` at `total_steps`."""
  warmup_steps = _whole(warmup_steps, total_steps)
  decay = optax.cosine_decay_schedule(
    peak,
    _decay_steps(total_steps, warmup_steps),
    alpha=end / peak if peak else 0.0,
  )
  return _warm_up(peak, warmup_steps, decay)


def inverse_sqrt(*, peak: float, warmup_steps: int) -> Schedule:
  """peak * sqrt(warmup_steps / step) after the warm-up (ECS; Vaswani 2017)."""
  if warmup_steps < 1:
    raise errors.ConfigError(
      'The inverse-square-root schedule needs a warm-up',
      got=warmup_steps,
      expected='warmup_steps >= 1',
      where='schedules.inverse_sqrt',
    )

  def decay(step):  # also evaluated, and not used, before the warm-up's end
    return peak * (warmup_steps / (jnp.maximum(step, 0) + warmup_steps)) ** 0.5

  return _warm_up(peak, warmup_steps, decay)


def piecewise(
  *, values: Sequence[float], boundaries: Sequence[int]
) -> Schedule:
  """`values[i]` until step `boundaries[i]`; the last value from then on.

  Suits sampling exponents and mask ratios that change in phases.
  """
  if len(values) != len(boundaries) + 1 or list(boundaries) != sorted(
    set(boundaries)
  ):
    raise errors.ConfigError(
      'A piecewise schedule has the wrong numbers',
      got=f'{len(values)} values, boundaries {list(boundaries)}',
      expected='rising boundaries, and one value more than boundaries',
      where='schedules.piecewise',
    )
  return optax.join_schedules(
    [optax.constant_schedule(v) for v in values], list(boundaries)
  )


def _warm_up(peak, warmup_steps, after) -> Schedule:
  if warmup_steps < 0:
    raise errors.ConfigError(
      'The warm-up has a negative length',
      got=warmup_steps,
      expected='warmup_steps >= 0',
      where='schedules',
    )
  if not warmup_steps:
    return after
  return optax.join_schedules(
    [optax.linear_schedule(0.0, peak, warmup_steps), after], [warmup_steps]
  )


def _whole(warmup_steps: float, total_steps: int) -> int:
  """Steps of a warm-up that may be a share of all."""
  if 0 < warmup_steps < 1:
    return math.ceil(warmup_steps * total_steps)
  if warmup_steps != int(warmup_steps):
    raise errors.ConfigError(
      'The warm-up is no number of steps',
      got=warmup_steps,
      expected='a whole number, or a share of all steps below 1',
      where='schedules',
    )
  return int(warmup_steps)


def _decay_steps(total_steps, warmup_steps) -> int:
  if warmup_steps >= total_steps:
    raise errors.ConfigError(
      'The warm-up leaves no step to decay over',
      got=f'warmup_steps={warmup_steps}, total_steps={total_steps}',
      expected='warmup_steps < total_steps',
      where='schedules',
    )
  return total_steps - warmup_steps
