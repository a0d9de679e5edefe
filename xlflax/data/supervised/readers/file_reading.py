"""What all readers share: lines, errors that say where, what was read."""

import csv
import json
import os
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.storage import bucket_staging
from xlflax.utils import errors

_ENDS = b'\r\n'
_SURROGATE = re.compile(r'\\u[dD][89a-fA-F]')
# A quoted field may hold a long text; the limit of the library is 131,072.
csv.field_size_limit(1 << 26)
_ODD = '\0'  # what a row has too many or too few


class Reading(NamedTuple):
  """What a file holds.

  Attributes:
    examples: in the file's order.
    problems: one sentence for each thing that is wrong with a single example
      and was worked round, with its place.
  """

  examples: list
  problems: tuple[str, ...] = ()


def read_lines(path: str | os.PathLike) -> Iterator[tuple[int, str]]:
  """Yields (number from 1, text without its line end) of a file's lines.

  Files may end in .gz or .zst.

  Raises:
    CorpusError: the file does not exist or cannot be read; on the line that is
      not UTF-8.
  """
  path = require_file(path)
  for number, line in corpus_lines.read_lines(path, strip=_ENDS):
    yield number, corpus_lines.decode_line(line, path, number)


def require_file(path: str | os.PathLike) -> pathlib.Path:
  """The path; a CorpusError if there is no such file."""
  path = bucket_staging.stage_input(path)
  if not path.is_file():
    raise errors.CorpusError(
      'A file of labelled examples does not exist', got=str(path)
    )
  return path


def read_json(path: str | os.PathLike) -> Any:
  """The value of a JSON file.

  Raises:
    CorpusError: no such file, or it is not JSON (file:line).
  """
  text = '\n'.join(line for _, line in read_lines(path))
  try:
    value = json.loads(text)
  except json.JSONDecodeError as error:
    raise malformed_line_error(
      'JSON file', path, error.lineno, error.msg
    ) from error
  except (ValueError, RecursionError) as error:  # digits, brackets
    raise malformed_line_error(
      'JSON file', path, 1, str(error)[:200]
    ) from error
  check_encodable(text, value, path)
  return value


def check_encodable(
  text: str, value: Any, path: str | os.PathLike, number: int | None = None
) -> None:
  """Raises a CorpusError for JSON whose strings have no UTF-8 form.

  Args:
    text: The JSON text.
    value: The value that it was decoded to.
    path: The file.
    number: The line, or None to find it in `text`.
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
      'JSON string',
      path,
      number,
      escape,
      expected='text; half of a surrogate pair is not a character',
    ) from error


def read_json_lines(path: str | os.PathLike) -> Iterator[tuple[int, dict]]:
  """Yields (number from 1, object) of a file of JSON lines.

  Raises:
    CorpusError: no such file; file:line of what is no JSON object.
  """
  kind = 'line of JSON'
  for number, line in read_lines(path):
    if line.strip():
      try:
        value = json.loads(line)
      except (ValueError, RecursionError) as error:
        reason = getattr(error, 'msg', str(error))[:200]
        raise malformed_line_error(kind, path, number, reason) from error
      if not isinstance(value, dict):
        raise malformed_line_error(
          kind, path, number, shorten_quoted(line), expected='an object'
        )
      check_encodable(line, value, path, number)
      yield number, value


def read_csv(
  path: str | os.PathLike, delimiter: str = '\t', *, quoted: bool = True
) -> Iterator[tuple[int, dict[str, str]]]:
  """Yields (number of its last line, column -> field) of a file with a header.

  Fields may be `quoted`, and then hold line ends, as pandas writes them.

  Raises:
    CorpusError: no such file; file:line of a row with another number of
      fields than the header, or of an open quotation mark.
  """
  lines = (f'{line}\n' for _, line in read_lines(path))
  rows = csv.DictReader(
    lines,
    delimiter=delimiter,
    restkey=_ODD,
    restval=_ODD,
    quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
  )
  try:
    for row in rows:
      if _ODD in row or _ODD in row.values():
        raise csv.Error('not as many fields as in the header')
      yield rows.line_num, row
  except csv.Error as error:
    raise malformed_line_error(
      'table', path, rows.line_num, str(error)
    ) from error


def malformed_line_error(
  kind: str,
  path: str | os.PathLike,
  number: int | str,
  reason: str,
  *,
  expected: str | None = None,
  fix: str | None = None,
) -> errors.CorpusError:
  """The error for a line that breaks its format."""
  return errors.CorpusError(
    f'Malformed {kind}',
    got=reason,
    expected=expected,
    where=f'{path}:{number}',
    fix=fix,
  )


def check_any(examples: Iterable, path) -> None:
  """Raises a CorpusError for a file without examples."""
  if not examples:
    raise errors.CorpusError(
      'A file holds no labelled examples',
      where=str(path),
      fix='fill it or leave it out',
    )


def shorten_quoted(text: str, limit: int = 60) -> str:
  """The text in quotes, its end left out if it is long."""
  return repr(text if len(text) <= limit else text[:limit] + '…')
