"""The base of examples: what a task family declares about them."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from xlflax.data.supervised.labeled_examples import example_features
from xlflax.data.supervised.labeled_examples.example_features import (
  Form,
  Role,
  feature_field,
)
from xlflax.utils import errors

_classes: dict[str, type['Example']] = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
  """Base of examples. A subclass with a `KIND` is a task family.

  A family's fields are its columns; `column` says what a field is for. A
  family whose fields have other types than columns overrides `columns`,
  `values` and `of_values`; one whose predictions are not a name for each
  example overrides `write_predictions` and `read_predictions`.

  Attributes:
    id: unique within its file; the number of the example, from 0, where the
      format has none. Translations of an example share its id.
    language: code of the text; of the first text, where there are two.
    KIND: the task family's name.
    ENDING: of the names of files of predictions.
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
    """Whether it has nothing that an evaluation could compare with."""
    gold = example_features.with_role(type(self), Role.GOLD)
    return all(example_features.is_empty(getattr(self, f.name)) for f in gold)

  @property
  def cluster(self) -> str:
    """What it shares with others, such as a document: they vary together."""
    return self.id

  @property
  def has_words(self) -> bool:
    """Whether there is a word to read; True for text that is not split."""
    return True

  @property
  def labels(self) -> tuple[str, ...] | None:
    """The names of its classes, tags or relations; None if not known.

    Raises:
      ConfigError: examples of this kind have no labels.
    """
    for field in example_features.with_role(type(self), Role.LABELS):
      value = getattr(self, field.name)
      return (value,) if isinstance(value, str) else value
    raise errors.ConfigError(
      'Examples of this kind have no labels',
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
    """The field with the code of the second text's language, if any."""
    for field in example_features.with_role(cls, Role.SECOND_LANGUAGE):
      return field.name
    return None

  @classmethod
  def columns(cls) -> dict[str, Form]:
    """The columns of a SeqIO task of such examples."""
    return example_features.feature_types(cls)

  def values(self) -> dict[str, Any]:
    """The values of the columns."""
    return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

  @classmethod
  def of_values(cls, values: dict[str, Any]) -> Self:
    """The example with these values; the inverse of `values`."""
    return cls(**values)

  def to_columns(self) -> dict[str, Any]:
    """The columns of an example.

    Before: `TaggedSentence(id='0', language='fr', words=('Paris',),
    tags=('B-LOC',))`; after: `{'id': '0', 'language': 'fr', 'words':
    ['Paris'], 'tags': ['B-LOC']}`.
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
    """The example of a row of columns; the inverse of `to_columns`.

    Args:
      columns: by name, text as `str` or `bytes`.
      number: of the row; the id of one that has none.
      languages: of the task; the second is that of the second text.
      where: the task, for messages.

    Raises:
      CorpusError: the row lacks a column, or columns do not fit each other.
    """
    values = _read(cls, columns, where)
    values['id'] = values.get('id') or str(number)
    values['language'] = values.get('language') or languages[0]
    second = cls.second_language()
    if second is not None:
      values[second] = values.get(second) or (*languages[1:], None)[0]
    for field in dataclasses.fields(cls):
      if field.default is None and example_features.is_empty(
        values.get(field.name)
      ):
        values[field.name] = None
    example = cls.of_values(values)
    _check_words(example, where)
    return example

  @classmethod
  def write_predictions(cls, examples: Sequence[Self], predictions: Any) -> str:
    """The text of a file of predictions, in the form of XTREME's submissions.

    Args:
      examples: N examples.
      predictions: N names of classes, one a line, unless the family says
        otherwise.

    Raises:
      CorpusError: the predictions do not fit the examples.
    """
    check_number(len(examples), len(predictions), 'predictions')
    return join_lines(predictions)

  @classmethod
  def read_predictions(cls, examples: Sequence[Self], text: str) -> Any:
    """The predictions in a file's text; the inverse of `write_predictions`."""
    del examples
    return text.removesuffix('\n').split('\n')


def class_of(kind: str) -> type[Example]:
  """The class of examples of a kind, such as 'tagging'.

  Raises:
    ConfigError: there is no such kind.
  """
  if kind not in _classes:
    raise errors.ConfigError(
      'There is no such kind of examples',
      got=kind,
      expected='one of ' + ', '.join(sorted(_classes)),
      fix='import the module that defines it',
    )
  return _classes[kind]


def example_classes() -> tuple[str, ...]:
  """The kinds of examples there are."""
  return tuple(_classes)


def check_number(expected: int, got: int, what: str) -> None:
  """Raises a CorpusError unless there are as many predictions as expected."""
  if expected != got:
    raise errors.CorpusError(
      'The predictions do not fit the test set',
      got=f'{got} {what}',
      expected=str(expected),
    )


def join_lines(items: Iterable[str]) -> str:
  """One item a line."""
  return ''.join(f'{item}\n' for item in items)


def _register(cls: type[Example]) -> None:
  """Makes a class known by its kind; the same class may be defined again."""
  registered = _classes.get(cls.KIND)
  if registered is not None and (
    registered.__module__,
    registered.__qualname__,
  ) != (cls.__module__, cls.__qualname__):
    raise errors.ConfigError(
      'Two classes of examples have the same kind',
      got=f'{cls.__module__}.{cls.__qualname__}',
      expected=f'another KIND than {cls.KIND!r} of '
      f'{registered.__module__}.{registered.__qualname__}',
    )
  _classes[cls.KIND] = cls


def _read(cls: type[Example], columns: Mapping[str, Any], where: str) -> dict:
  """The values of the columns that there are."""
  forms = cls.columns()
  optional = {f.name for f in example_features.with_role(cls, Role.OPTIONAL)}
  missing = set(forms) - set(columns) - optional
  if missing:
    raise errors.CorpusError(
      f'The examples of a {cls.KIND} task lack a feature',
      got=', '.join(sorted(columns)),
      expected=', '.join(sorted(missing)),
      where=where,
      fix='let a preprocessor of the task rename its features',
    )
  return {
    name: example_features.decode_feature(columns[name], form)
    for name, form in forms.items()
    if name in columns
  }


def _check_words(example: Example, where: str) -> None:
  """Raises a CorpusError if the labels of words are not as many as words."""
  sizes = {
    field.name: len(value)
    for field in example_features.with_role(type(example), Role.PER_WORD)
    if (value := getattr(example, field.name))
  }
  if len(set(sizes.values())) > 1:
    raise errors.CorpusError(
      'The words of an example and their labels differ in number',
      got=', '.join(f'{size} {name}' for name, size in sizes.items()),
      where=f'{where}, example {example.id}',
    )
