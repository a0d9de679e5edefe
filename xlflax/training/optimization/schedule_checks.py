"""Checks of user-defined schedules before training."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

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
    ConfigError: If a schedule does not return a scalar, or if a learning rate is
      negative or not finite at a step of the run.
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
    with user_modules.converting_class_errors(schedule, '__call__'):
      first_value = schedule(jnp.asarray(0))
    _check_scalar(schedule, first_value)


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
      'jnp.maximum(value, 0.0). If the schedule sets its number of decay steps, '
      'set it to at least the number of steps of the run.'
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
