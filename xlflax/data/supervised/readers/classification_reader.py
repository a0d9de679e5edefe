"""Readers for texts and text pairs with class labels, in TSV and JSON lines."""

import csv
import dataclasses
import enum
import functools
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.readers import column_validation, file_reading
from xlflax.utils import errors, logs, validation

TSV_COLUMNS: Mapping[str, int] = {'text': 0, 'paired_text': 1, 'label': 2}
JSON_COLUMNS: Mapping[str, str] = {
  'text': 'sentence1',
  'paired_text': 'sentence2',
  'label': 'gold_label',
}
# Names of the label column in public files.
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
_QUOTED_FIELD = re.compile(r'"(?:[^"]|"")*"')
_COLUMN_NAME = re.compile(r'[A-Za-z]\w*([ -]\w+)?')
_FIELDS = ('id', 'language', 'text', 'paired_text', 'label')
# One class has another name in XNLI's machine-translated training files than in
# its development and test files. XLM's get-data-xnli.sh renames it, too.
_RENAMED_LABELS = {'contradictory': 'contradiction'}
Column = int | str | Sequence[int | str]
Columns = Mapping[str, Column]
Labels = Mapping[str, str | None]


class Quoting(enum.Enum):
  """Interpretation of quotation marks in a TSV file's fields.

  NONE: Quotation marks are ordinary characters, as in most public data sets.
  CSV: Fields may be enclosed in quotation marks, and quotation marks within
  them are doubled, as in files written by Python's csv module or by XTREME's
  script.
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
  has_header: bool = False,
  quoting: Quoting | str = Quoting.NONE,
  paired_language: str | None = None,
) -> file_reading.Reading:
  """Reads one example per line from tab-separated columns.

  For example, `It rains.<TAB>It is wet.<TAB>1` with the labels {'1':
  'entailment'} gives `ClassifiedText(id='0', language='en', text='It rains.',
  paired_text='It is wet.', label='entailment')`.

  A file is a blind test set if all its labels are empty, or if the label column
  would be the last column but does not exist. The labels of its examples are
  None.

  Args:
    path: Path of the file.
    language: Language code of the texts.
    columns: Mapping from example fields (`text`, `paired_text`, `label`, `id`
      and `language`) to columns of the file. A column is a zero-based index, a
      name in the header, or a sequence of columns whose values are joined by
      spaces. Only `text` is required. Lines in a language other than `language`
      are skipped.
    labels: Mapping from labels in the file to class names. Lines with a label
      that is mapped to None are skipped. If there is no mapping, the labels in
      the file are the class names, except that `contradictory` (XNLI-MT) is
      read as `contradiction`.
    has_header: Whether the first line contains the column names. If `columns`
      contains names, the first line is always read as a header.
    quoting: Interpretation of quotation marks in the file.
    paired_language: Language code of each pair's second text. If None,
      `language` is used.

  Raises:
    ConfigError: If `columns` contains unknown fields.
    CorpusError: If a line has a wrong number of columns, an empty text or a
      label that is not in `labels` (the error contains the file and the line);
      if the file is empty; if the header lacks a column or seems to be an
      example; or if the labels look
      like texts and `labels` is not given.
  """
  reading, file_columns = read_columns(
    path,
    language,
    columns=columns,
    labels=labels,
    has_header=has_header,
    quoting=quoting,
    paired_language=paired_language,
  )
  column_validation.check_unused_texts(file_columns, columns, path)
  if labels is None:
    column_validation.check_classes(
      reading.examples, file_columns, columns, path
    )
  return reading


def read_columns(
  path: str | os.PathLike,
  language: str,
  *,
  columns: Columns,
  labels: Labels | None,
  has_header: bool,
  quoting: Quoting | str,
  paired_language: str | None,
  check_label: Callable[[str, str | os.PathLike, int], None] | None = None,
) -> tuple[file_reading.Reading, column_validation.Columns]:
  """Reads examples like `read_tsv`, but without checking the columns' content.

  The other arguments are those of `read_tsv`.

  Args:
    check_label: Function that raises an error if a class name is invalid. Its
      arguments are the class name, the path of the file and the line number. If
      None, all class names are valid.

  Returns:
    The examples, and the values of all columns.
  """
  _check_columns(columns)
  has_header = validation.validate(has_header, bool, name='has_header')
  quoting = validation.validate(quoting, Quoting, name='quoting')
  rows = _read_tsv_rows(path, quoting)
  names: list[str] = []
  if has_header or any(isinstance(column, str) for column in _flatten(columns)):
    names = next(rows, (0, []))[1]
  file_columns = column_validation.Columns(names)

  quoted_lines: list[int] = []

  def line_getters():
    for number, fields in _check_widths(rows, names, path, columns):
      if number == 1 and not names:
        _check_no_header(fields, columns, path)
      if quoting is Quoting.NONE and any(map(_is_quoted, fields)):
        quoted_lines.append(number)
      _check_header(names, fields, columns, path)
      file_columns.add(enumerate(fields))
      yield number, functools.partial(_get_field, fields, names, path, number)

  options = _ReaderOptions(
    path, language, columns, labels, paired_language, check_label
  )
  reading = _read_examples(options, line_getters())
  if quoted_lines:
    logging.warning(
      '%s: %d lines of the file contain a text in quotation marks with doubled '
      'quotation marks inside, as written by CSV tools. They are read as part '
      "of the text. If the fields are quoted, add 'quoting': 'csv' to the "
      'options of this file, and keep its other options. %s',
      errors.line_location(path, quoted_lines[0]),
      len(quoted_lines),
      file_reading.OPTION_MACROS,
      extra=logs.ONCE,
    )
  return reading, file_columns


@file_formats.register_reader('jsonl', example=labeled_examples.ClassifiedText)
def read_jsonl(
  path: str | os.PathLike,
  language: str,
  *,
  columns: Columns = JSON_COLUMNS,
  labels: Labels | None = None,
  paired_language: str | None = None,
) -> file_reading.Reading:
  """Reads one example per line from JSON objects.

  The arguments and errors are those of `read_tsv`, and `columns` contains keys
  of the JSON objects. An object has no label if it lacks the label key or if
  the key's value is null. Numbers are converted to text.
  """
  _check_columns(columns)
  file_columns = column_validation.Columns()

  def line_getters():
    for number, value in file_reading.read_json_lines(path):
      file_columns.add(value.items())
      yield number, functools.partial(_get_value, value, columns, path, number)

  options = _ReaderOptions(path, language, columns, labels, paired_language)
  reading = _read_examples(options, line_getters())
  column_validation.check_unused_texts(file_columns, columns, path)
  if labels is None:
    column_validation.check_classes(
      reading.examples, file_columns, columns, path
    )
  return reading


@dataclasses.dataclass(frozen=True)
class _ReaderOptions:
  """Options of a reader; see `read_tsv`."""

  path: str | os.PathLike
  language: str
  columns: Columns
  labels: Labels | None
  paired_language: str | None
  check_label: Callable[[str, str | os.PathLike, int], None] | None = None


def _read_examples(options: _ReaderOptions, lines) -> file_reading.Reading:
  """Creates examples from the lines of a file.

  Args:
    options: Options passed to the reader.
    lines: Pairs of a line number and a function. The function maps a column to
      its value in the line.
  """
  examples: list[labeled_examples.ClassifiedText] = []
  for number, get_column in lines:
    values: dict[str, Any] = {
      field: _join_columns(column, get_column)
      for field, column in options.columns.items()
    }
    if values.pop('language', options.language) != options.language:
      continue
    for field in ('text', 'paired_text'):
      if field in values and not values[field]:
        raise file_reading.malformed_line_error(
          f'The field {field!r} must not be empty', options.path, number
        )
    label = _map_label(values.pop('label', None), options, number)
    if label is _SKIPPED:
      continue
    if label is not None and options.check_label is not None:
      options.check_label(label, options.path, number)
    values.setdefault('id', str(len(examples)))
    examples.append(
      labeled_examples.ClassifiedText(
        language=options.language,
        label=label,
        paired_language=options.paired_language,
        **values,
      )
    )
  file_reading.check_any(
    examples,
    options.path,
    options.language if 'language' in options.columns else None,
  )
  texts = [
    [example.text for example in examples],
    [example.paired_text or '' for example in examples],
  ]
  languages = options.language, options.paired_language
  column_validation.check_languages(languages, texts, options.path)
  column_validation.check_text(options.language, texts[0], options.path)
  return file_reading.Reading(examples)


_SKIPPED = object()


def _map_label(label: str | None, options: _ReaderOptions, number: int):
  """Returns a label's class name, None for an empty label, or `_SKIPPED`."""
  if not label:
    return None
  if options.labels is None:
    return _RENAMED_LABELS.get(label, label)
  if label not in options.labels:
    raise errors.CorpusError(
      'The label must be a key of the option `labels`',
      got=repr(label),
      expected='one of ' + ', '.join(map(repr, options.labels)),
      where=errors.line_location(options.path, number),
    )
  class_name = options.labels[label]
  return _SKIPPED if class_name is None else class_name


def _join_columns(column: Column, get_column) -> str | None:
  """Returns the value of a column, or the joined values of several."""
  if isinstance(column, int | str):
    return get_column(column)
  values = [get_column(name) for name in column]
  return ' '.join(value for value in values if value)


def _read_tsv_rows(path, quoting: Quoting) -> Iterator[tuple[int, list[str]]]:
  """Yields the line number and the fields of each line that is not empty."""
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
          f'The quoted line cannot be parsed ({error}). Fields must be '
          'enclosed in quotation marks, and quotation marks within a field '
          'must be doubled',
          path,
          number,
          fix="Set quoting='none' if quotation marks are ordinary characters.",
        ) from error
    yield number, [field.strip() for field in fields]


def _is_quoted(field: str) -> bool:
  """Returns whether a field seems to be quoted as in CSV.

  It is enclosed in quotation marks, and those within it are doubled.
  """
  return '""' in field[1:-1] and _QUOTED_FIELD.fullmatch(field) is not None


def _check_widths(rows, names, path, columns) -> Iterator:
  """Yields the rows and checks that they have the same number of columns."""
  width = len(names)
  indices = [column for column in _flatten(columns) if isinstance(column, int)]
  min_width = 1 + max(indices, default=-1)
  label = columns.get('label')
  if label == min_width - 1 and indices.count(label) == 1:
    min_width -= 1  # A blind file may lack the label column.
  for number, fields in rows:
    width = width or len(fields)
    if len(fields) != width or width < min_width:
      shown_fields = file_reading.shorten_quoted(' | '.join(fields))
      raise file_reading.malformed_line_error(
        f'The line must have at least {min_width} columns, but it has '
        + file_reading.format_column_count(fields)
        if width < min_width
        else f'The line must have {width} columns, as in the first line, but '
        f'it has {file_reading.format_column_count(fields)}',
        path,
        number,
        got=shown_fields,
        fix=_suggest_separator(fields, path) if width < min_width else None,
      )
    yield number, fields


def _suggest_separator(fields: Sequence[str], path) -> str:
  """Returns a hint for a line that has too few tab-separated columns."""
  line = fields[0] if len(fields) == 1 else ''
  if json_hint := file_reading.suggest_json_format(line):
    return json_hint
  name = os.fspath(path).lower().removesuffix('.gz').removesuffix('.zst')
  is_csv_line = line.startswith('"') and '","' in line
  if is_csv_line or (len(fields) == 1 and name.endswith('.csv')):
    return (
      'Columns must be separated by tabs. Convert the CSV file to a TSV file. '
      'If fields of the TSV file are enclosed in quotation marks, add '
      "'quoting': 'csv' to the options of this file. "
      f'{file_reading.OPTION_MACROS}'
    )
  if line:
    return (
      'Columns must be separated by tabs, but the line contains no tab. '
      'Separate the columns, such as the text and the label, by tabs.'
    )
  return (
    'Columns must be separated by tabs, and the option `columns` must contain '
    'the columns of the file, counted from 0. For example, add '
    "'columns': {'text': 0, 'label': 1} to the options of this file. "
    f'{file_reading.OPTION_MACROS}'
  )


def _get_field(fields, names, path, number, column: int | str) -> str | None:
  """Returns a field of a TSV line, or None if the line has too few fields."""
  if isinstance(column, int):
    return fields[column] if column < len(fields) else None
  if column not in names:
    raise errors.CorpusError(
      f'The option `columns` requires the column {column!r}, which does not '
      'exist in the header of the file',
      got=', '.join(names),
      where=errors.line_location(path, 1),
    )
  return fields[names.index(column)]


def _get_value(
  value: dict, columns: Columns, path, number: int, key: str
) -> str | None:
  """Returns the value of a JSON key as text, or None if there is no value."""
  if key not in value and key != columns.get('label'):
    raise file_reading.malformed_line_error(
      f'The JSON object must have the key {key!r}',
      path,
      number,
      got=', '.join(value),
    )
  field = value.get(key)
  if isinstance(field, dict | list):
    raise file_reading.malformed_line_error(
      f'The value of the key {key!r} must be text or a number',
      path,
      number,
      got=repr(field)[:60],
    )
  return None if field is None else str(field).strip()


def _check_no_header(fields: list[str], columns: Columns, path) -> None:
  """Raises a CorpusError if the first line contains column names."""
  label = columns.get('label')
  if not isinstance(label, int) or not -len(fields) <= label < len(fields):
    return
  are_names = all(_COLUMN_NAME.fullmatch(field.strip()) for field in fields)
  if are_names and fields[label].strip().lower() in _LABEL_COLUMNS:
    raise errors.CorpusError(
      'The first line of the file must be an example, but it seems to contain '
      'column names',
      got=file_reading.shorten_quoted(' | '.join(fields)),
      where=errors.line_location(path, 1),
      fix="Add 'has_header': True to the options of this file, such as "
      '--gin.OPTIONS="{\'has_header\': True}" if it has no other options, or '
      f'delete the line. {file_reading.OPTION_MACROS}',
    )


def _check_header(
  names: Sequence[str], fields: Sequence[str], columns: Columns, path
) -> None:
  """Raises a CorpusError if the header has the label of an example.

  Args:
    names: Fields of the header. Empty if the file has no header.
    fields: Fields of the line that is compared with the header.
    columns: Mapping from example fields to columns of the file.
    path: Path of the file.
  """
  label = columns.get('label')
  if not isinstance(label, int) or not -len(names) <= label < len(names):
    return
  is_numbered = all(name.isdecimal() for name in names)
  if names[label] == fields[label] != '' and not is_numbered:
    raise errors.CorpusError(
      'According to the option has_header=True, the first line must contain '
      'column names, but it seems to be an example, because another line has '
      f'the same label {names[label]!r}',
      got=file_reading.shorten_quoted(' | '.join(names)),
      where=errors.line_location(path, 1),
      fix='Remove the option has_header=True for this file. '
      f'{file_reading.OPTION_MACROS}',
    )


def _check_columns(columns: Columns) -> None:
  """Raises a ConfigError for a missing or unknown field."""
  if 'text' not in columns or set(columns) - set(_FIELDS):
    raise errors.ConfigError(
      'The option `columns` must have the key `text`. It can also have the '
      'keys `paired_text`, `label`, `id` and `language`',
      got=', '.join(columns),
    )


def _flatten(columns: Columns) -> list[int | str]:
  """Returns a flat list of all columns, including columns to be joined."""
  flat: list[int | str] = []
  for column in columns.values():
    if isinstance(column, int | str):
      flat.append(column)
    else:
      flat.extend(column)
  return flat
