"""Base class for labeled examples, and the registry of task families."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from xlflax.data.supervised.labeled_examples import example_features
from xlflax.data.supervised.labeled_examples.example_features import (
  FeatureType,
  Role,
  feature_field,
)
from xlflax.utils import errors

_classes: dict[str, type['Example']] = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
  """Base class for labeled examples. A subclass with a `KIND` is a task family.

  Each field of a task family's class is a column of its SeqIO tasks, and the
  field's `Role` describes its use. A class with field types that columns do not
  support overrides `columns`, `values` and `of_values`. A class whose
  predictions are not one class name per example overrides `write_predictions`
  and `read_predictions`.

  Attributes:
    id: Identifier that is unique within a file. If the format has no ids, it is
      the index of the example, counted from 0. Translations of an example have
      the same id.
    language: Language code of the text, or of the first of two texts.
    KIND: Name of the task family (class attribute).
    ENDING: File extension of prediction files (class attribute).
  """

  KIND: ClassVar[str]
  ENDING: ClassVar[str] = 'tsv'

  id: str = feature_field(Role.OPTIONAL)
  language: str = feature_field(Role.OPTIONAL)

  def __init_subclass__(cls, **options):
    super().__init_subclass__(**options)
    if 'KIND' in cls.__dict__:
      _register(cls)

  @property
  def is_blind(self) -> bool:
    """True if the example has no gold labels to score predictions against."""
    gold = example_features.with_role(type(self), Role.GOLD)
    return all(example_features.is_empty(getattr(self, f.name)) for f in gold)

  @property
  def cluster(self) -> str:
    """Id of a group of dependent examples, such as those from one document."""
    return self.id

  @property
  def has_words(self) -> bool:
    """False if the example is a sentence without words, otherwise True."""
    return True

  @property
  def labels(self) -> tuple[str, ...] | None:
    """Names of the example's classes, tags or relations, or None if unlabeled.

    Raises:
      ConfigError: If examples in this task family never have labels.
    """
    for field in example_features.with_role(type(self), Role.LABELS):
      value = getattr(self, field.name)
      return (value,) if isinstance(value, str) else value
    raise errors.ConfigError(
      'The examples of the requested task family have no labels',
      got=self.KIND,
      expected='one of '
      + ', '.join(
        kind
        for kind, cls in _classes.items()
        if example_features.with_role(cls, Role.LABELS)
      ),
    )

  @classmethod
  def second_language(cls) -> str | None:
    """Returns the name of the field with the second text's language, if any."""
    for field in example_features.with_role(cls, Role.SECOND_LANGUAGE):
      return field.name
    return None

  @classmethod
  def columns(cls) -> dict[str, FeatureType]:
    """Returns the SeqIO column names and types for the task family."""
    return example_features.feature_types(cls)

  def values(self) -> dict[str, Any]:
    """Returns the values of the example's fields by SeqIO column name."""
    return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

  @classmethod
  def of_values(cls, values: dict[str, Any]) -> Self:
    """Creates an example from column values; the inverse of `values`."""
    return cls(**values)

  def to_columns(self) -> dict[str, Any]:
    """Converts the example to a row of a SeqIO task, by column name.

    For example, `TaggedSentence(id='0', language='fr', words=('Paris',),
    tags=('B-LOC',))` becomes `{'id': '0', 'language': 'fr', 'words': ['Paris'],
    'tags': ['B-LOC']}`.
    """
    values = self.values()
    return {
      name: example_features.encode_feature(values[name], form)
      for name, form in self.columns().items()
    }

  @classmethod
  def from_columns(
    cls,
    columns: Mapping[str, Any],
    *,
    number: int,
    languages: Sequence[str],
    where: str,
  ) -> Self:
    """Creates an example from a SeqIO row. This is the inverse of `to_columns`.

    Args:
      columns: Values of the row by column name. Text is `str` or `bytes`.
      number: Index of the row, which is used as the id if the row has none.
      languages: Language codes of the task. If there are two, the second is the
        language of the second text.
      where: Name of the task, for error messages.

    Raises:
      CorpusError: If the row lacks a column, or if its columns are
        inconsistent.
    """
    values = _decode_columns(cls, columns, where)
    values['id'] = values.get('id') or str(number)
    values['language'] = values.get('language') or languages[0]
    second_field = cls.second_language()
    if second_field is not None:
      default = languages[1] if len(languages) > 1 else None
      values[second_field] = values.get(second_field) or default
    for field in dataclasses.fields(cls):
      if field.default is None and example_features.is_empty(
        values.get(field.name)
      ):
        values[field.name] = None
    example = cls.of_values(values)
    _check_word_counts(example, where)
    return example

  @classmethod
  def write_predictions(cls, examples: Sequence[Self], predictions: Any) -> str:
    """Formats predictions as a file in XTREME's submission format.

    Args:
      examples: N examples of the test set.
      predictions: N predictions, which are class names, written one per line,
        unless the task family documents a different type.

    Raises:
      CorpusError: If the predictions do not match the examples.
    """
    check_number(len(examples), len(predictions), 'examples')
    return join_lines(predictions)

  @classmethod
  def read_predictions(cls, examples: Sequence[Self], text: str) -> Any:
    """Parses a prediction file. This is the inverse of `write_predictions`."""
    del examples
    return text.removesuffix('\n').split('\n')


def class_of(kind: str) -> type[Example]:
  """Returns the example class of a task family, such as 'tagging'.

  Raises:
    ConfigError: If the task family is not registered.
  """
  if kind not in _classes:
    raise errors.ConfigError(
      'No task family is registered with the requested name',
      got=kind,
      expected='one of ' + ', '.join(sorted(_classes)),
      fix="Import the module that defines the task family's example class.",
    )
  return _classes[kind]


def example_classes() -> tuple[str, ...]:
  """Returns the names of all registered task families."""
  return tuple(_classes)


def check_number(expected: int, actual: int, unit: str) -> None:
  """Checks that the number of predictions equals the number of test items.

  Args:
    expected: Number of items in the test set.
    actual: Number of predictions in the file.
    unit: Plural noun for the items, for the error message.

  Raises:
    CorpusError: If `expected` and `actual` differ.
  """
  if expected != actual:
    raise errors.CorpusError(
      f'The number of {unit} must be the same in the predictions and in the '
      'test set',
      got=actual,
      expected=expected,
    )


def join_lines(items: Iterable[str]) -> str:
  """Joins items into a text with one item per line."""
  return ''.join(f'{item}\n' for item in items)


def _register(cls: type[Example]) -> None:
  """Registers an example class under its `KIND`.

  The same class may be registered again, for example when its module is
  reloaded.
  """
  registered = _classes.get(cls.KIND)
  if registered is not None and (
    registered.__module__,
    registered.__qualname__,
  ) != (cls.__module__, cls.__qualname__):
    raise errors.ConfigError(
      f'The example class {cls.__module__}.{cls.__qualname__} must have a '
      'different KIND, because '
      f'{registered.__module__}.{registered.__qualname__} is already '
      'registered with this KIND',
      got=repr(cls.KIND),
    )
  _classes[cls.KIND] = cls


def _decode_columns(
  cls: type[Example], columns: Mapping[str, Any], where: str
) -> dict:
  """Decodes the columns of a row and checks that no column is missing."""
  forms = cls.columns()
  optional = {f.name for f in example_features.with_role(cls, Role.OPTIONAL)}
  missing = set(forms) - set(columns) - optional
  if missing:
    raise errors.CorpusError(
      f'In a {cls.KIND!r} task, each example must have the features '
      f'{", ".join(sorted(missing))}',
      got=', '.join(sorted(columns)),
      where=where,
      fix="Rename the features in one of the task's preprocessors.",
    )
  return {
    name: example_features.decode_feature(columns[name], form)
    for name, form in forms.items()
    if name in columns
  }


def _check_word_counts(example: Example, where: str) -> None:
  """Raises a CorpusError if the fields for words have different lengths."""
  sizes = {
    field.name: len(value)
    for field in example_features.with_role(type(example), Role.PER_WORD)
    if (value := getattr(example, field.name))
  }
  if len(set(sizes.values())) > 1:
    raise errors.CorpusError(
      f'The example {example.id!r} must have the same number of words and '
      'word labels',
      got=', '.join(f'{size} {name}' for name, size in sizes.items()),
      where=where,
    )
