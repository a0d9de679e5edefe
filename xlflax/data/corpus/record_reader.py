"""Files of records, read as the lines of a corpus directory's text files.

Before: `{"text": "a\\nb"}` and `{"text": "c"}` in `mono/en.jsonl`; after: the
bytes `a\\nb\\n\\nc\\n\\n`. A record of monolingual text is a document, one of
parallel text a pair. So every command reads the same text, whatever the form:

    .jsonl[.gz|.zst]   a JSON object a line
    .parquet, .arrow   rows of a table (extra `arrow`), also of `datasets`
    .tar               WebDataset: members .txt, or .json with a record
    .tmx               pairs of a translation memory
    .zip               Moses pairs as OPUS has them: NAME.<l1> and NAME.<l2>
    .<l1>[.gz|.zst]    beside .<l2>: two files that are aligned by line
    .dataset           a name that `datasets.load_dataset` knows, and more
    .tfrecord[.gz], .array_record   JSON or tf.train.Example

Which columns hold text is said by `corpus.toml` in the directory, see `Form`.
"""

import contextlib
import functools
import io
import itertools
import json
import pathlib
import tarfile
import tomllib
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from xlflax.data.corpus import binary_records, record_formats
from xlflax.data.corpus.record_formats import Form
from xlflax.utils import errors

_XML_LANGUAGE = '{http://www.w3.org/XML/1998/namespace}lang'
_ROWS = 1024  # of a table, converted at a time
_LONGEST = 1 << 26  # bytes of a line; more is no text, or a bomb

Record = Mapping[str, Any]
# Gives (number from 1, record) of opened files and the path of the first.
Reader = Callable[..., Iterator[tuple[int, Record]]]


def read_record_lines(
  streams: Sequence[BinaryIO], path: pathlib.Path
) -> Iterator[bytes]:
  """The text of a file of records, in pieces of whole lines.

  Args:
    streams: the file, and what belongs to it (`record_formats.source_files`), without their
      compression; none for a folder.
    path: of the file; its name says the form and the languages.

  Raises:
    CorpusError: a record that cannot be read, or lacks a column; with
      file:record.
  """
  form = record_formats.find_format(path)
  for number, record in _READERS[record_formats.format_suffix(path)](
    *streams, path
  ):
    if _is_kept(record, form, path, number):
      text = _text(record, form, path, number)
      if text:
        yield text.encode()


def _text(record: Record, form: Form, path: pathlib.Path, number: int) -> str:
  if form.sides:
    sides = [_column(record, side, path, number) for side in form.sides]
    if not all(map(str.strip, sides)):
      return ''
    return '\t'.join(' '.join(side.split()) for side in sides) + '\n'
  parts = [
    line
    for line in _column(record, form.text, path, number).split('\n')
    if line.strip()
  ]
  if form.unit is record_formats.Unit.LINE:
    return ' '.join(map(str.strip, parts)) + '\n' if parts else ''
  return '\n'.join(parts) + '\n\n' if parts else ''


def _column(record: Record, name: str, path: pathlib.Path, number: int) -> str:
  """The text in a column; 'a.b' is `b` of the object `a`."""
  value = get_field(record, name)
  if isinstance(value, str) and not _is_encodable(value):
    raise errors.CorpusError(
      f'The column {name} of a record has no UTF-8 form',
      got=ascii(value)[:60],
      expected='text; half of a surrogate pair is not a character',
      where=f'{path}:{number}',
    )
  if not isinstance(value, str):
    raise errors.CorpusError(
      f'A record has no text in its column {name}',
      got=f'columns {", ".join(map(str, record))}'
      if value is None
      else repr(value)[:60],
      expected='text',
      where=f'{path}:{number}',
      fix=f'name the column in {record_formats.FILE} at the top of the corpus, as '
      'docs/data.md shows, or leave the record out',
    )
  return value


def _is_encodable(text: str) -> bool:
  try:
    text.encode('utf-8')
  except UnicodeEncodeError:
    return False
  return True


def get_field(record: Record, name: str) -> Any:
  """The value of a column, or None; 'a.b' is `b` of the object `a`."""
  if name in record:
    return record[name]
  first, dot, suffix = name.partition('.')
  inner = record.get(first)
  return (
    get_field(inner, suffix) if dot and isinstance(inner, Mapping) else None
  )


def _is_kept(
  record: Record, form: Form, path: pathlib.Path, number: int
) -> bool:
  """Whether a record is read, by `Form.at_least` and `Form.equal`."""
  for name, minimum in form.at_least.items():
    value = get_field(record, name)
    if not isinstance(value, int | float):
      raise errors.CorpusError(
        f'A record has no number in the column {name}',
        got=repr(value)[:60],
        expected=f'a number, since {record_formats.FILE} asks for {minimum} or more',
        where=f'{path}:{number}',
      )
    if not value >= minimum:
      return False
  return all(
    get_field(record, name) == value for name, value in form.equal.items()
  )


def _jsonl(stream: BinaryIO, path: pathlib.Path):
  stream_lines = iter(functools.partial(stream.readline, _LONGEST), b'')
  for number, line in enumerate(stream_lines, start=1):
    if line.strip():
      yield number, _object(line, path, number)


def _object(line: bytes, path: pathlib.Path, number: int) -> Record:
  try:
    record = json.loads(line)
  except (ValueError, RecursionError) as error:
    raise errors.CorpusError(
      f'A record is not JSON ({error})',
      got=repr(line[:60]),
      where=f'{path}:{number}',
      fix='correct or delete the line',
    ) from error
  if not isinstance(record, dict):
    raise errors.CorpusError(
      'A record is no JSON object',
      got=repr(line[:60]),
      expected='{"text": ...}',
      where=f'{path}:{number}',
    )
  return record


def _parquet(stream: BinaryIO, path: pathlib.Path):
  with _told(path):
    from pyarrow import parquet  # noqa: PLC0415

    file = parquet.ParquetFile(stream)
    yield from _rows(file.iter_batches(batch_size=_ROWS))


def _arrow(stream: BinaryIO, path: pathlib.Path):
  with _told(path):
    import pyarrow as pa  # noqa: PLC0415

    is_file = stream.read(6) == b'ARROW1'
    stream.seek(0)
    if is_file:
      file = pa.ipc.open_file(stream)
      batches = map(file.get_batch, range(file.num_record_batches))
    else:
      batches = iter(pa.ipc.open_stream(stream))
    yield from _rows(
      part.slice(start, _ROWS)
      for part in batches
      for start in range(0, part.num_rows, _ROWS)
    )


def _rows(batches):
  rows = itertools.chain.from_iterable(batch.to_pylist() for batch in batches)
  yield from enumerate(rows, start=1)


def _tar(stream: BinaryIO, path: pathlib.Path):
  with _told(path), tarfile.open(fileobj=stream, mode='r|') as archive:
    for number, member in enumerate(archive, start=1):
      file = archive.extractfile(member) if member.isfile() else None
      if file is None:
        continue
      if member.name.endswith('.txt'):
        yield number, {'text': _decode(file.read(), path, number)}
      elif member.name.endswith('.json'):
        yield number, _object(file.read(), path, number)


def _decode(text: bytes, path: pathlib.Path, number: int) -> str:
  try:
    return text.decode('utf-8')
  except UnicodeDecodeError as error:
    raise errors.CorpusError(
      'A record is not valid UTF-8',
      got=f'byte 0x{text[error.start]:02x} at {error.start}',
      where=f'{path}:{number}',
    ) from error


def _tmx(stream: BinaryIO, path: pathlib.Path):
  """Records language -> text; codes as in the name of the file."""
  languages = record_formats.languages_of_name(path)
  with _told(path):
    number = 0
    for _, unit in ElementTree.iterparse(stream):
      if unit.tag != 'tu':
        continue
      number += 1
      segments: dict[str, str] = {}
      for side in unit.iter('tuv'):
        code = side.get(_XML_LANGUAGE) or side.get('lang') or ''
        segment = side.find('seg')
        matching_codes = [
          language for language in languages if _is_code(code, language)
        ]
        if segment is not None and matching_codes:
          segments[max(matching_codes, key=len)] = _plain(segment)
      unit.clear()
      if len(segments) == len(languages):
        yield number, segments


def _plain(node) -> str:
  """Text without native codes, but with the text inside of these (`sub`)."""
  is_code = node.tag in ('bpt', 'ept', 'it', 'ph', 'ut')
  texts = [(node.text, is_code)]
  for child in node:
    texts += [(_plain(child), False), (child.tail, is_code)]
  return ''.join(text for text, left_out in texts if text and not left_out)


def _is_code(code: str, language: str) -> bool:
  """Whether a code of XML, such as 'en-US', is of a language or its variety."""
  code, language = code.lower().replace('-', '_'), language.lower()
  return code == language or code.startswith(language + '_')


def _zip(stream: BinaryIO, path: pathlib.Path):
  languages = record_formats.languages_of_name(path)
  with _told(path), zipfile.ZipFile(stream) as archive:
    members = {
      language: [n for n in archive.namelist() if n.endswith(f'.{language}')]
      for language in languages
    }
    if any(len(names) != 1 for names in members.values()):
      raise errors.CorpusError(
        'An archive of pairs does not have one file for each language',
        got=', '.join(archive.namelist()[:6]),
        expected=' and '.join(f'one name ending in .{x}' for x in languages),
        where=str(path),
      )
    with contextlib.ExitStack() as stack:
      sides = [
        stack.enter_context(archive.open(members[language][0]))
        for language in languages
      ]
      yield from _zipped(sides, languages, path)


def _moses(first: BinaryIO, second: BinaryIO, path: pathlib.Path):
  return _zipped([first, second], record_formats.languages_of_name(path), path)


def _zipped(sides, languages, path: pathlib.Path):
  number = 0
  while any(raw_lines := [side.readline(_LONGEST) for side in sides]):
    number += 1
    if not all(raw_lines):
      raise errors.CorpusError(
        'The two sides of a pair of files have other numbers of lines',
        got=f'one ends after line {number - 1}',
        where=str(path),
        fix='fetch the file again: its lines are no translations',
      )
    texts = [_decode(line, path, number) for line in raw_lines]
    yield number, dict(zip(languages, texts, strict=True))


def _dataset(stream: BinaryIO, path: pathlib.Path):
  """Rows of what the file's TOML names, as `datasets.load_dataset` does."""
  with _told(path):
    import datasets  # noqa: PLC0415

    named = {'split': 'train'} | tomllib.loads(stream.read().decode())
    try:
      rows = datasets.load_dataset(**named, streaming=True)
      yield from enumerate(rows, start=1)
    except Exception as error:
      raise errors.CorpusError(
        f'A dataset cannot be read ({error})',
        got=str(named),
        expected='path, and where needed name, data_files, split, revision',
        where=str(path),
        fix='without a network (or with HF_HUB_OFFLINE) only folders on this '
        'machine can be read; else correct the file, or start again',
        status=errors.ExitStatus.FAILURE,
      ) from error


def _tf_records(stream: BinaryIO, path: pathlib.Path):
  return _serialised(binary_records.tf_records(stream), path)


def _array_records(stream: BinaryIO, path: pathlib.Path):
  del stream  # Its library opens files by itself.
  return _serialised(binary_records.array_records(path), path)


def _serialised(found: Iterator[bytes], path: pathlib.Path):
  with _told(path):
    for number, record in enumerate(found, start=1):
      is_json = record.startswith(b'{')
      read = _object(record, path, number) if is_json else None
      yield number, read or binary_records.parse_tf_example(record)


@contextlib.contextmanager
def _told(path: pathlib.Path) -> Iterator[None]:
  """What a library says of a damaged file becomes a CorpusError."""
  try:
    yield
  except ImportError as error:
    raise errors.CorpusError(
      f'{path.suffix} files are read by {error.name}, which is not installed',
      where=str(path),
      fix='pip install ".[sources]" in a checkout of xlflax',
    ) from error
  except (
    ValueError,  # pyarrow's errors are ValueErrors
    tarfile.TarError,
    zipfile.BadZipFile,
    ElementTree.ParseError,
  ) as error:
    raise errors.CorpusError(
      f'A {path.suffix} file is damaged ({error})',
      where=str(path),
      fix='fetch or write it again',
    ) from error


_READERS: dict[str, Reader] = {
  '.jsonl': _jsonl,
  '.parquet': _parquet,
  '.arrow': _arrow,
  '.tar': _tar,
  '.tmx': _tmx,
  '.zip': _zip,
  '.moses': _moses,
  '.dataset': _dataset,
  '.tfrecord': _tf_records,
  '.array_record': _array_records,
}


class Stream(io.RawIOBase):
  """A binary file of pieces that are made while it is read."""

  def __init__(self, pieces: Iterator[bytes]):
    self._pieces, self._left = pieces, b''

  def readable(self) -> bool:
    return True

  def readinto(self, buffer) -> int:
    while not self._left:
      piece = next(self._pieces, None)
      if piece is None:
        return 0
      self._left = piece
    count = min(len(buffer), len(self._left))
    buffer[:count] = self._left[:count]
    self._left = self._left[count:]
    return count


buffered = functools.partial(io.BufferedReader, buffer_size=1 << 20)
