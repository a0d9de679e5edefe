"""Lines of the text files of a corpus directory; no TensorFlow.

All readers share the definitions of this module: a line ends with LF, CRLF or
CR, and tokens are separated by ASCII spaces and tabs. A no-break space is part
of a token. ASCII white space around a line is dropped. Files ending in `.gz` or `.zst` are decompressed while they are read, and files of
records become lines (`records`).
"""

import contextlib
import errno
import gzip
import pathlib
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

import zstandard

from xlflax.data.corpus import record_formats, record_reader
from xlflax.utils import errors

_SPACES = b' \t\r\x0b\x0c'
_LINE_ENDS = (b'\n', b'\r')
_BOM = b'\xef\xbb\xbf'
_LONGEST = 1 << 26  # bytes of a line; more is no text, or a bomb
_SEPARATOR = re.compile('[ \t]+')
_PACKED = 1 << 12  # bytes unpacked at a time: at most 128 MB of text
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError)


class Span(NamedTuple):
  """The bytes start .. stop - 1 of a file."""

  start: int
  stop: int


@contextlib.contextmanager
def _open(
  path: pathlib.Path, *, of_records: bool = False
) -> Iterator[BinaryIO]:
  with contextlib.ExitStack() as stack:
    if of_records and record_formats.is_records(path):
      streams = [
        stack.enter_context(_open(part))
        for part in record_formats.source_files(path)
      ]
      text = record_reader.Stream(
        record_reader.read_record_lines(streams, path)
      )
      yield stack.enter_context(record_reader.buffered(text))
      return
    file = stack.enter_context(open(path, 'rb', buffering=1 << 20))
    stream: Any = file
    if path.suffix == '.gz':
      stream = stack.enter_context(gzip.open(file))
    elif path.suffix == '.zst':
      stream = stack.enter_context(
        record_reader.buffered(record_reader.Stream(_zstd_frames(file)))
      )
    yield stream


def _zstd_frames(file: BinaryIO) -> Iterator[bytes]:
  """The text of a file's frames; one that does not end is an error.

  The library's own reader ends where the file does, as if all had been read.
  """
  frame: Any = None
  while packed := file.read(_PACKED):
    while packed:
      frame = frame or zstandard.ZstdDecompressor().decompressobj()
      yield frame.decompress(packed)
      packed = b''
      if frame.eof:
        packed, frame = frame.unused_data, None
  if frame is not None:
    raise EOFError('the last frame does not end')


def split_tokens(text: str) -> list[str]:
  """Splits a line at ASCII spaces and tabs.

  `10\xa0000 people` has the tokens `10\xa0000` and `people`.
  """
  return [token for token in _SEPARATOR.split(text) if token]


def read_text(path: pathlib.Path) -> Iterator[tuple[int, bytes]]:
  """As `read_lines`, of a file of a corpus, which may hold records."""
  return read_lines(path, of_records=True)


def read_lines(
  path: pathlib.Path, *, strip: bytes | None = None, of_records: bool = False
) -> Iterator[tuple[int, bytes]]:
  """Yields (line number from 1, line without surrounding white space).

  Before: the file `b'\\xef\\xbb\\xbfone \\r\\n\\ntwo'`; after:
  `(1, b'one'), (2, b''), (3, b'two')`.

  Args:
    path: of the file.
    strip: the characters taken off both ends; None: ASCII white space.
    of_records: whether records become the lines that they stand for.

  Raises:
    CorpusError: the file cannot be opened, or its compression is damaged.
  """
  number = 0
  opened = _open(path, of_records=of_records)
  with _told(path, lambda: number + 1), opened as stream:
    for number, line in enumerate(_raw_lines(stream, path), start=1):
      if number == 1:
        line = line.removeprefix(_BOM)
      yield number, line.strip(strip)


def read_span(path: pathlib.Path, span: Span) -> Iterator[tuple[int, bytes]]:
  """As `read_lines`, but only the lines that begin inside of a span.

  Each line of a file is in one span of a division of its bytes. Numbers count
  from 1 at the span's first line.

  Args:
    path: of a file of lines that is not compressed.
    span: of its bytes.

  Raises:
    CorpusError: the file cannot be opened.
  """
  number = 0
  with _told(path, lambda: number + 1), _open(path) as stream:
    offset = _seek_line(stream, span.start)
    for number, line in enumerate(_raw_lines(stream, path), start=1):
      if offset >= span.stop:
        return
      text = line if offset else line.removeprefix(_BOM)
      offset += len(line)
      yield number, text.strip()


def follows_blank(path: pathlib.Path, start: int) -> bool:
  """Whether the first line that begins at `start` or later follows a blank one.

  So it does at the beginning of a file.

  Raises:
    CorpusError: the file cannot be opened.
  """
  with _told(path, lambda: 1), _open(path) as stream:
    offset = _seek_line(stream, start) - 1  # of the line end before
    if offset > 0:
      stream.seek(offset - 1)
      offset -= stream.read(2) == b'\r\n'
    while offset > 0:
      first = max(offset - _PACKED, 0)
      stream.seek(first)
      part = stream.read(offset - first).rstrip(_SPACES)
      part = part if first else part.removeprefix(_BOM)
      if part:
        return part.endswith(_LINE_ENDS)
      offset = first
    return True


@contextlib.contextmanager
def absolute_numbers(path: pathlib.Path, span: Span | None) -> Iterator[None]:
  """Errors that name a line of a span name that of the file."""
  if span is None:
    yield
    return
  try:
    yield
  except errors.CorpusError as error:
    error_path, _, number = str(error.where).rpartition(':')
    if error_path != str(path) or not number.isdigit():
      raise
    where = f'{path}:{int(number) + _lines_before(path, span.start)}'
    raise errors.CorpusError(
      error.what,
      got=error.got,
      expected=error.expected,
      where=where,
      fix=error.fix,
    ) from error


def _seek_line(stream: BinaryIO, start: int) -> int:
  """Goes to the first line that begins at `start` or later, and says where."""
  if not start:
    return 0
  offset = start - 1
  stream.seek(offset)
  while part := stream.read(_PACKED):
    end = re.search(rb'\r\n|[\r\n]', part)
    if end:
      offset += end.end()
      if part[end.start() :] == b'\r' and stream.read(1) == b'\n':
        offset += 1
      break
    offset += len(part)
  stream.seek(offset)
  return offset


def _lines_before(path: pathlib.Path, stop: int) -> int:
  """Lines that begin before a byte of a file."""
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
  for number, line in enumerate(_split_lines(stream), start=1):
    if len(line) > _LONGEST:
      raise errors.CorpusError(
        'A line is too long to be a text',
        got=f'more than {_LONGEST:,} bytes',
        where=f'{path}:{number}',
        fix='look whether the file is what its name says',
      )
    yield line


def _split_lines(stream: BinaryIO) -> Iterator[bytes]:
  """Yields lines with their ends: LF, CRLF or CR."""
  pending = b''
  while piece := stream.readline(_LONGEST + 1):
    lines = (pending + piece).splitlines(keepends=True)
    # Without LF the last line may be cut off, or its CR be followed by LF.
    pending = b'' if piece.endswith(b'\n') else lines.pop()
    yield from lines
    if len(pending) > _LONGEST:
      break
  if pending:
    yield pending


@contextlib.contextmanager
def _told(path: pathlib.Path, line: Callable[[], int]) -> Iterator[None]:
  """What goes wrong when a file is read becomes a CorpusError."""
  try:
    if path.exists() and not path.is_file():
      raise OSError(errno.EINVAL, 'it is no regular file')
    yield
  except _DAMAGED as error:
    raise errors.CorpusError(
      f'A compressed file is damaged or cut off ({error})',
      where=f'{path}:{line()}',
      fix='write the file again',
    ) from error
  except OSError as error:
    raise errors.CorpusError(
      f'A text file cannot be read ({error.strerror or error})',
      where=str(error.filename or path),
      status=errors.of_os_error(error).status,
    ) from error


def decode_line(line: bytes, path: pathlib.Path, number: int) -> str:
  """`line` as text; a CorpusError with file:line if it is not UTF-8."""
  try:
    return line.decode('utf-8')
  except UnicodeDecodeError as error:
    raise errors.CorpusError(
      'A line is not valid UTF-8',
      got=f'byte 0x{line[error.start]:02x} at column {error.start + 1}',
      expected='UTF-8 text',
      where=f'{path}:{number}',
      fix='convert the file, for instance with iconv -t UTF-8',
    ) from error


def split_columns(
  line: bytes, path: pathlib.Path, number: int
) -> tuple[str, str]:
  """The two sides of a line of a parallel file.

  Before: `b'one\\t un'`; after: `('one', 'un')`.

  Raises:
    CorpusError: not exactly two columns, an empty side, or not UTF-8.
  """
  sides = decode_line(line, path, number).split('\t')
  if len(sides) != 2:
    # The reader strips a tab next to an empty side at the end of a line.
    count = f'{len(sides)} columns' if len(sides) > 1 else 'text in 1 column'
    raise errors.CorpusError(
      'Malformed line in a parallel file',
      got=f'{count}: {_shorten(line)}',
      expected='exactly two columns separated by one tab',
      where=f'{path}:{number}',
      fix='correct or delete the line',
    )
  first, second = sides[0].strip(), sides[1].strip()
  if not first or not second:
    raise errors.CorpusError(
      'A line of a parallel file has an empty side',
      got=_shorten(line),
      expected='text in both columns',
      where=f'{path}:{number}',
      fix='correct or delete the line',
    )
  return first, second


def read_dictionary(
  path: pathlib.Path,
) -> Iterator[tuple[str, str, float | None]]:
  """Yields (word, translation, weight or None) of a dictionary's lines.

  Before: `b'cat\\tKatze\\ndog\\tHund\\t0.5'`; after:
  `('cat', 'Katze', None), ('dog', 'Hund', 0.5)`.

  Raises:
    CorpusError: another number of columns, an empty one, a weight that is
      not a positive number, no line at all, or not UTF-8.
  """
  count = 0
  for number, line in read_lines(path):
    fields = [f.strip() for f in decode_line(line, path, number).split('\t')]
    good = len(fields) in (2, 3) and all(fields)
    if not good or (len(fields) == 3 and not _is_weight(fields[2])):
      raise errors.CorpusError(
        'Malformed line in a dictionary',
        got=_shorten(line),
        expected='word<TAB>translation, or with a third column of positive '
        'weights',
        where=f'{path}:{number}',
        fix='correct or delete the line',
      )
    yield fields[0], fields[1], float(fields[2]) if len(fields) == 3 else None
    count += 1
  if not count:
    raise errors.CorpusError(
      'A dictionary without entries',
      where=str(path),
      fix='fill or delete the file',
    )


def check_dictionary(path: pathlib.Path) -> int:
  """The number of a dictionary's entries; errors as of `read_dictionary`."""
  return sum(1 for _ in read_dictionary(path))


def _is_weight(text: str) -> bool:
  try:
    return 0 < float(text) < float('inf')
  except ValueError:
    return False


def _shorten(line: bytes, limit: int = 60) -> str:
  text = line.decode('utf-8', errors='replace')
  return repr(text if len(text) <= limit else text[:limit] + '…')
