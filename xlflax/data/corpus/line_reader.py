"""Readers for lines and columns in the text files of a corpus directory.

All readers of text files use the definitions in this module. A line ends with
LF, CRLF or CR. Tokens are separated by ASCII spaces and tabs. A no-break space
is part of a token. ASCII white space is removed from both ends of a line. Files
with the extension `.gz`, `.zst` or `.xz` are decompressed while they are read,
and files that contain records are converted to lines (`record_reader`).
TensorFlow is not required.
"""

import contextlib
import errno
import gzip
import io
import lzma
import pathlib
import re
import shlex
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

import zstandard

from xlflax.data.corpus import (
  bad_records,
  csv_text,
  record_formats,
  record_reader,
)
from xlflax.data.corpus.bad_records import OnBadRecord, OnDroppedRecord
from xlflax.storage import git_lfs
from xlflax.utils import errors, line_splitting

_SPACES = b' \t\r\x0b\x0c'
_LINE_ENDS = (b'\n', b'\r')
# Characters to strip from a line of a parallel file. A tab at the end of the
# line is kept, because it shows that the source or target is empty.
PAIR_SPACES = b' \r\n\x0b\x0c'
_BOM = line_splitting.BOM
_MAX_LINE_BYTES = line_splitting.MAX_LINE_BYTES
# Separator of source and target in the files of some word aligners.
_BARS = ' ||| '
_SEPARATOR = re.compile('[ \t]+')
# First bytes of compressed files, with the name and the extension of the format.
_COMPRESSED_FORMATS = {
  b'\x1f\x8b': ('gzip', '.gz'),
  b'\xfd7zXZ\0': ('xz', '.xz'),
  b'\x28\xb5\x2f\xfd': ('Zstandard', '.zst'),
  b'BZh': ('bzip2', '.bz2'),
  b'PK\x03\x04': ('zip', '.zip'),
}
_READABLE_EXTENSIONS = ('.gz', '.xz', '.zst')
# Number of bytes from which the format of a file is determined.
_NUM_FIRST_BYTES = 64
# Bytes that do not occur in text.
_CONTROL_BYTES = re.compile(rb'[\x00-\x08\x0e-\x1f\x7f]')
_UTF_16_MARKS = (b'\xff\xfe', b'\xfe\xff')
# Number of compressed bytes that are decompressed at a time, into at most
# 128 MB of text.
_CHUNK_BYTES = 1 << 12
_DECOMPRESSION_ERRORS = (
  EOFError,
  gzip.BadGzipFile,
  lzma.LZMAError,
  zlib.error,
  zstandard.ZstdError,
)


class Span(NamedTuple):
  """Half-open range [start, stop) of bytes in a file."""

  start: int
  stop: int


@contextlib.contextmanager
def _open(
  path: pathlib.Path,
  *,
  of_records: bool = False,
  on_bad_record: OnBadRecord | None = None,
  on_dropped_record: OnDroppedRecord | None = None,
) -> Iterator[BinaryIO]:
  """Context manager that yields the decompressed content of a file.

  Args:
    path: Path of the file.
    of_records: Whether to convert records to lines of text if the file has a
      record format, such as JSON lines or Parquet.
    on_bad_record: Function that is called with the error of each record that
      cannot be used. If None, the error is raised.
    on_dropped_record: Function that is called for each valid record that is
      dropped. Its argument is the reason (`record_reader.read_record_lines`).
  """
  with contextlib.ExitStack() as stack:
    if of_records and record_formats.is_records(path):
      streams = [
        stack.enter_context(_open(source_file))
        for source_file in record_formats.source_files(path)
      ]
      text = record_reader.Stream(
        record_reader.read_record_lines(
          streams, path, on_bad_record, on_dropped_record
        )
      )
      yield stack.enter_context(record_reader.buffered(text))
      return
    file = stack.enter_context(
      io.BufferedReader(io.FileIO(path), buffer_size=1 << 20)
    )
    if git_lfs.is_pointer(path):
      raise errors.CorpusError(
        'The file is a Git LFS pointer whose content was not downloaded',
        where=str(path),
        fix=git_lfs.FIX,
      )
    _check_first_bytes(file.peek(_NUM_FIRST_BYTES)[:_NUM_FIRST_BYTES], path)
    stream: Any = file
    if path.suffix == '.gz':
      stream = stack.enter_context(gzip.open(file))
    elif path.suffix == '.xz':
      stream = stack.enter_context(lzma.open(file))
    elif path.suffix == '.zst':
      stream = stack.enter_context(
        record_reader.buffered(record_reader.Stream(_zstd_frames(file)))
      )
    yield stream


def _check_first_bytes(first_bytes: bytes, path: pathlib.Path) -> None:
  """Rejects UTF-16 files and files whose extension does not match the content.

  Raises:
    CorpusError: If the file is compressed and its name lacks the extension, if
      the name has the extension and the content is text, or if the file is
      encoded in UTF-16.
  """
  for magic, (name, extension) in _COMPRESSED_FORMATS.items():
    if first_bytes.startswith(magic) and path.suffix != extension:
      raise errors.CorpusError(
        f'The file is compressed with {name}, but its name does not end in '
        f'{extension}',
        where=str(path),
        fix=f'Rename the file to {path.name}{extension}.'
        if extension in _READABLE_EXTENSIONS
        else 'Decompress the file.',
      )
  if first_bytes.startswith(_UTF_16_MARKS):
    raise errors.CorpusError(
      'The file is encoded in UTF-16 instead of UTF-8',
      where=str(path),
      fix='Convert it with '
      f'`iconv -f UTF-16 -t UTF-8 {shlex.quote(str(path))}`, and replace the '
      'file with the output.',
    )
  if (
    path.suffix in _READABLE_EXTENSIONS
    and first_bytes
    and not any(map(first_bytes.startswith, _COMPRESSED_FORMATS))
    and not _CONTROL_BYTES.search(first_bytes)
  ):
    raise errors.CorpusError(
      f'The file is not compressed, but its name ends in {path.suffix}',
      where=str(path),
      fix=f'Rename the file to {path.stem}, or compress it. If it is an '
      'error page from a server, download the file again.',
    )


def _zstd_frames(file: BinaryIO) -> Iterator[bytes]:
  """Yields the decompressed frames of a Zstandard file.

  The library's own reader does not report an incomplete last frame.

  Raises:
    EOFError: If the last Zstandard frame in the file is incomplete.
  """
  frame: Any = None
  while compressed := file.read(_CHUNK_BYTES):
    while compressed:
      frame = frame or zstandard.ZstdDecompressor().decompressobj()
      yield frame.decompress(compressed)
      compressed = b''
      if frame.eof:
        compressed, frame = frame.unused_data, None
  if frame is not None:
    raise EOFError('The last Zstandard frame of the file is incomplete')


def split_tokens(text: str) -> list[str]:
  """Splits a line at ASCII spaces and tabs, but not at no-break spaces.

  `10\xa0000 people` has the tokens `10\xa0000` and `people`.
  """
  return [token for token in _SEPARATOR.split(text) if token]


def read_text(
  path: pathlib.Path,
  *,
  strip: bytes | None = None,
  on_bad_record: OnBadRecord | None = None,
  on_dropped_record: OnDroppedRecord | None = None,
) -> Iterator[tuple[int, bytes]]:
  """Yields the numbered lines of a corpus file, and converts records to lines.

  See `read_lines`.
  """
  return read_lines(
    path,
    strip=strip,
    of_records=True,
    on_bad_record=on_bad_record,
    on_dropped_record=on_dropped_record,
  )


def read_records(
  path: pathlib.Path,
) -> Iterator[tuple[int, record_reader.Record]]:
  """Yields the one-based number and the content of each record in a file.

  Args:
    path: Path of a file in a format of `record_reader`, such as JSON lines or
      Parquet.

  Raises:
    BadRecordError: If a record cannot be parsed.
    CorpusError: If the file cannot be opened, or if it is damaged.
  """
  number = 0
  with _as_corpus_errors(path, lambda: number + 1), _open(path) as stream:
    for number, record in record_reader.read_records([stream], path):
      yield number, record


def read_lines(
  path: pathlib.Path,
  *,
  strip: bytes | None = None,
  of_records: bool = False,
  on_bad_record: OnBadRecord | None = None,
  on_dropped_record: OnDroppedRecord | None = None,
) -> Iterator[tuple[int, bytes]]:
  r"""Yields the one-based number and the stripped bytes of each line.

  For example, the file `b'\xef\xbb\xbfone \r\n\ntwo'` yields
  `(1, b'one'), (2, b''), (3, b'two')`.

  Args:
    path: Path of the file.
    strip: Characters to remove from both ends of each line. If None, ASCII
      white space is removed.
    of_records: Whether to convert records to lines of text if the file has a
      record format, such as JSON lines or Parquet.
    on_bad_record: Function that is called with the error of each record that
      cannot be used. If None, the error is raised.
    on_dropped_record: Function that is called for each valid record that is
      dropped. Its argument is the reason (`record_reader.read_record_lines`).

  Raises:
    BadRecordError: If a record cannot be used.
    CorpusError: If the file cannot be opened, or if the compressed data is
      damaged.
  """
  number = 0
  opened = _open(
    path,
    of_records=of_records,
    on_bad_record=on_bad_record,
    on_dropped_record=on_dropped_record,
  )
  with _as_corpus_errors(path, lambda: number + 1), opened as stream:
    for number, line in enumerate(_raw_lines(stream, path), start=1):
      if number == 1:
        line = line.removeprefix(_BOM)
      yield number, line.strip(strip)


def read_span(
  path: pathlib.Path, span: Span, *, strip: bytes | None = None
) -> Iterator[tuple[int, bytes]]:
  """Yields the number and content of each line that starts in a byte range.

  If a file is divided into spans, each line belongs to exactly one span. Line
  numbers are relative to the span and start at 1.

  Args:
    path: Path of an uncompressed text file.
    span: Range of bytes.
    strip: Characters to remove from both ends of each line. If None, ASCII
      white space is removed.

  Raises:
    CorpusError: If the file cannot be opened.
  """
  number = 0
  with _as_corpus_errors(path, lambda: number + 1), _open(path) as stream:
    offset = _seek_line(stream, span.start)
    for number, line in enumerate(_raw_lines(stream, path), start=1):
      if offset >= span.stop:
        return
      text = line if offset else line.removeprefix(_BOM)
      offset += len(line)
      yield number, text.strip(strip)


def follows_blank(path: pathlib.Path, start: int) -> bool:
  """Returns whether the first line at or after an offset follows a blank line.

  The first line of a file counts as following a blank line.

  Args:
    path: Path of the file.
    start: Byte offset at which the search for the line starts.

  Raises:
    CorpusError: If the file cannot be opened.
  """
  with _as_corpus_errors(path, lambda: 1), _open(path) as stream:
    offset = _seek_line(stream, start) - 1  # Last byte of the line end before.
    if offset > 0:
      stream.seek(offset - 1)
      offset -= stream.read(2) == b'\r\n'
    while offset > 0:
      first = max(offset - _CHUNK_BYTES, 0)
      stream.seek(first)
      chunk = stream.read(offset - first).rstrip(_SPACES)
      chunk = chunk if first else chunk.removeprefix(_BOM)
      if chunk:
        return chunk.endswith(_LINE_ENDS)
      offset = first
    return True


@contextlib.contextmanager
def absolute_line_numbers(
  path: pathlib.Path, span: Span | None
) -> Iterator[None]:
  """Context manager that corrects the line number in errors of a reader.

  The reader of a range of bytes counts lines from the start of the range. The
  number of earlier lines in the file is therefore added.

  Args:
    path: Path of the file.
    span: Range of bytes that the reader reads. If None, line numbers in errors
      are not corrected.
  """
  if span is None:
    yield
    return
  try:
    yield
  except errors.CorpusError as error:
    error_path, _, number = str(error.where).rpartition(':')
    if error_path != str(path) or not number.isdigit():
      raise
    line_number = int(number) + _lines_before(path, span.start)
    raise type(error)(
      error.what,
      got=error.got,
      expected=error.expected,
      where=errors.line_location(path, line_number),
      fix=error.fix,
    ) from error


def _seek_line(stream: BinaryIO, start: int) -> int:
  """Seeks to the first line at or after a byte offset and returns it."""
  if not start:
    return 0
  offset = start - 1
  stream.seek(offset)
  while chunk := stream.read(_CHUNK_BYTES):
    line_end = re.search(rb'\r\n|[\r\n]', chunk)
    if line_end:
      offset += line_end.end()
      if chunk[line_end.start() :] == b'\r' and stream.read(1) == b'\n':
        offset += 1
      break
    offset += len(chunk)
  stream.seek(offset)
  return offset


def _lines_before(path: pathlib.Path, stop: int) -> int:
  """Returns the number of lines that start before a byte offset in a file."""
  if not stop:
    return 0
  with _open(path) as stream:
    count = offset = 0
    for line in _raw_lines(stream, path):
      if offset >= stop:
        break
      offset += len(line)
      count += 1
  return count


def _raw_lines(stream: BinaryIO, path: pathlib.Path) -> Iterator[bytes]:
  """Yields lines including their line endings.

  Raises:
    CorpusError: If a line is too long.
  """
  for number, line in enumerate(
    line_splitting.split_lines(stream, _MAX_LINE_BYTES), start=1
  ):
    if len(line) > _MAX_LINE_BYTES:
      raise errors.CorpusError(
        'A line of a text file must not be longer than '
        f'{_MAX_LINE_BYTES:,} bytes',
        where=errors.line_location(path, number),
        fix='Check that the name of the file matches its format.',
      )
    yield line


@contextlib.contextmanager
def _as_corpus_errors(
  path: pathlib.Path, line_number: Callable[[], int]
) -> Iterator[None]:
  """Context in which errors of reading a file are raised as CorpusErrors."""
  try:
    if path.exists() and not path.is_file():
      raise OSError(errno.EINVAL, 'The path is not a regular file')
    yield
  except _DECOMPRESSION_ERRORS as error:
    raise errors.CorpusError(
      f'The compressed file is damaged or truncated ({error})',
      where=errors.line_location(path, line_number()),
      fix='Write or download the file again.',
    ) from error
  except OSError as error:
    raise errors.CorpusError(
      f'The text file cannot be read ({error.strerror or error})',
      where=str(error.filename or path),
      status=errors.convert_os_error(error).status,
    ) from error


def decode_line(line: bytes, path: pathlib.Path, number: int) -> str:
  """Decodes the bytes of a line as UTF-8.

  Args:
    line: Bytes of the line.
    path: Path of the file.
    number: Line number, for error messages.

  Raises:
    FileConversionError: If the line is not valid UTF-8. The error contains the
      file and the line.
  """
  try:
    return line.decode('utf-8')
  except UnicodeDecodeError as error:
    raise errors.FileConversionError(
      'A line of a text file is not valid UTF-8',
      got=_describe_invalid_byte(error),
      where=errors.line_location(path, number),
      fix=_conversion_hint(path),
    ) from error


def split_columns(
  line: bytes, path: pathlib.Path, number: int
) -> tuple[str, str]:
  r"""Splits a line of a parallel file into source and target.

  For example, `b'one\t un'` becomes `('one', 'un')`.

  Args:
    line: Bytes of the line, which was read with `strip=PAIR_SPACES`.
    path: Path of the file.
    number: Line number, for error messages.

  Raises:
    BadRecordError: If the line has only one column, or if the source or target
      is empty. The error contains the file and the line.
    TextColumnError: If the columns appear to be separated by ` ||| `, or if the
      line appears to be in CSV format.
    FileConversionError: If the line has more than two columns or is not valid
      UTF-8. The error contains the file and the line.
  """
  text = decode_line(line, path, number)
  sides = text.split('\t')
  if len(sides) != 2:  # Further tabs at the ends of a line are ignored.
    sides = text.strip().split('\t')
  if len(sides) != 2:
    _check_separator(line, text, path, number)
  if len(sides) > 2:
    raise errors.FileConversionError(
      'A line of a parallel file must not have more than two tab-separated '
      'columns',
      got=_describe_columns(line, len(sides)),
      where=errors.line_location(path, number),
      fix=_surplus_columns_hint(path, len(sides)),
    )
  if len(sides) != 2:
    raise errors.BadRecordError(
      'Each line of a parallel file must have exactly two columns, which are '
      'separated by one tab',
      got=f'text in 1 column: {line_splitting.shorten_line(line)}'
      if text.strip()
      else 'an empty line',
      where=errors.line_location(path, number),
      fix=bad_records.HINT,
    )
  first, second = sides[0].strip(), sides[1].strip()
  if not first or not second:
    empty_sides = [
      name for name, side in (('source', first), ('target', second)) if not side
    ]
    description = (
      f'an empty {" and ".join(empty_sides)}: '
      f'{line_splitting.shorten_line(line)}'
    )
    raise errors.BadRecordError(
      'Each line of a parallel file must contain text in both columns',
      got=description,
      where=errors.line_location(path, number),
      fix=bad_records.HINT,
    )
  return first, second


def _check_separator(
  line: bytes, text: str, path: pathlib.Path, number: int
) -> None:
  """Raises a TextColumnError if a line has a separator other than a tab."""
  if '\t' in text:
    return
  delimiter = csv_text.find_delimiter(text)
  if _BARS in text:
    decompress, file = _readable_file(path)
    description = f'but a line contains {_BARS!r}'
    fix = (
      f"{decompress}If all lines have this format, run `sed 's/{_BARS}/\\t/g' "
      f'{file}`, and replace the file with the output.'
    )
  elif delimiter is not None:
    description = 'but a line appears to be in CSV format'
    fix = csv_text.describe_conversion(path, num_columns=2, delimiter=delimiter)
  else:
    return
  raise errors.TextColumnError(
    'The columns of a parallel file or dictionary must be separated by one tab, '
    + description,
    got=line_splitting.shorten_line(line),
    where=errors.line_location(path, number),
    fix=fix,
  )


def read_dictionary(
  path: pathlib.Path, on_bad_record: OnBadRecord | None = None
) -> Iterator[tuple[str, str, float | None]]:
  r"""Yields (word, translation, weight or None) for each line in a dictionary.

  For example, `b'cat\tKatze\ndog\tHund\t0.5'` yields
  `('cat', 'Katze', None), ('dog', 'Hund', 0.5)`.

  Args:
    path: Path of the dictionary.
    on_bad_record: Function that is called with the error of each malformed
      line. If None, the error is raised.

  Raises:
    BadRecordError: If the number of columns is wrong, if a column is empty, if
      a weight is not a positive number, or if a line is not valid UTF-8.
    CorpusError: If the file contains no valid entry.
  """
  count = 0
  parse = bad_records.skip_bad_records(_parse_dictionary_entry, on_bad_record)
  for number, line in read_lines(path):
    entry = parse(line, path, number)
    if entry is not None:
      yield entry
      count += 1
  if not count:
    raise errors.CorpusError(
      'The dictionary file contains no entries',
      where=str(path),
      fix='Add entries to the file, or delete it.',
    )


def _parse_dictionary_entry(
  line: bytes, path: pathlib.Path, number: int
) -> tuple[str, str, float | None]:
  """Parses a line of a dictionary; see `read_dictionary`."""
  text = decode_line(line, path, number)
  fields = [field.strip() for field in text.split('\t')]
  _check_separator(line, text, path, number)
  is_complete = len(fields) in (2, 3) and all(fields)
  if not is_complete or (len(fields) == 3 and not _is_weight(fields[2])):
    raise errors.BadRecordError(
      'Each line of a dictionary file must have the format '
      'word<TAB>translation, optionally with a positive weight in a third '
      'column',
      got=line_splitting.shorten_line(line),
      where=errors.line_location(path, number),
      fix='Correct or delete the line.',
    )
  return fields[0], fields[1], float(fields[2]) if len(fields) == 3 else None


def check_dictionary(path: pathlib.Path) -> int:
  """Checks a dictionary file and returns its number of entries.

  Raises:
    CorpusError: If the dictionary is invalid; see `read_dictionary`.
  """
  return sum(1 for _ in read_dictionary(path))


def _is_weight(text: str) -> bool:
  try:
    return 0 < float(text) < float('inf')
  except ValueError:
    return False


def _conversion_hint(path: pathlib.Path) -> str:
  """Returns the hint for a file that is not encoded in UTF-8."""
  decompress, file = _readable_file(path)
  return (
    f'{decompress}If the complete file is in a different encoding, such as '
    f'Latin-1, convert it with `iconv -f ISO-8859-1 -t UTF-8 {file}`, and '
    'replace the file with the output. Otherwise, correct the line.'
  )


def _surplus_columns_hint(path: pathlib.Path, num_columns: int) -> str:
  """Returns the hint for a parallel file with more than two columns."""
  decompress, file = _readable_file(path)
  return (
    f'{decompress}If all lines have {num_columns} columns, of which the first '
    f'two are source and target, select these two with `cut -f1,2 {file}`, and '
    'replace the file with the output. Otherwise, correct the line.'
  )


def _readable_file(path: pathlib.Path) -> tuple[str, str]:
  """Returns the hint to decompress a file, and its name in a shell command."""
  if path.suffix in _READABLE_EXTENSIONS:
    return 'Decompress the file. ', 'FILE'
  return '', shlex.quote(str(path))


def _describe_invalid_byte(error: UnicodeDecodeError) -> str:
  """Returns the first invalid byte of a line and its one-based column."""
  return f'byte 0x{error.object[error.start]:02x} at column {error.start + 1}'


def _describe_columns(line: bytes, num_columns: int) -> str:
  """Returns the number of columns of a line, and the line itself."""
  return f'{num_columns} columns: {line_splitting.shorten_line(line)}'
