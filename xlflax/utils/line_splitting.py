"""Functions that split text into lines and normalize white space.

A line ends with LF, CRLF or CR. Other characters that Unicode classifies as
line boundaries or white space, such as U+2028 and the no-break space, are part
of the text.
"""

import os
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from xlflax.utils import errors, plurals

BOM = b'\xef\xbb\xbf'
# Longer lines are not text, or result from a decompression bomb.
MAX_LINE_BYTES = 1 << 26
_LINE_END = re.compile('\r\n|[\r\n]')
_WHITE_SPACE = re.compile('[ \t\r\n]+')


def split_lines(
  stream: BinaryIO, max_bytes: int = MAX_LINE_BYTES
) -> Iterator[bytes]:
  """Yields the lines of a stream, including their line endings.

  Args:
    stream: Binary stream.
    max_bytes: Maximum size of a line. A longer line is yielded without its end,
      and the rest of the stream is not read.
  """
  pending = b''
  while chunk := stream.readline(max_bytes + 1):
    lines = (pending + chunk).splitlines(keepends=True)
    # If the chunk does not end with LF, its last line may be incomplete, or its
    # CR may be followed by LF.
    pending = b'' if chunk.endswith(b'\n') else lines.pop()
    yield from lines
    if len(pending) > max_bytes:
      break
  if pending:
    yield pending


def read_numbered_lines(
  stream: BinaryIO, path: pathlib.Path
) -> Iterator[tuple[int, bytes]]:
  """Yields the one-based number and the bytes of each line.

  The lines include their line endings. A byte order mark is removed.

  Args:
    stream: Binary stream.
    path: Path of the file, for error messages.

  Raises:
    CorpusError: If a line is too long.
  """
  for number, line in enumerate(split_lines(stream), start=1):
    if len(line) > MAX_LINE_BYTES:
      raise errors.CorpusError(
        'A line of a text file must not be longer than '
        f'{MAX_LINE_BYTES:,} bytes',
        where=errors.line_location(path, number),
        fix="Check that the file's format matches its name.",
      )
    yield number, line.removeprefix(BOM * (number == 1))


def split_text(text: str) -> list[str]:
  """Splits a text at its line endings."""
  return _LINE_END.split(text)


def join_lines(text: str) -> str:
  """Replaces ASCII white space, including line endings, with single spaces.

  No-break spaces and other Unicode white space are kept.
  """
  return _WHITE_SPACE.sub(' ', text).strip(' ')


def shorten_line(line: bytes, max_characters: int = 60) -> str:
  """Returns the beginning of a line in quotation marks, for messages.

  Invalid UTF-8 is replaced, and the line ending is removed.

  Args:
    line: Bytes of the line.
    max_characters: Number of characters after which the text is truncated.
  """
  text = line.decode('utf-8', errors='replace').rstrip('\r\n')
  if len(text) > max_characters:
    text = text[:max_characters] + '…'
  return repr(text)


def unequal_lines_error(
  files: Sequence[str | os.PathLike], num_lines: Sequence[int]
) -> errors.CorpusError:
  """Returns the error for line-aligned files of different length.

  Args:
    files: Paths or names of the files.
    num_lines: Number of lines of each file.
  """
  return errors.CorpusError(
    'Line-aligned files must have the same number of lines, because each line '
    'is the translation of the line with the same number in the other file',
    got=', '.join(
      f'{plurals.format_count(count, "line")} in {file}'
      for file, count in zip(files, num_lines, strict=True)
    ),
    fix='Write both files again from the same text. If the files were '
    'downloaded, download both files again.',
  )
