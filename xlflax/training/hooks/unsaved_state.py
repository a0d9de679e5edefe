"""Detection of state that user-defined hooks do not save in checkpoints."""

import collections
import copy
import functools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xlflax.training.hooks import hook_base, hook_results
from xlflax.utils import logs, user_modules

# Number of values above which the initial value of an attribute is not copied.
_MAX_COPIED_VALUES = 1000
_NOT_COPIED = object()
_CONTAINERS = list | tuple | set | frozenset | collections.deque


class UnsavedStateCheck:
  """Compares the attributes of hooks with their values before training.

  Only attributes that are numbers, text, None, or containers of them are
  compared. Hooks that define `state_dict` are not checked.
  """

  def __init__(self):
    self._initial_values: list[tuple[hook_base.Hook, dict[str, Any]]] = []

  def record_initial_values(self, hooks: Sequence[hook_base.Hook]) -> None:
    """Copies the attributes of hooks after `before_training` was called."""
    for hook in hooks:
      if _has_own_state(hook):
        try:
          self._initial_values.append((hook, _copy_attributes(hook)))
        except Exception:  # noqa: BLE001, such a hook is not checked.
          continue

  def warn_of_changes(self) -> None:
    """Logs one warning for each hook whose attributes have changed."""
    self._initial_values = [
      (hook, initial_values)
      for hook, initial_values in self._initial_values
      if not _warn_of_changes(hook, initial_values)
    ]


def _warn_of_changes(
  hook: hook_base.Hook, initial_values: Mapping[str, Any]
) -> bool:
  """Logs a warning if attributes have changed, and returns whether it did."""
  try:
    changed = list(_find_changes(hook, initial_values))
  except Exception:  # noqa: BLE001, the values cannot be compared.
    return False
  if changed:
    logging.warning(
      'The hook %s does not define `state_dict`, so a resumed run starts with '
      'the initial values of the following attributes, which have changed: %s. '
      'If the hook needs these values, return them from `state_dict`, and '
      'restore them in `load_state_dict`. Otherwise, define a method '
      '`state_dict(self)` that returns None, which disables this warning '
      '(docs/extending.md#add-a-hook).',
      type(hook).__name__,
      ', '.join(changed),
      extra=logs.ONCE,
    )
  return bool(changed)


def _has_own_state(hook: hook_base.Hook) -> bool:
  """Returns whether only the user can define the state of a hook.

  The attributes of the hooks of xlflax, and of classes that are derived from
  them, need not be saved.
  """
  base_classes = hook_base.Hook.__mro__
  return getattr(
    hook.state_dict, '__func__', None
  ) is hook_base.Hook.state_dict and not any(
    user_modules.is_xlflax(cls.__module__)
    for cls in type(hook).__mro__
    if cls not in base_classes
  )


def _copy_attributes(hook: hook_base.Hook) -> dict[str, Any]:
  """Returns copies of the attributes that are plain values and not large."""
  return {
    name: copy.deepcopy(value)
    if _count_plain_values(value) <= _MAX_COPIED_VALUES
    else _NOT_COPIED
    for name, value in vars(hook).items()
  }


def _find_changes(
  hook: hook_base.Hook, initial_values: Mapping[str, Any]
) -> Iterator[str]:
  """Yields the names of the attributes with new plain values."""
  for name, value in vars(hook).items():
    is_cached = isinstance(
      getattr(type(hook), name, None), functools.cached_property
    )
    if is_cached or math.isinf(_count_plain_values(value)):
      continue
    if name not in initial_values:
      yield name
      continue
    initial_value = initial_values[name]
    if initial_value is _NOT_COPIED or value is initial_value:
      continue
    if value != initial_value:
      yield name


def _count_plain_values(value: Any) -> float:
  """Returns the number of values in a container, or 1 for a plain value.

  The result is infinity if the value is not a number, text or None, and not a
  container of them.
  """
  if isinstance(value, Mapping):
    value = list(value.values())
  if isinstance(value, _CONTAINERS):
    return sum(map(_count_plain_values, value))
  is_plain = (
    value is None or isinstance(value, str) or hook_results.is_number(value)
  )
  return 1 if is_plain else math.inf
