"""Checks of user-defined learning rate schedules before training."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.training.optimization import optimizers, schedules
from xlflax.utils import errors, user_modules

# A schedule of a longer run is evaluated at this number of steps.
_MAX_STEPS = 100_000
# Negative values of at most this fraction of the peak are rounding errors.
_ROUNDING_ERROR = 1e-5


def check_learning_rates(
  optimizer: optimizers.Optimizer, num_steps: int
) -> None:
  """Checks the values of an optimizer's user-defined schedules.

  Args:
    optimizer: Optimizer of the run. Schedules of xlflax are not checked.
    num_steps: Number of steps in the run.

  Raises:
    ConfigError: If a schedule does not return a scalar, or if its value is
      negative or not finite at a step of the run.
  """
  rates = [optimizer.learning_rate, *(r for _, r in optimizer.lr_multipliers)]
  for rate in rates:
    if isinstance(rate, schedules.Schedule) and user_modules.is_user_extension(
      type(rate)
    ):
      _check_schedule(rate, num_steps)


def _check_schedule(schedule: schedules.Schedule, num_steps: int) -> None:
  """Checks the values of one schedule, as in `check_learning_rates`."""
  # Training passes an array. Some schedules do not accept the integer 0, as in
  # `step ** -0.5`.
  with user_modules.converting_class_errors(schedule, '__call__'):
    first_value = schedule(jnp.asarray(0))
  check_scalar(schedule, first_value)
  if num_steps < 1:
    return
  steps = np.unique(
    np.linspace(0, num_steps - 1, min(num_steps, _MAX_STEPS)).astype(np.int32)
  )
  try:
    values = np.asarray(jax.jit(jax.vmap(schedule))(steps))
  except Exception:  # noqa: BLE001, the schedule may not support `vmap`.
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
      'jnp.maximum(value, 0.0). If the decay has an own number of steps, it '
      'must not be lower than the number of steps of the run.'
      if values[index] < 0
      else f'Correct `{type(schedule).__name__}.__call__`. Check for divisions '
      'by zero, for example at step 0.',
    )


def check_scalar(schedule: schedules.Schedule, value: Any) -> None:
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
    else repr(value),
    expected='a number of shape []',
    where=_find_call(schedule),
    fix='Add a return statement to `__call__`.'
    if value is None
    else 'Return one number, the value at the step.',
  )


def _find_call(schedule: schedules.Schedule) -> str:
  """Returns the line that defines the method `__call__` of a schedule."""
  return user_modules.find_definition(type(schedule).__call__)
