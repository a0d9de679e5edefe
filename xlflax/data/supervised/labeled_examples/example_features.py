"""Column types and field roles of labeled examples in SeqIO tasks.

A column holds text, a list of texts, a list of integers or one number. None is
stored as '' or an empty list, and as NaN in a column of numbers.
"""

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

from xlflax.utils import errors

_ROLE = 'role'


class FeatureType(enum.Enum):
  """Type of the values in a SeqIO column of labeled examples."""

  TEXT = 'text'
  TEXTS = 'texts'
  NUMBER = 'number'
  NUMBERS = 'numbers'


class Role(enum.Flag):
  """Role of a field in an example class, such as a gold label.

  GOLD: Gold label against which predictions are scored. It is empty in a blind
  test set. LABELS: Class name or class names that the model's head predicts.
  PER_WORD: Sequence with one item for each word. OPTIONAL: Column that a
  user-defined task may omit. SECOND_LANGUAGE: Language code of the second text.
  If the column is empty, the second language of the language split is used.
  """

  NONE = 0
  GOLD = enum.auto()
  LABELS = enum.auto()
  PER_WORD = enum.auto()
  OPTIONAL = enum.auto()
  SECOND_LANGUAGE = enum.auto()


_FORMS: Mapping[Any, FeatureType] = {
  str: FeatureType.TEXT,
  float: FeatureType.NUMBER,
  tuple[str, ...]: FeatureType.TEXTS,
  tuple[int, ...]: FeatureType.NUMBERS,
}


def feature_field(role: Role, **options) -> Any:
  """Creates a dataclass field of an example class and records its role.

  Args:
    role: Role of the field, such as `Role.GOLD` for a gold label. Several roles
      are combined with `|`.
    **options: Options of `dataclasses.field`, such as `default`.
  """
  return dataclasses.field(metadata={_ROLE: role}, **options)


def role_of(field: dataclasses.Field) -> Role:
  """Returns the `Role` flags of a dataclass field.

  A field with a default value is optional, unless it is a gold label.
  """
  role = field.metadata.get(_ROLE, Role.NONE)
  has_default = field.default is not dataclasses.MISSING
  if has_default and Role.GOLD not in role:
    return role | Role.OPTIONAL
  return role


def with_role(cls: type, role: Role) -> tuple[dataclasses.Field, ...]:
  """Returns the fields of an example class that have the given role."""
  return tuple(f for f in dataclasses.fields(cls) if role in role_of(f))


def feature_types(cls: type) -> dict[str, FeatureType]:
  """Returns each field's column type, derived from its type annotation.

  For example, the fields `words: tuple[str, ...]` and
  `tags: tuple[str, ...] | None` give
  `{'words': FeatureType.TEXTS, 'tags': FeatureType.TEXTS}`.

  Raises:
    ConfigError: If a field has a type that no column type supports.
  """
  hints = typing.get_type_hints(cls)
  forms = {}
  for field in dataclasses.fields(cls):
    hint = _without_none(hints[field.name])
    if hint not in _FORMS:
      raise errors.ConfigError(
        f'The field {cls.__name__}.{field.name} has a type that cannot be '
        'stored in a column. The supported types are str, float, tuple[str, '
        '...] and tuple[int, ...]',
        got=str(hint),
        fix='Override columns(), values() and of_values() in the example '
        'class.',
      )
    forms[field.name] = _FORMS[hint]
  return forms


def encode_feature(value: Any, form: FeatureType) -> Any:
  """Encodes the value of an example field as the value of a SeqIO column."""
  if form is FeatureType.TEXT:
    return value or ''
  if form is FeatureType.NUMBER:
    return math.nan if value is None else float(value)
  return list(value or ())


def decode_feature(value: Any, form: FeatureType) -> Any:
  """Decodes the value of a SeqIO column as the value of an example field.

  Text in the column may be `str` or `bytes`.
  """
  if form is FeatureType.TEXT:
    return _text(value)
  if form is FeatureType.NUMBER:
    return None if math.isnan(value) else float(value)
  if form is FeatureType.NUMBERS:
    return tuple(int(item) for item in value)
  return tuple(_text(item) for item in value)


def is_empty(value: Any) -> bool:
  """Returns whether a value is None, an empty text or an empty collection."""
  return value is None or (hasattr(value, '__len__') and not len(value))


def _text(value: Any) -> str:
  """Converts a value to text. Bytes are decoded as UTF-8."""
  return value.decode() if isinstance(value, bytes) else str(value)


def _without_none(hint: Any) -> Any:
  """Returns `X` for the type `X | None`, and other types unchanged."""
  if typing.get_origin(hint) in (typing.Union, types.UnionType):
    alternatives = [
      alternative
      for alternative in typing.get_args(hint)
      if alternative is not type(None)
    ]
    return alternatives[0] if len(alternatives) == 1 else hint
  return hint
