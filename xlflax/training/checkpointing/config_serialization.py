"""A run described as plain JSON, built again from it, and its identity.

A description names classes by their registered names and holds every field. A
run's *identity* is its description without what may change on resume: fields
say so where they are declared (`class_registry.changeable_field`). Of a field with paths
(`class_registry.known_by_content`) it is what lies there, however the paths are
spelled.
"""

import dataclasses
import enum
import hashlib
import itertools
import json
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from flax import linen as nn

from xlflax.utils import class_registry, errors

CLASS = 'class'
FIELDS = 'fields'
CONTENTS = 'contents'
MAPPING = 'mapping'


def to_json_config(value: Any) -> Any:
  """Plain JSON for dataclasses, Linen modules, enums and plain values.

  A class that is not registered is named by its import path: it can be
  compared, but not built from a file.

  Raises:
    ConfigError: there is something else in it.
  """
  if isinstance(value, enum.Enum):
    return value.value
  if dataclasses.is_dataclass(value) and not isinstance(value, type):
    described = {
      CLASS: _name(type(value)),
      FIELDS: {
        f.name: _described_field(value, f) for f in described_fields(value)
      },
    }
    contents = {
      f.name: class_registry.content_of(f, getattr(value, f.name))
      for f in described_fields(value)
    }
    known = {name: found for name, found in contents.items() if found}
    return described | ({CONTENTS: known} if known else {})
  if isinstance(value, Mapping):
    return {
      MAPPING: [
        [to_json_config(k), to_json_config(v)] for k, v in value.items()
      ]
    }
  if isinstance(value, (list, tuple)):
    return [to_json_config(v) for v in value]
  if value is None or isinstance(value, (bool, int, float, str)):
    return value
  raise errors.ConfigError(
    'A setting cannot be recorded',
    got=repr(value),
    expected='numbers, strings, enums, dataclasses, or lists of them',
    fix='make it a frozen dataclass, with __call__ where it is a function',
  )


def from_json_config(description: Any) -> Any:
  """The inverse of `to_json_config` (lists become tuples).

  Raises:
    RunDirectoryError: a class is not registered, or has no such field; or
      this is no description.
  """
  try:
    return _built(description)
  except (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
  ) as error:
    raise errors.RunDirectoryError(
      'A run cannot be built from what its files say',
      got=f'{type(error).__name__}: {error}'[:300],
      expected='a description as xlflax wrote it',
      fix='copy the whole model directory again',
    ) from error


def _built(description: Any) -> Any:
  if isinstance(description, list):
    return tuple(_built(v) for v in description)
  if not isinstance(description, dict):
    return description
  if MAPPING in description:
    return {_built(k): _built(v) for k, v in description[MAPPING]}
  cls = class_registry.class_of(description[CLASS])
  fields_by_name = {f.name: f for f in described_fields(cls)}
  unknown = sorted(set(description[FIELDS]) - set(fields_by_name))
  if unknown:
    raise errors.RunDirectoryError(
      'A recorded class has fields that it no longer has',
      got=f'{description[CLASS]}: {", ".join(unknown)}',
      expected='some of ' + ', '.join(fields_by_name),
    )
  return cls(
    **{
      name: _as_enum(_built(value), fields_by_name[name].type)
      for name, value in description[FIELDS].items()
    }
  )


def config_identity(value: Any) -> dict[str, Any]:
  """What makes a run what it is: 'path.to.field' -> plain value."""
  return identity_of_description(to_json_config(value))


def identity_of_description(description: Any) -> dict[str, Any]:
  """The same from what `to_json_config` returned, perhaps long ago."""
  return dict(_flat(description, ''))


def config_fingerprint(value: Any) -> str:
  """16 hexadecimal digits that are the same for runs of one identity."""
  text = json.dumps(config_identity(value), sort_keys=True, ensure_ascii=False)
  return hashlib.sha256(text.encode('utf-8')).hexdigest()[:16]


def config_difference(old: Any, new: Any) -> list[str]:
  """The lines in which two descriptions' identities differ.

  A field that the older description lacks counts as its default: a class may
  gain a field without making every earlier run another. Paths whose content
  only one of them knows are compared as they are spelled.
  """
  old, new = _comparable(old, new), _comparable(new, old)
  before, after = map(identity_of_description, (old, new))
  before = {k: v for k, v in _flat(_defaults(new), '')} | before
  lines = []
  for key in sorted(before.keys() | after.keys()):
    if key not in after and key not in dict(_flat(old, '')):
      continue
    if before.get(key) != after.get(key):
      lines.append(f'- {key}: {_shown(before, key)}')
      lines.append(f'+ {key}: {_shown(after, key)}')
  return lines


def described_fields(cls_or_value: Any) -> list[dataclasses.Field]:
  """The fields that describe a dataclass; of a Linen module its own ones."""
  cls = cls_or_value if isinstance(cls_or_value, type) else type(cls_or_value)
  skipped = ('parent', 'name') if issubclass(cls, nn.Module) else ()
  return [
    f for f in dataclasses.fields(cls) if f.init and f.name not in skipped
  ]


def _described_field(value: Any, field: dataclasses.Field) -> Any:
  """A field's value; what cannot be recorded and may change, as text."""
  part = getattr(value, field.name)
  try:
    return to_json_config(part)
  except errors.ConfigError:
    if class_registry.is_changeable(field):
      return repr(part)
    raise


def _name(cls: type) -> str:
  return class_registry.name_of(cls) or f'{cls.__module__}:{cls.__qualname__}'


def _fields_of(description: dict) -> dict[str, dataclasses.Field]:
  """Fields of a described class by name; none where it is not known."""
  try:
    return {
      f.name: f
      for f in described_fields(class_registry.class_of(description[CLASS]))
    }
  except errors.RunDirectoryError:
    return {}


def _flat(description: Any, path: str) -> Iterator[tuple[str, Any]]:
  """(path, plain value) of everything that counts."""
  if isinstance(description, dict) and CLASS in description:
    yield f'{path or "run"}.class', description[CLASS]
    fields_by_name = _fields_of(description)
    for name, value in _valued(description).items():
      if name in fields_by_name:
        value = class_registry.identity_of(fields_by_name[name], value)
        if value is None and class_registry.is_changeable(fields_by_name[name]):
          continue
      yield from _flat(value, f'{path}.{name}' if path else name)
  elif isinstance(description, dict):
    for key, value in description[MAPPING]:
      yield from _flat(value, f'{path}[{key!r}]')
  elif isinstance(description, list) and description:
    for i, value in enumerate(description):
      yield from _flat(value, f'{path}[{i}]')
  else:
    yield path, description


class _Content(str):
  """What lies at a field's paths, which are `spelled` so."""

  spelled: Any = None


def _valued(description: dict) -> dict[str, Any]:
  """The fields of a described class, with contents in the place of paths."""
  values = dict(description[FIELDS])
  for name, content in description.get(CONTENTS, {}).items():
    content_value = _Content(content)
    content_value.spelled, values[name] = values[name], content_value
  return values


def _comparable(one: Any, other: Any) -> Any:
  """A description without the contents that another one does not know."""
  if isinstance(one, list):
    other_items = other if isinstance(other, list) else []
    pairs = itertools.zip_longest(one, other_items[: len(one)])
    return [_comparable(part, theirs) for part, theirs in pairs]
  if not isinstance(one, dict):
    return one
  theirs = other if isinstance(other, dict) else {}
  if MAPPING in one:
    return {MAPPING: _comparable(one[MAPPING], theirs.get(MAPPING))}
  common_contents = {
    name: content
    for name, content in one.get(CONTENTS, {}).items()
    if name in theirs.get(CONTENTS, {})
  }
  values = {
    name: _comparable(value, theirs.get(FIELDS, {}).get(name))
    for name, value in one[FIELDS].items()
  }
  return {CLASS: one[CLASS], FIELDS: values, CONTENTS: common_contents}


def _defaults(description: Any) -> Any:
  """A description whose fields have their classes' defaults, if any."""
  if isinstance(description, list):
    return [_defaults(v) for v in description]
  if not isinstance(description, dict) or CLASS not in description:
    return description
  fields_by_name = _fields_of(description)
  default_fields = {
    name: _default(fields_by_name[name])
    if name in fields_by_name and _has_default(fields_by_name[name])
    else _defaults(value)
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


def _shown(flat: dict[str, Any], key: str) -> str:
  if key not in flat:
    return 'not set'
  value = flat[key]
  if isinstance(value, _Content):
    return f'{json.dumps(value.spelled, ensure_ascii=False)} ({value})'
  return json.dumps(value, ensure_ascii=False)


def _as_enum(value: Any, hint: Any) -> Any:
  """A string as the member of an enum where the field's type has one."""
  if isinstance(value, tuple):
    return tuple(_as_enum(v, hint) for v in value)
  if isinstance(value, str):
    for kind in _enums_in(hint):
      if value in {member.value for member in kind}:
        return kind(value)
  return value


def _enums_in(hint: Any) -> Iterator[type[enum.Enum]]:
  if isinstance(hint, type) and issubclass(hint, enum.Enum):
    yield hint
  elif typing.get_origin(hint) is not None or isinstance(hint, types.UnionType):
    for part in typing.get_args(hint):
      yield from _enums_in(part)
