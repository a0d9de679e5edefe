"""Functions that read and check text, JSON and CSV files of examples."""

import csv
import json
import os
import pathlib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.storage import bucket_staging
from xlflax.utils import errors, json_errors, plurals

_LINE_ENDS = b'\r\n'
_SURROGATE = re.compile(r'\\u[dD][89a-fA-F]')
# A quoted field may contain a long text. The default limit of the library is
# 131,072 characters.
csv.field_size_limit(1 << 26)
# Key of additional fields and value of missing fields of a row.
_WRONG_FIELD = '\0'


class Reading(NamedTuple):
  """Examples read from a file, and the problems found in it.

  Attributes:
    examples: Examples in the order in which the file contains them.
    problems: One message with a location for each problem that affects only a
      single example and does not prevent the file from being read.
  """

  examples: list
  problems: tuple[str, ...] = ()


# Hint for messages about the options of one file, which may be a training, a
# development or a test file.
OPTION_MACROS = (
  'For `xlflax evaluate`, set OPTIONS. For `xlflax finetune`, OPTIONS applies '
  'to all files. If only some of the files need the option, set TRAIN_OPTIONS '
  'for training files or DEV_OPTIONS for development files, or pass '
  '--eval_gin="OPTIONS=…" for test files. For a suite, set the options of the '
  "files in the task's gin file."
)


def read_lines(path: str | os.PathLike) -> Iterator[tuple[int, str]]:
  """Yields the one-based number and the text of each line in a file.

  The text does not include the line ending. The file may be compressed (.gz or
  .zst).

  Raises:
    CorpusError: If the file does not exist or cannot be read, or if a line is
      not valid UTF-8.
  """
  path = require_file(path, expected='a text file')
  for number, line in corpus_lines.read_lines(path, strip=_LINE_ENDS):
    yield number, corpus_lines.decode_line(line, path, number)


def require_file(
  path: str | os.PathLike, *, expected: str = 'a file'
) -> pathlib.Path:
  """Returns a file's local path, or raises a CorpusError if it is not a file."""
  path = bucket_staging.stage_input(path)
  if path.is_dir():
    raise errors.CorpusError(
      'The path is a directory',
      got=str(path),
      expected=expected,
      fix='Pass the path of a file in the directory.',
    )
  if not path.is_file():
    has_wildcard = any(character in path.name for character in '*?[')
    raise errors.CorpusError(
      'The input file does not exist',
      got=str(path),
      fix='Wildcards in file names are not expanded. Pass the paths of the '
      "files as a tuple, such as {'en': ('a.tsv', 'b.tsv')}."
      if has_wildcard
      else None,
    )
  return path


def read_json(path: str | os.PathLike) -> Any:
  """Returns the decoded value of a JSON file.

  Raises:
    CorpusError: If the file does not exist or is not valid JSON. The error
      contains the file and the line.
  """
  text = '\n'.join(line for _, line in read_lines(path))
  try:
    value = json.loads(text)
  except (ValueError, RecursionError) as error:
    number = error.lineno if isinstance(error, json.JSONDecodeError) else 1
    if json_errors.is_truncated(error):
      raise malformed_line_error(
        'The JSON file is incomplete and was probably truncated',
        path,
        number,
        fix='Write or download the file again.',
      ) from error
    raise malformed_line_error(
      f'The JSON file cannot be parsed ({json_errors.describe_error(error)})',
      path,
      number,
    ) from error
  check_encodable(text, value, path)
  return value


def check_encodable(
  text: str, value: Any, path: str | os.PathLike, number: int | None = None
) -> None:
  """Raises a CorpusError if JSON strings cannot be encoded in UTF-8.

  Args:
    text: JSON text.
    value: Value decoded from the text.
    path: Path of the file.
    number: Line number for the error message. If None, the line is determined
      by searching `text`.
  """
  if not _SURROGATE.search(text):
    return
  try:
    json.dumps(value, ensure_ascii=False).encode('utf-8')
  except UnicodeEncodeError as error:
    surrogate = error.object[error.start]
    escape = f'\\u{ord(surrogate):04x}'
    if number is None:
      number = text[: text.lower().find(escape)].count('\n') + 1
    raise malformed_line_error(
      'JSON strings must not contain unpaired surrogates',
      path,
      number,
      got=escape,
    ) from error


def read_json_lines(path: str | os.PathLike) -> Iterator[tuple[int, dict]]:
  """Yields the one-based line number and the object of each JSON line.

  Raises:
    CorpusError: If the file does not exist, or if a line is not a JSON object.
      The error contains the file and the line.
  """
  for number, line in read_lines(path):
    if line.strip():
      try:
        value = json.loads(line)
      except (ValueError, RecursionError) as error:
        if json_errors.is_truncated(error):
          raise malformed_line_error(
            'The line is not a complete JSON object, so it was probably '
            'truncated',
            path,
            number,
            got=shorten_quoted(line),
          ) from error
        raise malformed_line_error(
          f'The line is not valid JSON ({json_errors.describe_error(error)})',
          path,
          number,
          got=shorten_quoted(line),
        ) from error
      if not isinstance(value, dict):
        raise malformed_line_error(
          'Each line must be a JSON object',
          path,
          number,
          got=shorten_quoted(line),
        )
      check_encodable(line, value, path, number)
      yield number, value


def read_csv(
  path: str | os.PathLike, delimiter: str = '\t', *, quoted: bool = True
) -> Iterator[tuple[int, dict[str, str]]]:
  """Yields (line number, fields) for each row of a table with a header.

  The line number is the number of the row's last line. The fields are a dict by
  column name.

  Args:
    path: Path of a table with a header.
    delimiter: Character that separates the fields.
    quoted: Whether to interpret quotation marks. Quoted fields may contain line
      breaks, as in files written by pandas.

  Raises:
    CorpusError: If the file does not exist, if a row and the header have
      different numbers of fields, or if a quotation mark is not closed. The
      error contains the file and the line.
  """
  lines = (f'{line}\n' for _, line in read_lines(path))
  rows = csv.DictReader(
    lines,
    delimiter=delimiter,
    restkey=_WRONG_FIELD,
    restval=_WRONG_FIELD,
    quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
    strict=True,
  )
  try:
    names = rows.fieldnames or ()
    if len(set(names)) < len(names):
      raise csv.Error('The header contains duplicate column names.')
    for row in rows:
      if _WRONG_FIELD in row or _WRONG_FIELD in row.values():
        raise csv.Error(
          'The number of fields differs from the number of columns in the '
          'header.'
        )
      yield rows.line_num, row
  except csv.Error as error:
    raise malformed_line_error(
      f'The table cannot be parsed: {error}', path, rows.line_num
    ) from error


def malformed_line_error(
  what: str,
  path: str | os.PathLike,
  number: int | str,
  *,
  got: Any = None,
  fix: str | None = None,
) -> errors.CorpusError:
  """Creates the error for a line or file that violates the file format.

  Args:
    what: Sentence that describes the violated requirement.
    path: Path of the file.
    number: Line number, or a string that describes the location in the file.
    got: Value that violates the format, or None.
    fix: Hint that tells the user how to solve the problem.
  """
  location = f'{os.fspath(path)}:{number}'
  return errors.CorpusError(what, got=got, where=location, fix=fix)


def format_column_count(fields: Sequence[str]) -> str:
  """Returns a line's number of columns as text, such as '1 column'."""
  return plurals.format_count(len(fields), 'column')


def check_not_json(line: str, path: str | os.PathLike, number: int) -> None:
  """Raises a CorpusError if a line should contain a tagged word but is JSON.

  Args:
    line: Line of the file in which a tagged word is expected.
    path: Path of the file.
    number: Line number.
  """
  if not line.lstrip().startswith('{'):
    return
  try:
    value = json.loads(line)
  except (ValueError, RecursionError):
    return
  if isinstance(value, dict):
    raise malformed_line_error(
      'Tagged sentences cannot be read from JSON. The file must have one word '
      'per line with its tag, and an empty line between sentences',
      path,
      number,
      got=shorten_quoted(line),
      fix='Convert the file to columns, for example to word, tab and tag, and '
      "set FORMAT to 'conll'.",
    )


def suggest_json_format(line: str) -> str | None:
  """Returns a hint if a line of a TSV file seems to be JSON, otherwise None.

  Args:
    line: Line without tabs.
  """
  line = line.strip()
  is_object = line.startswith('{') and line.endswith('}')
  if is_object and '"paragraphs"' not in line:
    return (
      'The line seems to be a JSON object. Set the format, as in '
      '--gin.FORMAT="\'jsonl\'".'
    )
  if is_object or line in ('{', '[') or line.startswith(('{"', '[{')):
    return (
      'The file seems to be a JSON document. If it contains questions in the '
      'SQuAD format, use finetune/question_answering.gin, or '
      'evaluate/question_answering.gin for evaluation. Otherwise, convert the '
      'file to one JSON object per line, and set the format, as in '
      '--gin.FORMAT="\'jsonl\'".'
    )
  return None


def check_no_header(
  fields: Sequence[str], names: Collection[str], path: str | os.PathLike
) -> None:
  """Raises a CorpusError if all fields of the first line are column names.

  Args:
    fields: Fields of the first line. The format of the file has no header.
    names: Names of columns, in lower case.
    path: Path of the file, for error messages.
  """
  if all(field.strip().lower() in names for field in fields):
    raise errors.CorpusError(
      'The first line of the file must contain data, but it seems to contain '
      'column names',
      got=shorten_quoted(' | '.join(fields)),
      where=errors.line_location(path, 1),
      fix='Delete the line.',
    )


def check_any(examples: Iterable, path, language: str | None = None) -> None:
  """Raises a CorpusError if a file contains no examples.

  Args:
    examples: Examples from the file.
    path: Path of the file, for error messages.
    language: Language code of the examples, if the file may contain examples in
      several languages.
  """
  if examples:
    return
  if language is None:
    raise errors.CorpusError(
      'The file contains no labeled examples',
      where=str(path),
      fix='Add examples to the file, or remove it from the source.',
    )
  raise errors.CorpusError(
    'The file contains no labeled examples in this language',
    got=language,
    where=str(path),
    fix='Add examples in the language to the file, or remove the language from '
    'the source.',
  )


def shorten_quoted(text: str, limit: int = 60) -> str:
  """Returns a text in quotation marks, truncated after `limit` characters."""
  return repr(text if len(text) <= limit else text[:limit] + '…')
