"""Checks of the values that the methods of hooks return.

An invalid value raises an error with the class and the method. Otherwise, a
missing return statement could, for example, keep a run from saving checkpoints.
"""

import contextlib
import dataclasses
import functools
import inspect
import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.objectives import objective_base
from xlflax.training.hooks import hook_base
from xlflax.utils import errors, logs, user_modules

if TYPE_CHECKING:
  from xlflax.training import train_step, training_run

_CONTEXT_FIX = (
  'Decorate the method with @contextlib.contextmanager, with one `yield`, or '
  'return contextlib.nullcontext().'
)
# Hint for a metric that is used as a number.
METRIC_HINT = (
  'A metric in `output.metrics` is a WeightedMean of shape [] or [languages]. '
  'Compute its mean over all languages with float(metric.total.sum() / '
  'metric.weight.sum()) (docs/extending.md#values-of-a-step).'
)


def call_after_step(
  hook: hook_base.Hook,
  run: 'training_run.TrainingRun',
  step: int,
  output: 'train_step.StepOutput',
) -> hook_base.Request | None:
  """Calls the method `after_step` of a hook and checks its result.

  Args:
    hook: Hook whose method is called.
    run: See `hook_base.Hook.after_step`.
    step: See `hook_base.Hook.after_step`.
    output: See `hook_base.Hook.after_step`.

  Raises:
    ConfigError: If the method of a user-defined hook raises an exception, or if
      its result is not a valid `Request` and not None.
  """
  with user_modules.converting_class_errors(
    hook, 'after_step', suggest=_suggest_mean
  ):
    result = hook.after_step(run, step, output)
  return check_request(hook, 'after_step', result)


def check_request(
  hook: hook_base.Hook, method: str, value: Any
) -> hook_base.Request | None:
  """Checks the value that `before_training` or `after_step` returned.

  Args:
    hook: Hook whose method was called.
    method: Name of the method.
    value: Returned value.

  Returns:
    The request, whose metrics are converted to floats, or None.

  Raises:
    ConfigError: If the value is neither None nor a valid `Request`.
  """
  if value is None:
    return None
  if not isinstance(value, hook_base.Request):
    raise _invalid_result(
      hook,
      method,
      value,
      expected='a training.Request or None',
      fix='Return training.Request(stop=True) to end training, another '
      'training.Request(...), or nothing.',
    )
  if value.error is not None and not isinstance(value.error, Exception):
    raise _invalid_field(hook, method, 'error', value.error, 'an exception')
  if value.metrics is None:
    return value
  if not isinstance(value.metrics, Mapping) or not all(
    isinstance(name, str) and is_number(number)
    for name, number in value.metrics.items()
  ):
    raise _invalid_field(
      hook,
      method,
      'metrics',
      value.metrics,
      'a dictionary {NAME: number}',
      fix=METRIC_HINT if has_weighted_means(value.metrics) else None,
    )
  metrics = {name: float(number) for name, number in value.metrics.items()}
  return dataclasses.replace(value, metrics=metrics)


def call_without_request(
  hook: hook_base.Hook, method: str, *arguments: Any
) -> None:
  """Calls a hook method from which the training loop accepts no requests.

  If the method returns a `Request`, a warning is logged.

  Args:
    hook: Hook whose method is called.
    method: Name of the method.
    *arguments: Arguments of the method.
  """
  value = getattr(hook, method)(*arguments)
  if isinstance(value, hook_base.Request) or value is hook_base.Request:
    logging.warning(
      'Requests that `%s` returns are not executed. Return the request from '
      '`after_step` or `before_training`.',
      _name(hook, method),
      extra=logs.ONCE,
    )


def check_may_save(hook: hook_base.Hook, value: Any) -> bool:
  """Checks the value that `before_checkpoint` returned.

  Args:
    hook: Hook whose method was called.
    value: Returned value.

  Returns:
    The value as a bool.

  Raises:
    ConfigError: If the value is not True or False.
  """
  is_array = (
    hasattr(value, 'dtype') and value.dtype == bool and np.ndim(value) == 0
  )
  if not isinstance(value, bool) and not is_array:
    raise _invalid_result(
      hook,
      'before_checkpoint',
      value,
      expected='True or False',
      fix='Add `return True`. No checkpoint is saved unless the method returns '
      'True.',
    )
  return bool(value)


def check_step_function(
  hook: hook_base.Hook, value: Any, train_step: Callable[..., Any]
) -> Callable[..., Any]:
  """Checks the value that `wrap_train_step` returned.

  Args:
    hook: Hook whose method was called.
    value: Returned value.
    train_step: Argument of the method.

  Returns:
    The value. If it is a function of a user-defined hook, the result is a
    function whose exceptions are reported as those of the hook.

  Raises:
    ConfigError: If the value is not a function.
  """
  if not callable(value):
    raise _invalid_result(
      hook,
      'wrap_train_step',
      value,
      expected='a function `(state, batches) -> (state, output)`',
      fix='Return the argument `train_step`, or a function that calls it.',
    )
  if value is train_step or not user_modules.is_user_extension(type(hook)):
    return value

  @functools.wraps(value)
  def step_function(state: Any, batches: Any) -> Any:
    with user_modules.converting_class_errors(hook, 'wrap_train_step'):
      return value(state, batches)

  return step_function


def check_context(
  hook: hook_base.Hook, value: Any
) -> contextlib.AbstractContextManager[Any]:
  """Checks the value that `running` returned.

  Args:
    hook: Hook whose method was called.
    value: Returned value.

  Returns:
    The value.

  Raises:
    ConfigError: If the value is not a context manager.
  """
  if not isinstance(value, contextlib.AbstractContextManager):
    raise _invalid_result(
      hook, 'running', value, expected='a context manager', fix=_CONTEXT_FIX
    )
  return value


def read_state(hook: hook_base.Hook) -> Any:
  """Returns the value of a hook's `state_dict`.

  Raises:
    ConfigError: If the method raised an exception, or if the value cannot be
      saved as JSON.
  """
  with user_modules.converting_class_errors(hook, 'state_dict'):
    state = hook.state_dict()
  problem = _find_non_json(state, '')
  if problem is not None:
    path, value = problem
    is_key = path.endswith('{}')
    raise errors.ConfigError(
      f'The method `{_name(hook, "state_dict")}` must return JSON data, which '
      'consists of dictionaries with text keys, lists, text, numbers, booleans '
      'and None',
      got=f'{"a key" if is_key else "a value"} of type {_describe_type(value)} '
      + (f'({value!r}) in ' if is_key else 'at ')
      + f'state_dict(){path.removesuffix("{}")}',
      where=_find_method(hook, 'state_dict'),
      fix='Use strings as keys.' if is_key else _suggest_json(value),
    )
  return state


def warn_of_unloaded_state(hook: hook_base.Hook) -> None:
  """Logs a warning if a hook's state is saved, but not loaded on resumption."""
  cls = type(hook)
  if (
    cls.state_dict is not hook_base.Hook.state_dict
    and cls.load_state_dict is hook_base.Hook.load_state_dict
  ):
    logging.warning(
      'The hook %s saves a state, but a resumed run does not load it. Define '
      'the method `%s`, which receives the value of `state_dict`.',
      cls.__name__,
      _name(hook, 'load_state_dict(self, state)'),
      extra=logs.ONCE,
    )


def check_overrides(hook: hook_base.Hook) -> None:
  """Raises ConfigError if a hook overrides no method that training calls.

  An example is a class with the callback names of another library, such as
  `on_step_end`.

  Args:
    hook: Hook of the run.
  """
  cls = type(hook)
  called = _public_methods(hook_base.Hook)
  if any(
    getattr(getattr(hook, name), '__func__', None) is not method
    for name, method in called.items()
  ):
    return
  defined = {
    name: method
    for base in reversed(cls.__mro__)
    if not user_modules.is_xlflax(base.__module__) and base is not object
    for name, method in _public_methods(base).items()
  }
  raise errors.ConfigError(
    f'The hook {cls.__name__} must define at least one method that training '
    'calls',
    got=', '.join(defined) or 'no methods',
    expected=f'one or more of {", ".join(called)}',
    where=user_modules.find_definition(next(iter(defined.values())))
    if defined
    else cls.__qualname__,
    fix='Rename the methods, for example to `after_step(self, run, step, '
    'output)`.',
  )


def _public_methods(cls: type) -> dict[str, Callable]:
  """Returns the public methods in the body of a class, by name."""
  return {
    name: method
    for name, method in vars(cls).items()
    if inspect.isfunction(method) and not name.startswith('_')
  }


def is_number(value: Any) -> bool:
  """Returns whether a value is a real number, or an array of one such number.

  Args:
    value: Value of Python, NumPy or JAX. Arrays are not copied to the host.
  """
  if isinstance(value, int | float | np.number | np.bool_):
    return not isinstance(value, np.complexfloating)
  return (
    hasattr(value, 'shape')
    and hasattr(value, 'dtype')
    and value.shape == ()
    and (
      value.dtype == bool
      or jnp.issubdtype(value.dtype, jnp.integer)
      or jnp.issubdtype(value.dtype, jnp.floating)
    )
  )


def has_weighted_means(values: Any) -> bool:
  """Returns whether a value is a dictionary that contains weighted means."""
  return isinstance(values, Mapping) and any(
    isinstance(value, objective_base.WeightedMean) for value in values.values()
  )


def _suggest_mean(error: Exception) -> str | None:
  """Returns a hint if a hook uses a weighted mean as a number."""
  is_mean = objective_base.WeightedMean.__name__ in str(error)
  return METRIC_HINT if isinstance(error, TypeError) and is_mean else None


def _find_non_json(value: Any, path: str) -> tuple[str, Any] | None:
  """Returns the path and the value of the first part that is not JSON.

  The path ends with '{}' if the part is the key of a dictionary.
  """
  if isinstance(value, dict):
    for key, element in value.items():
      if not isinstance(key, str):
        return f'{path}{{}}', key
      if (problem := _find_non_json(element, f'{path}[{key!r}]')) is not None:
        return problem
    value = {}
  elif isinstance(value, list | tuple):
    for index, element in enumerate(value):
      if (problem := _find_non_json(element, f'{path}[{index}]')) is not None:
        return problem
    value = []
  try:
    json.dumps(value)
  except (TypeError, ValueError):
    return path, value
  return None


def _suggest_json(value: Any) -> str:
  """Returns the instruction that converts a value to JSON data."""
  if is_number(value):
    return 'Convert the value with float(...) or int(...).'
  if hasattr(value, 'tolist'):
    return 'Convert the array with numpy.asarray(...).tolist().'
  return 'Convert the value to a list, a dictionary, text or a number.'


def _describe_type(value: Any) -> str:
  """Returns the type of a value as users know it, such as 'jax.Array'."""
  if isinstance(value, jax.Array):
    return 'jax.Array'
  cls = type(value)
  module = '' if cls.__module__ == 'builtins' else f'{cls.__module__}.'
  return f'{module}{cls.__qualname__}'


def _name(hook: hook_base.Hook, method: str) -> str:
  return f'{type(hook).__name__}.{method}'


def _find_method(hook: hook_base.Hook, method: str) -> str:
  """Returns the line that defines a method, or its name without source code."""
  return user_modules.find_method(type(hook), method)


def _invalid_result(
  hook: hook_base.Hook, method: str, value: Any, *, expected: str, fix: str
) -> errors.ConfigError:
  """Returns the error for the value of a method."""
  return errors.ConfigError(
    f'The method `{_name(hook, method)}` must return {expected}',
    got='the class training.Request'
    if value is hook_base.Request
    else user_modules.describe_value(value),
    where=_find_method(hook, method),
    fix=fix,
  )


def _invalid_field(
  hook: hook_base.Hook,
  method: str,
  field: str,
  value: Any,
  expected: str,
  *,
  fix: str | None = None,
) -> errors.ConfigError:
  """Returns the error for a field of a `Request`."""
  return errors.ConfigError(
    f'The method `{_name(hook, method)}` returned a training.Request whose '
    f'field `{field}` is invalid',
    got=user_modules.describe_value(value),
    expected=expected,
    where=_find_method(hook, method),
    fix=fix,
  )
