"""Classes of texts and of pairs of texts, from TSV and JSON lines."""

import csv
import dataclasses
import enum
import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.readers import column_validation, file_reading
from xlflax.utils import errors, validation

TSV_COLUMNS: Mapping[str, int] = {'text': 0, 'paired_text': 1, 'label': 2}
JSON_COLUMNS: Mapping[str, str] = {
  'text': 'sentence1',
  'paired_text': 'sentence2',
  'label': 'gold_label',
}
# Names of the column of classes in public files.
_LABEL_COLUMNS = frozenset(
  (
    'category',
    'class',
    'gold_label',
    'intent',
    'label',
    'labels',
    'rating',
    'score',
    'sentiment',
    'stars',
    'target',
    'topic',
  )
)
_COLUMN_NAME = re.compile(r'[A-Za-z]\w*([ -]\w+)?')
_FIELDS = ('id', 'language', 'text', 'paired_text', 'label')
# XNLI's machine-translated training files name one class otherwise than its
# development and test files; XLM's get-data-xnli.sh renames it, too.
_RENAMED = {'contradictory': 'contradiction'}
Column = int | str | Sequence[int | str]
Columns = Mapping[str, Column]
Labels = Mapping[str, str | None]


class Header(enum.Enum):
  """Whether the first line of a TSV file names its columns."""

  NONE = 'none'
  FIRST_LINE = 'first_line'


class Quoting(enum.Enum):
  """What a quotation mark means at the start of a field.

  NONE: itself, as in most files of this field. CSV: fields may be quoted, and
  quotation marks in them doubled, as Python's csv module writes them (the
  files that XTREME's script leaves).
  """

  NONE = 'none'
  CSV = 'csv'


@file_formats.register_reader('tsv', example=labeled_examples.ClassifiedText)
def read_tsv(
  path: str | os.PathLike,
  language: str,
  *,
  columns: Columns = TSV_COLUMNS,
  labels: Labels | None = None,
  header: Header | str = Header.NONE,
  quoting: Quoting | str = Quoting.NONE,
  paired_language: str | None = None,
) -> file_reading.Reading:
  """Reads one example a line, in columns separated by tabs.

  Before: `It rains.<TAB>It is wet.<TAB>1` with labels {'1': 'entailment'};
  after: `ClassifiedText(id='0', language='en', text='It rains.',
  paired_text='It is wet.', label='entailment')`.

  A file that lacks just the last column, which is the label's, or whose
  labels are empty, is blind: its labels are None.

  Args:
    path: of the file.
    language: code of the texts.
    columns: where `text`, `paired_text`, `label`, `id` and `language` are: a
      number from 0, a name (of the header), or several, which are joined by a
      space. All but `text` may be left out. Lines of a language that is not
      `language` are passed over.
    labels: name of the class for what the file has; None for one whose lines
      are to be left out. Without it, the file's are the names, except that
      `contradictory` (XNLI-MT) is read as `contradiction`.
    header: whether the first line names the columns; it does if `columns`
      has names.
    quoting: see `Quoting`.
    paired_language: code of the second texts, where it is another.

  Raises:
    ConfigError: unknown fields in `columns`.
    CorpusError: file:line of a wrong number of columns, empty text, a label
      that `labels` lacks; an empty file; a column that the header lacks;
      labels that look like texts, where `labels` does not name the classes.
  """
  reading, seen_columns = read_columns(
    path,
    language,
    columns=columns,
    labels=labels,
    header=header,
    quoting=quoting,
    paired_language=paired_language,
  )
  if labels is None:
    column_validation.check_classes(
      reading.examples, seen_columns, columns, path
    )
  return reading


def read_columns(
  path: str | os.PathLike,
  language: str,
  *,
  columns: Columns,
  labels: Labels | None,
  header: Header | str,
  quoting: Quoting | str,
  paired_language: str | None,
) -> tuple[file_reading.Reading, column_validation.Columns]:
  """As `read_tsv`, whatever the labels look like; and all columns."""
  _check_columns(columns)
  header = validation.validate(header, Header, name='header')
  quoting = validation.validate(quoting, Quoting, name='quoting')
  rows = _tsv_rows(path, quoting)
  names: list[str] = []
  if header is Header.FIRST_LINE or any(
    isinstance(c, str) for c in _flat(columns)
  ):
    names = next(rows, (0, []))[1]
  seen_columns = column_validation.Columns(names)

  def getters():
    for number, fields in _same_width(rows, names, path, columns):
      if number == 1 and not names:
        _check_no_header(fields, columns, path)
      seen_columns.add(enumerate(fields))
      yield number, functools.partial(_field, fields, names, path, number)

  reader = _Reader(path, language, columns, labels, paired_language)
  return _reading(reader, getters()), seen_columns


@file_formats.register_reader('jsonl', example=labeled_examples.ClassifiedText)
def read_jsonl(
  path: str | os.PathLike,
  language: str,
  *,
  columns: Columns = JSON_COLUMNS,
  labels: Labels | None = None,
  paired_language: str | None = None,
) -> file_reading.Reading:
  """Reads one JSON object a line; arguments and errors as of `read_tsv`.

  `columns` are the objects' keys. An object without the label's key, or with
  null there, has no label; numbers are labels as they are written.
  """
  _check_columns(columns)
  seen_columns = column_validation.Columns()

  def getters():
    for number, value in file_reading.read_json_lines(path):
      seen_columns.add(value.items())
      yield number, functools.partial(_value, value, columns, path, number)

  reader = _Reader(path, language, columns, labels, paired_language)
  reading = _reading(reader, getters())
  if labels is None:
    column_validation.check_classes(
      reading.examples, seen_columns, columns, path
    )
  return reading


@dataclasses.dataclass(frozen=True)
class _Reader:
  path: str | os.PathLike
  language: str
  columns: Columns
  labels: Labels | None
  paired_language: str | None


def _reading(reader: _Reader, rows) -> file_reading.Reading:
  """Examples of (line number, function of a column) pairs."""
  examples: list[labeled_examples.ClassifiedText] = []
  for number, get in rows:
    values: dict[str, Any] = {
      field: _joined(column, get) for field, column in reader.columns.items()
    }
    if values.pop('language', reader.language) != reader.language:
      continue
    for field in ('text', 'paired_text'):
      if field in values and not values[field]:
        raise file_reading.malformed_line_error(
          'line of labelled text',
          reader.path,
          number,
          f'an empty {field}',
          expected='text',
        )
    label = _label(values.pop('label', None), reader, number)
    if label is _LEFT_OUT:
      continue
    values.setdefault('id', str(len(examples)))
    examples.append(
      labeled_examples.ClassifiedText(
        language=reader.language,
        label=label,
        paired_language=reader.paired_language,
        **values,
      )
    )
  file_reading.check_any(examples, reader.path)
  sides = [
    [example.text for example in examples],
    [example.paired_text or '' for example in examples],
  ]
  languages = reader.language, reader.paired_language
  column_validation.check_languages(languages, sides, reader.path)
  return file_reading.Reading(examples)


_LEFT_OUT = object()


def _label(found: str | None, reader: _Reader, number: int):
  if not found:
    return None
  if reader.labels is None:
    return _RENAMED.get(found, found)
  if found not in reader.labels:
    raise errors.CorpusError(
      'A file has a label that is not among those told',
      got=repr(found),
      expected='one of ' + ', '.join(map(repr, reader.labels)),
      where=f'{reader.path}:{number}',
    )
  named = reader.labels[found]
  return _LEFT_OUT if named is None else named


def _joined(column: Column, get) -> str | None:
  if isinstance(column, int | str):
    return get(column)
  parts = [get(part) for part in column]
  return ' '.join(part for part in parts if part)


def _tsv_rows(path, quoting: Quoting) -> Iterator[tuple[int, list[str]]]:
  for number, line in file_reading.read_lines(path):
    if not line.strip():
      continue
    if quoting is Quoting.NONE:
      fields = line.split('\t')
    else:
      try:
        (fields,) = csv.reader([line], delimiter='\t', strict=True)
      except csv.Error as error:
        raise file_reading.malformed_line_error(
          'line of quoted fields',
          path,
          number,
          f'{error}',
          expected='fields in quotation marks, those inside doubled',
          fix="read the file with quoting='none'",
        ) from error
    yield number, [field.strip() for field in fields]


def _same_width(rows, names, path, columns) -> Iterator:
  """Checks that lines have as many columns as the first, and enough."""
  width = len(names)
  numbers = [c for c in _flat(columns) if isinstance(c, int)]
  needed = 1 + max(numbers, default=-1)
  label = columns.get('label')
  if label == needed - 1 and numbers.count(label) == 1:
    needed -= 1  # It may lack in a blind file.
  for number, fields in rows:
    width = width or len(fields)
    if len(fields) != width or width < needed:
      raise file_reading.malformed_line_error(
        'line of labelled text',
        path,
        number,
        f'{len(fields)} columns: {file_reading.shorten_quoted(" | ".join(fields))}',
        expected=f'at least {needed} columns'
        if width < needed
        else f'{width} columns, as in the first line',
      )
    yield number, fields


def _field(fields, names, path, number, column: int | str) -> str | None:
  if isinstance(column, int):
    return fields[column] if column < len(fields) else None
  if column not in names:
    raise errors.CorpusError(
      'A file lacks a column',
      got=', '.join(names),
      expected=column,
      where=f'{path}:1',
    )
  return fields[names.index(column)]


def _value(
  value: dict, columns: Columns, path, number: int, key: str
) -> str | None:
  if key not in value and key != columns.get('label'):
    raise file_reading.malformed_line_error(
      'line of JSON',
      path,
      number,
      'the keys ' + ', '.join(value),
      expected=f'a key {key}',
    )
  field = value.get(key)
  return None if field is None else str(field).strip()


def _check_no_header(fields: list[str], columns: Columns, path) -> None:
  """Raises a CorpusError if the first line names the columns."""
  label = columns.get('label')
  if not isinstance(label, int) or not -len(fields) <= label < len(fields):
    return
  are_names = all(_COLUMN_NAME.fullmatch(field.strip()) for field in fields)
  if are_names and fields[label].strip().lower() in _LABEL_COLUMNS:
    raise errors.CorpusError(
      'The first line of a TSV file names its columns',
      got=file_reading.shorten_quoted(' | '.join(fields)),
      expected='an example',
      where=f'{path}:1',
      fix="set the option header='first_line', or delete the line",
    )


def _check_columns(columns: Columns) -> None:
  if 'text' not in columns or set(columns) - set(_FIELDS):
    raise errors.ConfigError(
      'The columns of a file of classes have wrong names',
      got=', '.join(columns),
      expected='text, and any of paired_text, label, id, language',
    )


def _flat(columns: Columns) -> list[int | str]:
  return [
    part
    for column in columns.values()
    for part in ([column] if isinstance(column, int | str) else column)
  ]
