"""JSON descriptions of runs, and the settings that must not change on resume.

A description contains the registered names of classes and the values of all
fields. The *identity* of a run is its description without the fields that may
change when a run is resumed, which are declared by
`class_registry.changeable_field`. For fields that contain paths
(`class_registry.path_field`), the identity contains the content at the
paths instead of their spelling.
"""

import dataclasses
import enum
import hashlib
import itertools
import json
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from flax import linen as nn

from xlflax.utils import class_registry, errors

CLASS = 'class'
FIELDS = 'fields'
CONTENTS = 'contents'
MAPPING = 'mapping'


def to_json_config(value: Any) -> Any:
  """Converts dataclasses, Linen modules, enums and plain values to plain JSON.

  The name of a class that is not registered is its import path. Its description
  can be compared, but not converted back.

  Args:
    value: Value to convert. Lists, tuples and mappings are converted
      recursively.

  Raises:
    ConfigError: If the value contains an object of a type that cannot be
      converted.
  """
  if isinstance(value, enum.Enum):
    return value.value
  if dataclasses.is_dataclass(value) and not isinstance(value, type):
    fields = described_fields(value)
    description = {
      CLASS: _class_name(type(value)),
      FIELDS: {field.name: _describe_field(value, field) for field in fields},
    }
    contents = {}
    for field in fields:
      content = class_registry.describe_content(
        field, getattr(value, field.name)
      )
      if content:
        contents[field.name] = content
    return description | ({CONTENTS: contents} if contents else {})
  if isinstance(value, Mapping):
    return {
      MAPPING: [
        [to_json_config(key), to_json_config(item)]
        for key, item in value.items()
      ]
    }
  if isinstance(value, (list, tuple)):
    return [to_json_config(item) for item in value]
  if value is None or isinstance(value, (bool, int, float, str)):
    return value
  raise errors.ConfigError(
    'A setting has a type that cannot be saved as JSON. The supported types '
    'are numbers, strings, enums, dataclasses, and lists and mappings of these '
    'types',
    got=repr(value),
    fix='Use a frozen dataclass instead. To replace a function, define '
    '`__call__` in the dataclass.',
  )


def from_json_config(description: Any) -> Any:
  """Builds the value that a JSON description represents. Lists become tuples.

  Args:
    description: Description returned by `to_json_config`.

  Raises:
    RunDirectoryError: If the description is invalid, or contains a class that
      is not registered or a field that does not exist.
  """
  try:
    return _build(description)
  except (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
  ) as error:
    raise errors.RunDirectoryError(
      'An object could not be created from its saved configuration',
      got=f'{type(error).__name__}: {error}'[:300],
      fix='Copy the complete model directory again.',
    ) from error


def _build(description: Any) -> Any:
  if isinstance(description, list):
    return tuple(_build(value) for value in description)
  if not isinstance(description, dict):
    return description
  if MAPPING in description:
    return {_build(key): _build(value) for key, value in description[MAPPING]}
  cls = class_registry.find_class(description[CLASS])
  fields_by_name = {field.name: field for field in described_fields(cls)}
  unknown = sorted(set(description[FIELDS]) - set(fields_by_name))
  if unknown:
    raise errors.RunDirectoryError(
      f'The saved configuration of {description[CLASS]} contains fields that '
      'the class does not have',
      got=', '.join(unknown),
      expected=', '.join(fields_by_name),
    )
  return cls(
    **{
      name: _to_enum(_build(value), fields_by_name[name].type)
      for name, value in description[FIELDS].items()
    }
  )


def config_identity(value: Any) -> dict[str, Any]:
  """Returns the settings that must stay unchanged when a run is resumed.

  Args:
    value: Configuration of the run.

  Returns:
    Mapping from 'path.to.field' to plain values.
  """
  return identity_of_description(to_json_config(value))


def identity_of_description(description: Any) -> dict[str, Any]:
  """Returns a run's `config_identity` from its JSON description."""
  return dict(_flatten(description, ''))


def config_fingerprint(value: Any) -> str:
  """Returns a hash of a run's `config_identity`, as 16 hexadecimal digits."""
  text = json.dumps(config_identity(value), sort_keys=True, ensure_ascii=False)
  return hashlib.sha256(text.encode('utf-8')).hexdigest()[:16]


class ChangedSetting(NamedTuple):
  """A setting whose value differs between two runs.

  Attributes:
    name: Path of the setting, such as 'optimizer.learning_rate'.
    old: Value in the older run, formatted as JSON, or 'not set'.
    new: Value in the newer run, in the same format.
  """

  name: str
  old: str
  new: str


def config_difference(old: Any, new: Any) -> list[ChangedSetting]:
  """Returns the changed settings that must not change on resume.

  A field that the older description lacks has its default value, so that a
  class may gain a field without changing the identity of earlier runs. Paths
  are compared by their spelling if only one description contains their content.

  Args:
    old: Description of the older run's settings, as returned by
      `to_json_config`.
    new: Description of the newer run's settings, as returned by
      `to_json_config`.
  """
  old, new = _keep_common_contents(old, new), _keep_common_contents(new, old)
  old_identity = identity_of_description(old)
  new_identity = identity_of_description(new)
  old_values = dict(_flatten(_replace_by_defaults(new), '')) | old_identity
  changed_settings = []
  for key in sorted(old_values.keys() | new_identity.keys()):
    if key not in new_identity and key not in old_identity:
      continue  # The key belongs to a default only.
    if old_values.get(key) != new_identity.get(key):
      changed_settings.append(
        ChangedSetting(
          key, _format_value(old_values, key), _format_value(new_identity, key)
        )
      )
  return changed_settings


def described_fields(cls_or_value: Any) -> list[dataclasses.Field]:
  """Returns the fields that the JSON description of an object contains.

  The object is a dataclass or a Linen module, or one of these classes.
  """
  cls = cls_or_value if isinstance(cls_or_value, type) else type(cls_or_value)
  skipped = ('parent', 'name') if issubclass(cls, nn.Module) else ()
  return [
    field
    for field in dataclasses.fields(cls)
    if field.init and field.name not in skipped
  ]


def _describe_field(value: Any, field: dataclasses.Field) -> Any:
  """Describes a field's value as plain JSON.

  A changeable field whose value cannot be recorded is described by its repr.
  """
  field_value = getattr(value, field.name)
  try:
    return to_json_config(field_value)
  except errors.ConfigError:
    if class_registry.is_changeable(field):
      return repr(field_value)
    raise


def _class_name(cls: type) -> str:
  return (
    class_registry.registered_name(cls)
    or f'{cls.__module__}:{cls.__qualname__}'
  )


def _class_fields(description: dict) -> dict[str, dataclasses.Field]:
  """Returns the fields of a described class by name, or {} if it is unknown."""
  try:
    cls = class_registry.find_class(description[CLASS])
    return {field.name: field for field in described_fields(cls)}
  except errors.RunDirectoryError:
    return {}


def _flatten(description: Any, path: str) -> Iterator[tuple[str, Any]]:
  """Yields the settings in a run's identity, as paths and plain values."""
  if isinstance(description, dict) and CLASS in description:
    yield f'{path or "run"}.class', description[CLASS]
    fields_by_name = _class_fields(description)
    for name, value in _fields_with_contents(description).items():
      if name in fields_by_name:
        value = class_registry.get_identity(fields_by_name[name], value)
        if value is None and class_registry.is_changeable(fields_by_name[name]):
          continue
      yield from _flatten(value, f'{path}.{name}' if path else name)
  elif isinstance(description, dict):
    for key, value in description[MAPPING]:
      yield from _flatten(value, f'{path}[{key!r}]')
  elif isinstance(description, list) and description:
    for i, value in enumerate(description):
      yield from _flatten(value, f'{path}[{i}]')
  else:
    yield path, description


class _Content(str):
  """Content of the files to which the paths in a field point.

  Attributes:
    spelled: Value of the field, with the paths as the user wrote them.
  """

  spelled: Any = None


def _fields_with_contents(description: dict) -> dict[str, Any]:
  """Returns a description's fields, with file contents instead of paths."""
  values = dict(description[FIELDS])
  for name, content in description.get(CONTENTS, {}).items():
    content_value = _Content(content)
    content_value.spelled, values[name] = values[name], content_value
  return values


def _keep_common_contents(description: Any, other: Any) -> Any:
  """Removes file contents of fields for which `other` has none."""
  if isinstance(description, list):
    other_items = other if isinstance(other, list) else []
    pairs = itertools.zip_longest(description, other_items[: len(description)])
    return [
      _keep_common_contents(item, other_item) for item, other_item in pairs
    ]
  if not isinstance(description, dict):
    return description
  other = other if isinstance(other, dict) else {}
  if MAPPING in description:
    items = _keep_common_contents(description[MAPPING], other.get(MAPPING))
    return {MAPPING: items}
  common_contents = {
    name: content
    for name, content in description.get(CONTENTS, {}).items()
    if name in other.get(CONTENTS, {})
  }
  values = {
    name: _keep_common_contents(value, other.get(FIELDS, {}).get(name))
    for name, value in description[FIELDS].items()
  }
  return {CLASS: description[CLASS], FIELDS: values, CONTENTS: common_contents}


def _replace_by_defaults(description: Any) -> Any:
  """Replaces the fields of a description by the defaults of their classes."""
  if isinstance(description, list):
    return [_replace_by_defaults(item) for item in description]
  if not isinstance(description, dict) or CLASS not in description:
    return description
  fields_by_name = _class_fields(description)
  default_fields = {
    name: _default(fields_by_name[name])
    if name in fields_by_name and _has_default(fields_by_name[name])
    else _replace_by_defaults(value)
    for name, value in description[FIELDS].items()
  }
  return {CLASS: description[CLASS], FIELDS: default_fields}


def _has_default(field: dataclasses.Field) -> bool:
  return (
    field.default is not dataclasses.MISSING
    or field.default_factory is not dataclasses.MISSING
  )


def _default(field: dataclasses.Field) -> Any:
  if field.default is not dataclasses.MISSING:
    return to_json_config(field.default)
  assert field.default_factory is not dataclasses.MISSING
  return to_json_config(field.default_factory())


def _format_value(identity: dict[str, Any], key: str) -> str:
  if key not in identity:
    return 'not set'
  value = identity[key]
  if isinstance(value, _Content):
    return f'{json.dumps(value.spelled, ensure_ascii=False)} ({value})'
  return json.dumps(value, ensure_ascii=False)


def _to_enum(value: Any, hint: Any) -> Any:
  """Converts strings to enum members if a field's type contains an enum."""
  if isinstance(value, tuple):
    return tuple(_to_enum(item, hint) for item in value)
  if isinstance(value, str):
    for enum_class in _find_enums(hint):
      if value in {member.value for member in enum_class}:
        return enum_class(value)
  return value


def _find_enums(hint: Any) -> Iterator[type[enum.Enum]]:
  """Yields the enums that a type annotation contains."""
  if isinstance(hint, type) and issubclass(hint, enum.Enum):
    yield hint
  elif typing.get_origin(hint) is not None or isinstance(hint, types.UnionType):
    for argument in typing.get_args(hint):
      yield from _find_enums(argument)
