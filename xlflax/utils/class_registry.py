"""Stable names of the classes that a run is made of.

A run's files name classes by registered names (`"masked_lm"`), never by import
paths, so that a class can move; and only registered classes are built from
files, so that a file cannot run anything else. A class of a user's own is
registered when the module that defines it is imported.
"""

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, TypeVar

from xlflax.utils import errors, validation

_Class = TypeVar('_Class', bound=type)
_classes: dict[str, type] = {}
_names: dict[type, str] = {}

# Where the classes of xlflax that files name are defined.
_ROOMS = ('models', 'objectives', 'training')
_IDENTITY = 'xlflax.identity'
_CONTENT = 'xlflax.content'


@validation.validate_call
def register(name: str) -> Callable[[_Class], _Class]:
  """Registers a class under a name, for good: saved runs contain it.

  A dataclass checks its fields from then on (`validation.validate_fields`).

  Raises:
    ConfigError: another class has the name.
  """

  def decorate(cls: _Class) -> _Class:
    registered_class = _classes.get(name)
    if registered_class is not None and _path(registered_class) != _path(cls):
      raise errors.ConfigError(
        'Two classes are registered under one name',
        got=f'{_path(cls)} as {name!r}',
        expected=f'a name of its own; {name!r} is {_path(registered_class)}',
      )
    _classes[name] = cls
    _names[cls] = name
    return validation.validate_fields(cls)

  return decorate


def name_of(cls: type) -> str | None:
  """The name that a class is registered under, or None."""
  return _names.get(cls)


def class_of(name: str) -> type:
  """The class of a name.

  Raises:
    RunDirectoryError: no class is registered under it.
  """
  if name not in _classes:
    _import_rooms()
  if name not in _classes:
    raise errors.RunDirectoryError(
      'A class that the run was trained with is not registered',
      got=name,
      fix='import the module that registers it (--task_module=MODULE), with '
      'the decorator @xlflax.register(NAME) on the class',
    )
  return _classes[name]


def changeable_field(**arguments: Any) -> Any:
  """A dataclass field that may differ when a run is continued."""
  return part_of_identity(lambda value: None, **arguments)


def part_of_identity(part: Callable[[Any], Any], **arguments: Any) -> Any:
  """A dataclass field of which only `part(value)` makes a run what it is.

  Args:
    part: what of the field's described value counts, as plain JSON.
    **arguments: of `dataclasses.field`.
  """
  return dataclasses.field(metadata={_IDENTITY: part}, **arguments)


def known_by_content(
  content: Callable[[Any], str | None], **arguments: Any
) -> Any:
  """A dataclass field with paths: what lies there counts, not their spelling.

  Args:
    content: says of the field's value what lies there; None where that cannot
      be read now, and then the spelling counts.
    **arguments: of `dataclasses.field`.
  """
  return dataclasses.field(metadata={_CONTENT: content}, **arguments)


def content_of(field: dataclasses.Field, value: Any) -> str | None:
  """What lies at a field's paths; None where it has none, or is not known."""
  content = field.metadata.get(_CONTENT)
  return content(value) if content and value else None


def identity_of(field: dataclasses.Field, described: Any) -> Any:
  """What of a field's described value counts; None where nothing does."""
  part = field.metadata.get(_IDENTITY)
  return part(described) if part else described


def is_changeable(field: dataclasses.Field) -> bool:
  """Whether not all of the field makes a run what it is."""
  return _IDENTITY in field.metadata


def registered_classes() -> dict[str, type]:
  """Every registered class by its name, those of xlflax included."""
  _import_rooms()
  return dict(_classes)


def _import_rooms() -> None:
  for room in _ROOMS:
    package = importlib.import_module(f'xlflax.{room}')
    for module_info in pkgutil.walk_packages(
      package.__path__, f'{package.__name__}.'
    ):
      importlib.import_module(module_info.name)


def _path(cls: type) -> str:
  return f'{cls.__module__}:{cls.__qualname__}'
