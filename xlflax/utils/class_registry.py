"""Registry of classes, which maps the names in saved runs to classes.

The files of a run contain the registered name of a class (`"masked_lm"`)
instead of its import path, so the class can be moved to a different module.
Only registered classes are built from files, so a file cannot execute arbitrary
code. User-defined classes are registered when the module that defines them is
imported.
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

# Packages of xlflax that contain registered classes.
_PACKAGES = (
  'models',
  'objectives',
  'training',
  'data.supervised.featurizers',
  'evaluation',
)
# The modules next to these sources import TensorFlow.
_MODULES = (
  'trainer',
  'evaluate',
  'data.supervised.sources.beir',
  'data.supervised.sources.code_switched_source',
  'data.supervised.sources.concatenated_source',
  'data.supervised.sources.task_source',
)
_IDENTITY = 'xlflax.identity'
_CONTENT = 'xlflax.content'


@validation.validate_call
def register(name: str) -> Callable[[_Class], _Class]:
  """Registers a class under a permanent name for use in saved runs.

  The fields of a dataclass are validated from then on
  (`validation.validate_fields`).

  Args:
    name: The name under which the class is registered.

  Returns:
    A class decorator.

  Raises:
    ConfigError: If a different class is already registered under the name.
  """

  def decorate(cls: _Class) -> _Class:
    registered_class = _classes.get(name)
    if registered_class is not None and _path(registered_class) != _path(cls):
      raise errors.ConfigError(
        f'The name {name!r} is already registered for the class '
        f'{_path(registered_class)}. Every class must have a different name',
        got=_path(cls),
      )
    _classes[name] = cls
    _names[cls] = name
    return validation.validate_fields(cls)

  return decorate


def registered_name(cls: type) -> str | None:
  """Returns a class's registered name, or None if it is not registered."""
  return _names.get(cls)


def find_class(name: str) -> type:
  """Returns the class that is registered under a name.

  Args:
    name: The name under which the class is registered.

  Raises:
    RunDirectoryError: If no class is registered under the name.
  """
  if name not in _classes:
    _import_packages()
  if name not in _classes:
    raise errors.RunDirectoryError(
      'The run uses a class, and no imported module registers this class',
      got=name,
      fix='Import the module in which the class has the decorator '
      f'@xlflax.register({name!r}): pass --task_module=MODULE to commands with '
      'this option, or import the module in a gin file or in Python.',
    )
  return _classes[name]


def changeable_field(**arguments: Any) -> Any:
  """Declares a dataclass field that may change when a run is resumed.

  Args:
    **arguments: Arguments of `dataclasses.field`.
  """
  return partial_identity_field(lambda value: None, **arguments)


def partial_identity_field(part: Callable[[Any], Any], **arguments: Any) -> Any:
  """Declares a dataclass field that may partly change when a run is resumed.

  Args:
    part: Function that takes the serialized value of the field and returns the
      settings in it that must stay unchanged when a run is resumed, as plain
      JSON.
    **arguments: Arguments of `dataclasses.field`.
  """
  return dataclasses.field(metadata={_IDENTITY: part}, **arguments)


def path_field(content: Callable[[Any], str | None], **arguments: Any) -> Any:
  """Declares a dataclass field whose paths are compared by content on resume.

  Args:
    content: Function that takes the field's value and returns a description of
      the files to which its paths point, or None if the files cannot be read.
      In that case, the paths themselves are compared.
    **arguments: Arguments of `dataclasses.field`.
  """
  return dataclasses.field(metadata={_CONTENT: content}, **arguments)


def describe_content(field: dataclasses.Field, value: Any) -> str | None:
  """Describes the content of the files whose paths a field contains.

  Args:
    field: The dataclass field to inspect.
    value: The value of the field.

  Returns:
    The description, or None if the field has no paths or the content cannot be
    read.
  """
  content = field.metadata.get(_CONTENT)
  return content(value) if content and value else None


def get_identity(field: dataclasses.Field, described: Any) -> Any:
  """Returns the part of a field's value that must stay unchanged on resume.

  Args:
    field: The dataclass field to inspect.
    described: The serialized value of the field.

  Returns:
    The part, or None if the field may change.
  """
  part = field.metadata.get(_IDENTITY)
  return part(described) if part else described


def is_changeable(field: dataclasses.Field) -> bool:
  """Returns whether any part of a field may change when a run is resumed."""
  return _IDENTITY in field.metadata


def registered_classes() -> dict[str, type]:
  """Returns all registered classes by name, including xlflax's own classes."""
  _import_packages()
  return dict(_classes)


def _import_packages() -> None:
  """Imports the modules of xlflax that register classes."""
  for module_name in _MODULES:
    importlib.import_module(f'xlflax.{module_name}')
  for package_name in _PACKAGES:
    package = importlib.import_module(f'xlflax.{package_name}')
    for module_info in pkgutil.walk_packages(
      package.__path__, f'{package.__name__}.'
    ):
      importlib.import_module(module_info.name)


def _path(cls: type) -> str:
  """Returns the import path of a class."""
  return f'{cls.__module__}:{cls.__qualname__}'
