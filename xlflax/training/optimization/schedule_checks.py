"""Checks of schedules before training, and the maxima of learning rates."""

import dataclasses
import functools
import itertools
import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from xlflax.training.optimization import optimizers, schedules
from xlflax.utils import errors, logs, plurals, user_modules

# A schedule of a longer run is evaluated at this number of steps.
_MAX_STEPS = 100_000
# Negative values of at most this fraction of the peak are rounding errors.
_ROUNDING_ERROR = 1e-5
# Values of at most this fraction of the peak are 0, apart from rounding errors.
_ZERO = 1e-7
# A higher learning rate of an optimizer such as Adam, whose updates have about
# the size of the learning rate, is probably a mistake.
_HIGHEST_RATE = 0.1
# The maximum of a schedule may differ from its peak by rounding errors, or
# because it lies between two steps.
_MIN_PEAK_RATIO, _MAX_PEAK_RATIO = 0.8, 1.01
# A schedule may end with a few zeros, such as a decay that reaches 0 at the
# last step: at most this number of steps, or this fraction of the run.
_MAX_ZERO_STEPS = 2
_MAX_ZERO_FRACTION = 0.01


class MaxRate(NamedTuple):
  """Maximum of a learning rate over the steps of a run.

  Attributes:
    pattern: Pattern of the parameters in `Optimizer.learning_rate_overrides`.
      None for the learning rate of all other parameters.
    schedule: Class of the schedule, or 'constant'.
    maximum: Maximum value. None if it could not be computed.
    phases: Steps of the warmup and the decay (`schedules.describe_phases`).
  """

  pattern: str | None
  schedule: str
  maximum: float | None
  phases: str = ''

  @property
  def label(self) -> str:
    """Name of the maximum in messages, such as 'Maximum learning rate'."""
    suffix = '' if self.pattern is None else f' of {self.pattern}'
    return f'Maximum learning rate{suffix}'

  @property
  def description(self) -> str:
    """Maximum and class of the schedule, such as '0.001 (Linear)'."""
    value = 'unknown' if self.maximum is None else f'{self.maximum:.4g}'
    return f'{value} ({self.schedule})'


def check_learning_rates(
  optimizer: optimizers.Optimizer, num_steps: int
) -> None:
  """Checks the values of an optimizer's user-defined schedules.

  Args:
    optimizer: Optimizer of the run. Its learning rates are constants or
      schedules. The schedules that xlflax defines are not checked.
    num_steps: Number of steps in the run.

  Raises:
    ConfigError: If a schedule does not return a scalar, or if a learning rate
      is negative or not finite at a step of the run.
  """
  check_scalars(optimizer)
  rates = [
    optimizer.learning_rate,
    *(r for _, r in optimizer.learning_rate_overrides),
  ]
  for schedule in _find_user_schedules(rates):
    _check_rates(schedule, num_steps)


def check_scalars(value: Any) -> None:
  """Checks that the user-defined schedules in an object return scalars.

  Args:
    value: Dataclass, tuple, list or plain value, which may contain schedules.

  Raises:
    ConfigError: If a schedule raises an exception, or does not return a scalar.
  """
  for schedule in _find_user_schedules(value):
    # Training passes an array. Some schedules do not accept the integer 0, as
    # in `step ** -0.5`.
    with user_modules.converting_class_errors(
      schedule,
      '__call__',
      suggest=functools.partial(_suggest_total_steps, schedule),
    ):
      first_value = schedule(jnp.asarray(0))
    _check_scalar(schedule, first_value)


def find_max_rates(
  optimizer: optimizers.Optimizer, num_steps: int
) -> list[MaxRate]:
  """Computes the maxima of an optimizer's learning rates in a run.

  Args:
    optimizer: Optimizer of the run.
    num_steps: Number of steps in the run.

  Returns:
    The maximum of `learning_rate`, followed by those of
    `learning_rate_overrides`.
  """
  rates = [(None, optimizer.learning_rate), *optimizer.learning_rate_overrides]
  return [
    MaxRate(
      pattern,
      type(rate).__name__ if callable(rate) else 'constant',
      _find_maximum(rate, num_steps),
      schedules.describe_phases(rate),
    )
    for pattern, rate in rates
  ]


def warn_of_zero_rates(optimizer: optimizers.Optimizer, num_steps: int) -> None:
  """Logs a warning if the learning rate is 0 at all steps or at many steps.

  A run in which only some parameters have a learning rate of 0, such as a
  pretrained model below a new head, causes no warning. Zeros at very few
  consecutive steps cause no warning either. Zeros before the last steps cause a
  warning only if a schedule is user-defined.

  Args:
    optimizer: Optimizer of the run.
    num_steps: Number of steps in the run.
  """
  if num_steps < 1:
    return
  rates = [
    optimizer.learning_rate,
    *(r for _, r in optimizer.learning_rate_overrides),
  ]
  ends = [_find_end(rate, num_steps) for rate in rates]
  known_ends = [end for end in ends if end is not None]
  if len(known_ends) < len(ends):
    return
  end = max(known_ends)
  num_zeros = num_steps - end
  if not end:
    logging.warning(
      'The learning rate is 0 at all steps, so the parameters do not change. %s',
      _suggest_positive_rate(optimizer.learning_rate),
      extra=logs.ONCE,
    )
  elif num_zeros > max(_MAX_ZERO_STEPS, _MAX_ZERO_FRACTION * num_steps):
    logging.warning(
      'The learning rate is 0 from step %s of %s on, so the parameters do not '
      'change in the last %s. %s',
      f'{end:,}',
      f'{num_steps:,}',
      plurals.format_count(num_zeros, 'step'),
      _suggest_later_end(rates[known_ends.index(end)], end, num_steps),
      extra=logs.ONCE,
    )
  for schedule in itertools.islice(_find_user_schedules(rates), 1):
    _warn_of_zeros_before(schedule, rates, end, num_steps)


def warn_of_high_rates(optimizer: optimizers.Optimizer, num_steps: int) -> None:
  """Logs a warning if learning rates are too high for an optimizer like Adam.

  A user-defined schedule that returns a factor between 0 and 1 in place of the
  learning rate is an example. Another is a missing minus sign, as in
  LEARNING_RATE=5e5.

  Args:
    optimizer: Optimizer of the run. Only optimizers whose updates have about
      the size of the learning rate are checked (`Optimizer.steps_as_adam`). If
      the updates of Adafactor are not multiplied by the parameters' scale, its
      user-defined schedules are also checked. Its constants are not, because
      prompt tuning uses a learning rate of 0.3.
    num_steps: Number of steps in the run.
  """
  is_absolute_adafactor = (
    isinstance(optimizer, optimizers.Adafactor)
    and not optimizer.multiply_by_parameter_scale
  )
  if not optimizer.steps_as_adam and not is_absolute_adafactor:
    return
  rates = [
    optimizer.learning_rate,
    *(r for _, r in optimizer.learning_rate_overrides),
  ]
  for schedule in _find_user_schedules(rates):
    maximum = _find_maximum(schedule, num_steps)
    if _is_high(maximum):
      name = type(schedule).__name__
      logging.warning(
        'The maximum learning rate of the schedule %s is %.4g, which is high '
        'for the optimizer %s, so the loss may diverge. `%s.__call__` must '
        'return the learning rate itself, not a factor between 0 and 1.',
        name,
        maximum,
        type(optimizer).__name__,
        name,
        extra=logs.ONCE,
      )
  if not optimizer.steps_as_adam:
    return
  max_rates = find_max_rates(optimizer, num_steps)
  for rate, max_rate in zip(rates, max_rates, strict=True):
    if _is_high(max_rate.maximum) and not user_modules.is_user_extension(
      type(rate)
    ):
      logging.warning(
        'The %s is %s, which is high for the optimizer %s, so the loss may '
        'diverge. %s',
        max_rate.label[0].lower() + max_rate.label[1:],
        max_rate.description,
        type(optimizer).__name__,
        _suggest_check(optimizer, max_rate, rate),
        extra=logs.ONCE,
      )
      # Fine-tuning uses the learning rate of the encoder for heads by default.
      break


def warn_of_unfinished_warmup(
  optimizer: optimizers.Optimizer, num_steps: int
) -> None:
  """Logs a warning if a user-defined schedule still rises at the last step.

  Args:
    optimizer: Optimizer of the run.
    num_steps: Number of steps in the run. Runs of fewer than 10 steps are not
      checked, because they are tests.
  """
  if num_steps < 10:
    return
  for schedule in _find_user_schedules(optimizer.learning_rate):
    if (getattr(schedule, 'warmup_steps', 0) or 0) >= num_steps:
      continue  # `schedules.resolve_schedules` has logged a warning.
    values = _evaluate(schedule, _sample_steps(0, num_steps - 1))
    if values is not None and np.all(np.diff(values) > 0):
      logging.warning(
        'The learning rate of the schedule %s increases until the last step, '
        'where it is %.3g. Its warmup is probably longer than the run of %d '
        'steps.',
        type(schedule).__name__,
        values[-1],
        num_steps,
        extra=logs.ONCE,
      )


def warn_of_drop_after_warmup(
  optimizer: optimizers.Optimizer, num_steps: int
) -> None:
  """Logs a warning if user-defined schedules drop right after their maximum.

  For example, a decay by `1 / sqrt(step)` after a warmup of 100 steps continues
  at a tenth of the maximum if it is not multiplied by `sqrt(100)`.

  Args:
    optimizer: Optimizer of the run.
    num_steps: Number of steps in the run. Runs of fewer than 10 steps are not
      checked, because they are tests.
  """
  if num_steps < 10:
    return
  for schedule in _find_user_schedules(optimizer.learning_rate):
    step = _find_isolated_maximum(schedule, num_steps)
    if step is None:
      continue
    maximum, after = np.asarray([schedule(step), schedule(step + 1)])
    logging.warning(
      'The learning rate of the schedule %s falls from its maximum %.3g at '
      'step %s to %.3g at the next step, and stays below half of the maximum. '
      'If this is not intended, multiply the decay by a factor, so that it '
      'starts at the maximum. For example, a decay by `1 / sqrt(step)` after '
      '`warmup_steps` requires the factor `sqrt(warmup_steps)`.',
      type(schedule).__name__,
      maximum,
      f'{step:,}',
      after,
      extra=logs.ONCE,
    )


def warn_of_other_maximum(
  optimizer: optimizers.Optimizer, num_steps: int
) -> None:
  """Logs a warning if user-defined schedules do not reach their `peak_value`.

  A schedule that exceeds the value also causes a warning.

  Args:
    optimizer: Optimizer of the run.
    num_steps: Number of steps in the run. In runs of fewer than 10 steps, which
      are tests, and if a schedule increases until the last step, its maximum
      may be below the value.
  """
  rates = [
    optimizer.learning_rate,
    *(r for _, r in optimizer.learning_rate_overrides),
  ]
  for schedule in _find_user_schedules(rates):
    peak = getattr(schedule, 'peak_value', None)
    maximum = _find_maximum(schedule, num_steps)
    if not peak or maximum is None:
      continue
    is_low = maximum < _MIN_PEAK_RATIO * peak and num_steps >= 10
    if is_low:
      values = _evaluate(schedule, np.array([num_steps - 2, num_steps - 1]))
      is_low = values is not None and values[0] >= values[1]
    if not is_low and maximum <= _MAX_PEAK_RATIO * peak:
      continue
    name = type(schedule).__name__
    logging.warning(
      'The maximum of the schedule %s in this run is %.4g, but its peak_value is '
      '%.4g. Correct `%s.__call__`, so that its highest value is '
      '`self.peak_value`.',
      name,
      maximum,
      peak,
      name,
      extra=logs.ONCE,
    )


def _find_isolated_maximum(
  schedule: schedules.Schedule, num_steps: int
) -> int | None:
  """Returns the step of a maximum that ends a warmup and precedes a drop.

  Args:
    schedule: Schedule to evaluate.
    num_steps: Number of steps in the run.

  Returns:
    The step of the maximum, if the previous value is lower and all later values
    are less than half of the maximum. None if there is no such step, or if it
    is in the last tenth of the run.
  """
  # The warmup ends within these steps.
  values = _evaluate(schedule, np.arange(min(num_steps, _MAX_STEPS)))
  if values is None:
    return None
  step = int(np.argmax(values))
  if not 0 < step < 0.9 * len(values):
    return None
  is_isolated = (
    values[step - 1] < values[step]
    and np.max(values[step + 1 :]) < values[step] / 2
  )
  return step if is_isolated else None


def warn_of_missing_decay(
  optimizer: optimizers.Optimizer, num_steps: int
) -> None:
  """Logs a warning if user-defined schedules with `total_steps` do not decay.

  For example, `optax.join_schedules` never reaches its second schedule if the
  boundary is the number of steps in place of the number of warmup steps.

  Args:
    optimizer: Optimizer of the run.
    num_steps: Number of steps in the run. Runs of fewer than 10 steps are not
      checked, because they are tests.
  """
  if num_steps < 10:
    return
  for schedule in _find_user_schedules(optimizer.learning_rate):
    if getattr(schedule, 'total_steps', None) != num_steps:
      continue
    values = _evaluate(schedule, _sample_steps(0, num_steps - 1))
    if values is None or values[-1] < np.max(values) or values[-1] > values[-2]:
      continue
    name = type(schedule).__name__
    logging.warning(
      'The learning rate of the schedule %s is constant (%.3g) until the last '
      'step, although the schedule has the field `total_steps`. If it should '
      'decay, correct `%s.__call__`, for example the boundaries of '
      'optax.join_schedules.',
      name,
      values[-1],
      name,
      extra=logs.ONCE,
    )


def warn_of_late_decay(optimizer: optimizers.Optimizer, num_steps: int) -> None:
  """Logs a warning if user-defined schedules decay only after the last step.

  Constant schedules, and schedules that stay constant for a number of steps
  before their decay, cause no warning. A field `total_steps` that was set to a
  value other than its default causes none either.

  Args:
    optimizer: Optimizer of the run.
    num_steps: Number of steps in the run. Runs of fewer than 10 steps are not
      checked, because they are tests.
  """
  if num_steps < 10:
    return
  rates = [
    optimizer.learning_rate,
    *(r for _, r in optimizer.learning_rate_overrides),
  ]
  for schedule in _find_user_schedules(rates):
    name = _find_late_end(schedule, num_steps)
    if name is None:
      continue
    field = errors.field_location(schedule, name)
    value = f'{getattr(schedule, name):,}'
    # A field `total_steps` with a default value is not set by the run.
    advice = '' if name == 'total_steps' else 'the field `total_steps` with '
    logging.warning(
      'The learning rate of the schedule %s hardly decays, because %s is %s, '
      'but the run has %s steps. Set %s = %d, or replace it by %sthe default '
      'None, which a run sets to its number of steps.',
      type(schedule).__name__,
      field,
      value,
      f'{num_steps:,}',
      field,
      num_steps,
      advice,
      extra=logs.ONCE,
    )


def _find_late_end(schedule: schedules.Schedule, num_steps: int) -> str | None:
  """Returns the field with the step at which a schedule decays after the run.

  Returns None if there is no such field, if the value at the last step of the
  run is less than half of the maximum, or if it is not much lower at the step
  that the field contains.

  Args:
    schedule: User-defined schedule.
    num_steps: Number of steps in the run.
  """
  maximum = _find_maximum(schedule, num_steps)
  if not maximum:
    return None
  for field in dataclasses.fields(schedule):
    value = getattr(schedule, field.name)
    if (
      not field.name.endswith('steps')
      or 'warmup' in field.name
      or not isinstance(value, int)
      or not num_steps < value < np.iinfo(np.int32).max
      or (field.name == 'total_steps' and value != field.default)
    ):
      continue
    values = _evaluate(schedule, np.array([num_steps - 1, value], np.int32))
    if values is None:
      return None
    last, end = values
    if last > maximum / 2 and end < last / 4:
      return field.name
  return None


def suggest_lower_rate(optimizer: optimizers.Optimizer, num_steps: int) -> str:
  """Returns a hint on how to lower the learning rate of a run.

  The macros LEARNING_RATE and WARMUP_STEPS set fields of the schedules of
  xlflax, but not those of other schedules.

  Args:
    optimizer: Optimizer of the run.
    num_steps: Number of steps in the run.
  """
  rate = optimizer.learning_rate
  if not callable(rate):
    return 'Lower LEARNING_RATE.'
  if isinstance(rate, schedules.Peaked) and not user_modules.is_user_extension(
    type(rate)
  ):
    return 'Lower LEARNING_RATE, or increase WARMUP_STEPS.'
  maximum = _find_maximum(rate, num_steps)
  value = '' if maximum is None else f' (at most {maximum:.4g} in this run)'
  return (
    f'Lower the learning rates of the schedule {type(rate).__name__}{value}, '
    'or increase the number of its warmup steps.'
  )


def _find_maximum(rate: Any, num_steps: int) -> float | None:
  """Returns the maximum of a learning rate, or None if it is unknown.

  Args:
    rate: Number or schedule.
    num_steps: Number of steps in the run. In a long run, the schedule is
      evaluated at a sample of the steps, and at all steps that are close to the
      maximum of the sample.
  """
  if not callable(rate):
    return float(rate)
  steps = _sample_steps(0, num_steps - 1)
  values = _evaluate(rate, steps)
  if values is None or not steps.size:
    return None
  best = int(np.argmax(values))
  first, last = steps[max(best - 1, 0)], steps[min(best + 1, steps.size - 1)]
  if last - first > 2:
    values = _evaluate(rate, _sample_steps(int(first), int(last)))
  return None if values is None else float(np.max(values))


def _find_end(rate: Any, num_steps: int) -> int | None:
  """Returns the step from which on a learning rate is 0 until the last step.

  Args:
    rate: Number or schedule.
    num_steps: Number of steps in the run, which must be positive. In a long
      run, the schedule is evaluated at a sample of the steps, and at all steps
      that are close to the end.

  Returns:
    `num_steps` if the learning rate is not 0 at the last step. None if it is
    unknown.
  """
  if not callable(rate):
    return num_steps if rate else 0
  steps = _sample_steps(0, num_steps - 1)
  values = _evaluate(rate, steps)
  if values is None:
    return None
  threshold = _ZERO * np.max(np.abs(values))
  nonzero = np.flatnonzero(np.abs(values) > threshold)
  if not nonzero.size:
    return 0
  last = int(steps[nonzero[-1]])
  if last == num_steps - 1:
    return num_steps
  steps = _sample_steps(last, int(steps[nonzero[-1] + 1]))
  values = _evaluate(rate, steps)
  assert values is not None
  return last + max(1, int(np.count_nonzero(np.abs(values) > threshold)))


def _is_high(maximum: float | None) -> bool:
  """Returns whether a learning rate is too high for an optimizer like Adam."""
  # Schedules are computed in float32.
  return maximum is not None and bool(
    np.float32(maximum) > np.float32(_HIGHEST_RATE)
  )


def _suggest_check(
  optimizer: optimizers.Optimizer, max_rate: MaxRate, rate: Any
) -> str:
  """Returns the instruction to check a high learning rate.

  Args:
    optimizer: Optimizer of the run.
    max_rate: Maximum of the learning rate.
    rate: Constant, or a schedule of xlflax.
  """
  if callable(rate) and not isinstance(rate, schedules.Peaked):
    setting = f'the settings of the schedule {type(rate).__name__}'
  elif max_rate.pattern is None:
    setting = 'LEARNING_RATE'
  else:
    field = errors.field_location(optimizer, 'learning_rate_overrides')
    setting = f'{field} (in fine-tuning, HEAD_LEARNING_RATE)'
  return f'Check {setting}, for example the sign of the exponent, as in 5e-5.'


def _suggest_positive_rate(rate: Any) -> str:
  """Returns the instruction that makes a learning rate positive.

  The macro LEARNING_RATE sets the peak of the schedules of xlflax, but not the
  fields of other schedules.

  Args:
    rate: Learning rate, which is 0 at all steps.
  """
  if not callable(rate) or (
    isinstance(rate, schedules.Peaked)
    and not user_modules.is_user_extension(type(rate))
  ):
    return 'Set LEARNING_RATE to a positive number.'
  return _suggest_correction(rate)


def _warn_of_zeros_before(
  schedule: schedules.Schedule, rates: list[Any], end: int, num_steps: int
) -> None:
  """Logs a warning if all rates are 0 at many consecutive steps before `end`.

  Args:
    schedule: User-defined schedule, which the message names.
    rates: Learning rates of all parameters.
    end: Number of steps to check.
    num_steps: Number of steps in the run.
  """
  # All steps are evaluated, because a schedule may be positive only between the
  # steps of a sample.
  is_zero = np.ones(end, bool)
  for rate in rates:
    if callable(rate):
      values = _evaluate(rate, np.arange(end))
      assert values is not None
      is_zero &= values == 0
    else:
      is_zero &= rate == 0
  edges = np.flatnonzero(np.diff(is_zero, prepend=False, append=False))
  counts = edges[1::2] - edges[::2]
  count = int(np.max(counts, initial=0))
  if count <= max(_MAX_ZERO_STEPS, _MAX_ZERO_FRACTION * num_steps):
    return
  first = int(edges[::2][np.argmax(counts)])
  name = type(schedule).__name__
  logging.warning(
    'The learning rate of the schedule %s is 0 from step %s to step %s of %s, '
    'so the parameters do not change in these %s. If this is not intended, '
    'correct `%s.__call__`. A probable cause is an integer division, as in '
    '`step // warmup_steps` in place of `step / warmup_steps`.',
    name,
    f'{first:,}',
    f'{first + count - 1:,}',
    f'{num_steps:,}',
    plurals.format_count(count, 'step'),
    name,
    extra=logs.ONCE,
  )


def _suggest_later_end(rate: Any, end: int, num_steps: int) -> str:
  """Returns the instruction that makes a learning rate positive until the end.

  Args:
    rate: Schedule of the learning rate.
    end: Step from which on the learning rate is 0.
    num_steps: Number of steps in the run.
  """
  values = {
    f.name: getattr(rate, f.name, None) for f in dataclasses.fields(rate)
  }
  names = [
    name
    for name, value in values.items()
    if isinstance(value, int) and value == end and 'warmup' not in name
  ]
  if not names:
    return _suggest_correction(rate)
  name = names[0]
  text = f'Set {errors.field_location(rate, name)} to at least {num_steps}, or '
  if name == 'total_steps':
    return f'{text}do not set it.'
  return (
    f'{text}replace it by the field `total_steps` with the default None, which '
    'a run sets to its number of steps.'
  )


def _suggest_correction(schedule: schedules.Schedule) -> str:
  """Returns the instruction to correct a schedule."""
  name = type(schedule).__name__
  is_user_defined = user_modules.is_user_extension(type(schedule))
  method = f'`{name}.__call__` or ' if is_user_defined else ''
  return f'Correct {method}the settings of the schedule {name}.'


def _sample_steps(first: int, last: int) -> np.ndarray:
  """Returns the steps of a range, or a sample of `_MAX_STEPS` steps."""
  count = max(min(last - first + 1, _MAX_STEPS), 0)
  return np.unique(np.linspace(first, last, count).astype(np.int32))


def _evaluate(
  schedule: schedules.Schedule, steps: np.ndarray
) -> np.ndarray | None:
  """Returns the values of a schedule, or None if it does not support `vmap`."""
  try:
    return np.asarray(jax.jit(jax.vmap(schedule))(steps))
  except Exception:  # noqa: BLE001, a user-defined schedule may not support it.
    return None


def _suggest_total_steps(
  schedule: schedules.Schedule, error: Exception
) -> str | None:
  """Returns a hint if a schedule has computed with a field that is None."""
  names = [
    errors.field_location(schedule, field.name)
    for field in dataclasses.fields(schedule)
    if getattr(schedule, field.name, None) is None
  ]
  if not names or not isinstance(error, TypeError | AttributeError):
    return None
  return (
    f'The value of {" and ".join(names)} is None. A run sets only the field '
    '`total_steps` to its number of steps. Rename the field to `total_steps`, '
    'or set it in the configuration.'
  )


def _find_user_schedules(value: Any) -> Iterator[schedules.Schedule]:
  """Yields the user-defined schedules that an object contains."""
  if isinstance(value, list | tuple):
    for element in value:
      yield from _find_user_schedules(element)
  elif dataclasses.is_dataclass(value) and not isinstance(
    value, type | nn.Module
  ):
    if isinstance(value, schedules.Schedule) and user_modules.is_user_extension(
      type(value)
    ):
      yield value
    for field in dataclasses.fields(value):
      yield from _find_user_schedules(getattr(value, field.name, None))


def _check_rates(schedule: schedules.Schedule, num_steps: int) -> None:
  """Checks the values of a learning rate schedule at the steps of a run."""
  if num_steps < 1:
    return
  steps = _sample_steps(0, num_steps - 1)
  values = _evaluate(schedule, steps)
  if values is None:
    return
  peak = np.max(np.abs(values), initial=0.0, where=np.isfinite(values))
  is_invalid = ~np.isfinite(values) | (values < -_ROUNDING_ERROR * peak)
  if np.any(is_invalid):
    index = int(np.argmax(is_invalid))
    raise errors.ConfigError(
      f'The learning rate of the schedule {type(schedule).__name__} must be '
      'finite and must not be negative at any step of the run',
      got=f'{values[index]:.3g} at step {steps[index]:,} of {num_steps:,} steps',
      expected='a finite number of at least 0',
      where=_find_call(schedule),
      fix=f'Correct `{type(schedule).__name__}.__call__`, for example with '
      'jnp.maximum(value, 0.0). If the schedule sets its number of decay '
      'steps, set it to at least the number of steps of the run.'
      if values[index] < 0
      else f'Correct `{type(schedule).__name__}.__call__`. Check for divisions '
      'by zero, for example at step 0.',
    )


def _check_scalar(schedule: schedules.Schedule, value: Any) -> None:
  """Checks that the value of a schedule is a real number of shape [].

  Args:
    schedule: Schedule that returned the value.
    value: Returned value, which may be traced.

  Raises:
    ConfigError: If the value is not a scalar.
  """
  is_array = hasattr(value, 'shape') and hasattr(value, 'dtype')
  is_number = isinstance(value, int | float) or (
    is_array
    and np.ndim(value) == 0
    and (
      jnp.issubdtype(value.dtype, jnp.floating)
      or jnp.issubdtype(value.dtype, jnp.integer)
    )
  )
  if is_number:
    return
  raise errors.ConfigError(
    f'`{type(schedule).__name__}.__call__` must return a scalar',
    got=f'{value.dtype} array of shape {list(value.shape)}'
    if is_array
    else user_modules.describe_value(value),
    expected='a number of shape []',
    where=_find_call(schedule),
    fix='Add a return statement to `__call__`.'
    if value is None
    else 'Return one number, the value at the step.',
  )


def _find_call(schedule: schedules.Schedule) -> str:
  """Returns the line that defines the method `__call__` of a schedule."""
  return user_modules.find_method(type(schedule), '__call__')
