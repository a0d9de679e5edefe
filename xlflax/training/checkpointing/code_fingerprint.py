"""Fingerprint of the user's source code, which is stored in every checkpoint.

The configuration of a run contains the names of user-defined classes and the
values of their fields, but not their source code. A run that resumes with
changed code therefore logs a warning. It is not rejected, because the change
may be the correction of a mistake.
"""

import dataclasses
import logging
import pathlib
import types
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from xlflax.training.checkpointing import checkpoint_items, config_serialization
from xlflax.utils import logs, user_modules

if TYPE_CHECKING:
  from xlflax.trainer import Trainer


def describe_code(settings: 'Trainer') -> dict[str, str]:
  """Returns the hashes of the source files that define a run's classes.

  The files are those of user-defined objectives, optimizers, schedules, hooks,
  models and other settings, of the modules that register SeqIO tasks, and of
  the user-defined modules that these files import.

  Args:
    settings: Settings of the run, which are the fields of its `Trainer`. Its
      task modules have been imported unless it reads a token cache.

  Returns:
    Mapping from the names of modules to hashes
    (`user_modules.digest_modules`).
  """
  modules = {
    user_modules.importable_name(module, where=user_modules.TASK_MODULE_FLAG)
    for module in (settings.task_modules if not settings.cache_dir else ())
  }
  return user_modules.digest_modules(modules | _find_modules(settings))


def find_user_classes(settings: 'Trainer') -> list[type]:
  """Returns the user-defined classes of a run's settings, without repetition.

  Args:
    settings: Settings of the run, which are the fields of its `Trainer`.
  """
  return [
    cls
    for cls in dict.fromkeys(_find_classes(settings))
    if user_modules.is_user_extension(cls)
  ]


def describe_model_code(model: Any) -> dict[str, str]:
  """Returns the hashes of the source files that define a model.

  Args:
    model: Linen module. The result is empty if all of its classes are part of
      xlflax or of another package.
  """
  return user_modules.digest_modules(_find_modules(model))


def warn_of_changed_model(model: Any, checkpoint: pathlib.Path) -> None:
  """Logs a warning if a user-defined model has changed since its training.

  Args:
    model: Linen module with which the parameters of the checkpoint are used.
    checkpoint: Directory of a finished checkpoint.
  """
  current = describe_model_code(model)
  if not current:
    return
  try:
    inputs = checkpoint_items.read_meta(checkpoint).get('inputs', {})
  except (OSError, ValueError):
    return  # Readers of the checkpoint report this error.
  files = user_modules.describe_changed_files(inputs.get('code', {}), current)
  if files:
    logging.warning(
      'The source code of the model (%s) has changed since checkpoint %s was '
      'trained. The parameters of the checkpoint are used with the new code.',
      files,
      checkpoint,
      extra=logs.ONCE,
    )


def _find_modules(value: Any) -> set[str]:
  """Returns the modules of the user-defined classes in a value."""
  return {
    base.__module__
    for cls in _find_classes(value)
    for base in cls.__mro__
    if user_modules.is_user_class(base) or user_modules.is_user_extension(base)
  }


def _find_classes(value: Any) -> Iterator[type]:
  """Yields the classes of a value and of the values that it contains."""
  if isinstance(value, Mapping):
    for key, item in value.items():
      yield from _find_classes(key)
      yield from _find_classes(item)
  elif isinstance(value, (list, tuple)):
    for item in value:
      yield from _find_classes(item)
  elif isinstance(value, type):
    yield value
  elif not isinstance(value, types.FunctionType):
    yield type(value)
    if dataclasses.is_dataclass(value):
      for field in config_serialization.described_fields(value):
        yield from _find_classes(getattr(value, field.name))
