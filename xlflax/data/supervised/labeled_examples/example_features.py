"""The columns that an example has in a SeqIO task, and what each is for.

Every column is text, a list of text, a list of whole numbers or one number.
What is None is '' or an empty list there, and NaN as a number.
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


class Form(enum.Enum):
  """What a column holds."""

  TEXT = 'text'
  TEXTS = 'texts'
  NUMBER = 'number'
  NUMBERS = 'numbers'


class Role(enum.Flag):
  """What a field of an example is for.

  GOLD: an evaluation compares predictions with it; empty in a blind test set.
  LABELS: its text, or each of its texts, names a class of the model's head.
  PER_WORD: it has one item for each word.
  OPTIONAL: a task of one's own may leave the column out.
  SECOND_LANGUAGE: the code of the second text's language, for which the
    second language of the part stands in where the column is empty.
  """

  NONE = 0
  GOLD = enum.auto()
  LABELS = enum.auto()
  PER_WORD = enum.auto()
  OPTIONAL = enum.auto()
  SECOND_LANGUAGE = enum.auto()


_FORMS: Mapping[Any, Form] = {
  str: Form.TEXT,
  float: Form.NUMBER,
  tuple[str, ...]: Form.TEXTS,
  tuple[int, ...]: Form.NUMBERS,
}


def feature_field(role: Role, **options) -> Any:
  """A dataclass field that has a role.

  Args:
    role: what the field is for; several are joined by `|`.
    **options: of `dataclasses.field`, such as `default`.
  """
  return dataclasses.field(metadata={_ROLE: role}, **options)


def role_of(field: dataclasses.Field) -> Role:
  """What a field is for. One with a default that is not gold is optional."""
  role = field.metadata.get(_ROLE, Role.NONE)
  has_default = field.default is not dataclasses.MISSING
  return role | Role.OPTIONAL if has_default and Role.GOLD not in role else role


def with_role(cls: type, role: Role) -> tuple[dataclasses.Field, ...]:
  """The fields of a class of examples that have a role."""
  return tuple(f for f in dataclasses.fields(cls) if role in role_of(f))


def feature_types(cls: type) -> dict[str, Form]:
  """The form of each field, by the field's type.

  Before: `words: tuple[str, ...]`, `tags: tuple[str, ...] | None`; after:
  `{'words': Form.TEXTS, 'tags': Form.TEXTS}`.

  Raises:
    ConfigError: a field's type is that of no column.
  """
  hints = typing.get_type_hints(cls)
  forms = {}
  for field in dataclasses.fields(cls):
    hint = _without_none(hints[field.name])
    if hint not in _FORMS:
      raise errors.ConfigError(
        'A field of an example has a type that no column holds',
        got=str(hint),
        expected='str, float, tuple[str, ...] or tuple[int, ...]',
        where=f'{cls.__name__}.{field.name}',
        fix='override columns(), values() and of_values()',
      )
    forms[field.name] = _FORMS[hint]
  return forms


def encode_feature(value: Any, form: Form) -> Any:
  """A value as a column holds it."""
  if form is Form.TEXT:
    return value or ''
  if form is Form.NUMBER:
    return math.nan if value is None else float(value)
  return list(value or ())


def decode_feature(value: Any, form: Form) -> Any:
  """The value of a column, whose text is `str` or `bytes`."""
  if form is Form.TEXT:
    return _text(value)
  if form is Form.NUMBER:
    return None if math.isnan(value) else float(value)
  if form is Form.NUMBERS:
    return tuple(int(item) for item in value)
  return tuple(_text(item) for item in value)


def is_empty(value: Any) -> bool:
  """Whether a field says nothing: None, or text or a collection of size 0."""
  return value is None or (hasattr(value, '__len__') and not len(value))


def _text(value: Any) -> str:
  return value.decode() if isinstance(value, bytes) else str(value)


def _without_none(hint: Any) -> Any:
  """`X` of `X | None`; other types as they are."""
  if typing.get_origin(hint) in (typing.Union, types.UnionType):
    alternatives = [
      alternative
      for alternative in typing.get_args(hint)
      if alternative is not type(None)
    ]
    return alternatives[0] if len(alternatives) == 1 else hint
  return hint
