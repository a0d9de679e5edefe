r"""Readers that convert files with records to lines of text.

For example, the records `{"text": "a\nb"}` and `{"text": "c"}` in
`mono/en.jsonl` become the bytes `a\nb\n\nc\n\n`. A monolingual record is a
document, and a parallel record is a sentence pair. All commands can therefore
read the same text from any of these formats:

    .jsonl[.gz|.zst]   one JSON object per line
    .parquet, .arrow   rows of a table (extra `sources`), also from `datasets`
    .tar               WebDataset: members .txt, or .json with a record
    .tmx               pairs of a translation memory
    .zip               Moses pairs as published by OPUS: NAME.<l1> and NAME.<l2>
    .<l1>[.gz|.zst]    together with .<l2>: two files that are aligned by line
    .dataset           arguments of `datasets.load_dataset` in TOML
    .tfrecord[.gz], .array_record   JSON or tf.train.Example

A `corpus.toml` file in the corpus directory specifies the columns that contain
text; see `RecordFormat`.
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

from xlflax.data.corpus import bad_records, binary_records, record_formats
from xlflax.data.corpus.bad_records import OnBadRecord, OnDroppedRecord
from xlflax.data.corpus.record_formats import RecordFormat
from xlflax.utils import errors, json_errors, line_splitting

_XML_LANGUAGE = '{http://www.w3.org/XML/1998/namespace}lang'
# Number of table rows that are converted at a time.
_ROWS_PER_CHUNK = 1024

Record = Mapping[str, Any]
# Function of the opened files and the path of the first file, which yields
# (number from 1, raw record).
Reader = Callable[..., Iterator[tuple[int, Any]]]
# Function of a raw record, the path of the file and the number of the record,
# which returns the record.
Parser = Callable[[Any, pathlib.Path, int], Record]


def read_record_lines(
  streams: Sequence[BinaryIO],
  path: pathlib.Path,
  on_bad_record: OnBadRecord | None = None,
  on_dropped_record: OnDroppedRecord | None = None,
) -> Iterator[bytes]:
  """Yields the text of a file's records in chunks of complete lines.

  Args:
    streams: Decompressed content of the file, or of both files in the Moses
      format (`record_formats.source_files`). Empty for a directory.
    path: Path of the file. The file name determines the format and the
      languages.
    on_bad_record: Function that is called with the error of each record that
      cannot be used. If None, the error is raised.
    on_dropped_record: Function that is called for each valid record that is
      dropped. Its argument is the reason. If None, the reasons are not
      reported.

  Raises:
    BadRecordError: If a record cannot be parsed, or if it lacks a column. The
      error contains the file and the record.
    CorpusError: If the file is damaged.
  """
  form = record_formats.find_format(path)
  suffix = record_formats.format_suffix(path)
  parse = _PARSERS.get(suffix, _use_record)
  num_languages = _NUM_LANGUAGES.get(suffix, 0)

  def convert(raw_record: Any, number: int) -> str:
    record = parse(raw_record, path, number)
    reason = None
    text = ''
    if len(record) < num_languages:
      reason = bad_records.INCOMPLETE
    elif not _passes_filters(record, form, path, number):
      reason = bad_records.FILTERED
    else:
      text = _record_text(record, form, path, number)
      if not text:
        reason = bad_records.EMPTY
    if reason is not None and on_dropped_record is not None:
      on_dropped_record(reason)
    return text

  convert_or_skip = bad_records.skip_bad_records(convert, on_bad_record)
  for number, raw_record in _READERS[suffix](*streams, path):
    text = convert_or_skip(raw_record, number)
    if text:
      yield text.encode()


def read_records(
  streams: Sequence[BinaryIO], path: pathlib.Path
) -> Iterator[tuple[int, Record]]:
  """Yields the one-based number and the content of each record in a file.

  Args:
    streams: Decompressed contents of the file, as in `read_record_lines`.
    path: Path of the file, whose name determines the format.

  Raises:
    BadRecordError: If a record cannot be parsed.
    CorpusError: If the file is damaged.
  """
  suffix = record_formats.format_suffix(path)
  parse = _PARSERS.get(suffix, _use_record)
  for number, raw_record in _READERS[suffix](*streams, path):
    record = parse(raw_record, path, number)
    if len(record) >= _NUM_LANGUAGES.get(suffix, 0):
      yield number, record


def _record_text(
  record: Record, form: RecordFormat, path: pathlib.Path, number: int
) -> str:
  """Converts a record to lines of text.

  An empty monolingual record is converted to ''.

  Raises:
    BadRecordError: If a column does not contain text, or if the source or the
      target of a pair is empty.
  """
  if form.pair_fields:
    sides = [
      _column_text(record, side, form, path, number)
      for side in form.pair_fields
    ]
    empty_fields = [
      repr(field)
      for field, side in zip(form.pair_fields, sides, strict=True)
      if not side.strip()
    ]
    if empty_fields:
      raise errors.BadRecordError(
        'Both sentences of a pair must contain text, but a record has no text '
        f'in {" and ".join(empty_fields)}',
        where=errors.line_location(path, number),
        fix=bad_records.HINT,
      )
    return '\t'.join(map(line_splitting.join_lines, sides)) + '\n'
  text = _column_text(record, form.text_field, form, path, number)
  lines = [line for line in line_splitting.split_text(text) if line.strip()]
  if not lines:
    return ''
  if form.record_unit is record_formats.Unit.LINE:
    return ' '.join(map(str.strip, lines)) + '\n'
  return '\n'.join(lines) + '\n\n'


def _column_text(
  record: Record, name: str, form: RecordFormat, path: pathlib.Path, number: int
) -> str:
  """Returns the text in a column, where 'a.b' is the field `b` of `a`.

  Raises:
    BadRecordError: If the column does not contain text.
    TextColumnError: If the column does not exist in the first record.
  """
  value = get_field(record, name)
  if isinstance(value, str) and not _is_encodable(value):
    raise errors.BadRecordError(
      f'The column {name!r} of a record must not contain unpaired surrogates, '
      'because they cannot be encoded in UTF-8',
      got=ascii(value)[:60],
      where=errors.line_location(path, number),
    )
  if not isinstance(value, str):
    has_column = _has_column(record, name)
    is_first = number == 1 and not has_column
    error_class = errors.TextColumnError if is_first else errors.BadRecordError
    raise error_class(
      f'The column {name!r} of a record must contain text',
      got=json.dumps(value, default=repr, ensure_ascii=False)[:60]
      if has_column
      else f'a record with the columns {", ".join(map(str, record))}',
      where=errors.line_location(path, number),
      fix=_suggest_columns(record, form, path)
      + (
        ''
        if is_first
        else ' To drop such records instead, run `xlflax preprocess '
        '--bad_records=drop`.'
      ),
    )
  return value


def _suggest_columns(
  record: Record, form: RecordFormat, path: pathlib.Path
) -> str:
  """Returns a hint with the lines of `corpus.toml` that specify the columns.

  Args:
    record: Record that lacks a column with text.
    form: Current settings for the format of the file's records.
    path: Path of the file.
  """
  texts = {
    str(name): value for name, value in record.items() if isinstance(value, str)
  }
  columns = sorted(texts, key=lambda column: len(texts[column]), reverse=True)
  file = f'the file {record_formats.FILE} in the corpus directory'
  setting = None
  if form.pair_fields:
    codes = record_formats.languages_of_name(path)
    names = [name for name in texts if name in columns[:2]]
    if set(codes) <= set(texts):
      names = list(codes)
    if len(names) == 2:
      setting = f'pair_fields = {names!r}'
  elif columns:
    setting = f'text_field = {columns[0]!r}'
  if setting is None:
    return f'Specify the column in {file} (see docs/data.md).'
  if record_formats.has_corpus_toml(path):
    return (
      f'Specify the column with the text in {file} (see docs/data.md). For '
      f'example, set `{setting}` in the [[records]] table for this file.'
    )
  return (
    f'Specify the column with the text in {file} (see docs/data.md). For '
    f'example, write the line `[[records]]` and, below it, the line `{setting}`.'
  )


def _is_encodable(text: str) -> bool:
  try:
    text.encode('utf-8')
  except UnicodeEncodeError:
    return False
  return True


def get_field(record: Record, name: str) -> Any:
  """Returns the value of a record's column, or None if it does not exist.

  Args:
    record: Record with named columns.
    name: Name of the column. 'a.b' is the field `b` in the object `a`.
  """
  if name in record:
    return record[name]
  first, dot, suffix = name.partition('.')
  inner = record.get(first)
  return (
    get_field(inner, suffix) if dot and isinstance(inner, Mapping) else None
  )


def _has_column(record: Record, name: str) -> bool:
  """Returns whether a record has a column, whose value may be None."""
  if name in record:
    return True
  first, _, suffix = name.partition('.')
  inner = record.get(first)
  return isinstance(inner, Mapping) and _has_column(inner, suffix)


def _passes_filters(
  record: Record, form: RecordFormat, path: pathlib.Path, number: int
) -> bool:
  """Returns whether a record passes all filters of its `RecordFormat`."""
  for name, minimum in form.min_values.items():
    value = get_field(record, name)
    if not isinstance(value, int | float):
      raise errors.BadRecordError(
        f'The column {name!r} of a record must contain a number, because '
        f'{record_formats.FILE} requires a value of at least {minimum}',
        got=repr(value)[:60],
        where=errors.line_location(path, number),
      )
    if not value >= minimum:
      return False
  return all(
    get_field(record, name) == value
    for name, value in form.filter_equals.items()
  )


def _read_jsonl(stream: BinaryIO, path: pathlib.Path):
  lines = line_splitting.read_numbered_lines(stream, path)
  yield from ((number, line) for number, line in lines if line.strip())


def _use_record(record: Record, path: pathlib.Path, number: int) -> Record:
  """Returns an already parsed record unchanged."""
  del path, number
  return record


def _parse_object(line: bytes, path: pathlib.Path, number: int) -> Record:
  line = line.strip()
  try:
    record = json.loads(line)
  except (ValueError, RecursionError) as error:
    value = line_splitting.shorten_line(line)
    if json_errors.is_truncated(error):
      raise errors.BadRecordError(
        'A JSON record is incomplete and was probably truncated',
        got=value,
        where=errors.line_location(path, number),
        fix=bad_records.HINT,
      ) from error
    if isinstance(error, UnicodeDecodeError):
      raise _invalid_utf8_error(error, path, number) from error
    raise errors.BadRecordError(
      'A record is not valid JSON',
      got=f'{value} ({json_errors.describe_error(error)})',
      where=errors.line_location(path, number),
      fix=bad_records.HINT,
    ) from error
  if not isinstance(record, dict):
    raise errors.BadRecordError(
      'A record must be a JSON object, such as {"text": "A sentence."}',
      got=line_splitting.shorten_line(line),
      where=errors.line_location(path, number),
    )
  return record


def _read_parquet(stream: BinaryIO, path: pathlib.Path):
  with _as_corpus_errors(path):
    from pyarrow import parquet  # noqa: PLC0415

    file = parquet.ParquetFile(stream)
    yield from _numbered_rows(file.iter_batches(batch_size=_ROWS_PER_CHUNK))


def _read_arrow(stream: BinaryIO, path: pathlib.Path):
  with _as_corpus_errors(path):
    import pyarrow as pa  # noqa: PLC0415

    is_file = stream.read(6) == b'ARROW1'
    stream.seek(0)
    if is_file:
      file = pa.ipc.open_file(stream)
      batches = map(file.get_batch, range(file.num_record_batches))
    else:
      batches = iter(pa.ipc.open_stream(stream))
    yield from _numbered_rows(
      batch.slice(start, _ROWS_PER_CHUNK)
      for batch in batches
      for start in range(0, batch.num_rows, _ROWS_PER_CHUNK)
    )


def _numbered_rows(batches):
  rows = itertools.chain.from_iterable(batch.to_pylist() for batch in batches)
  yield from enumerate(rows, start=1)


def _read_tar(stream: BinaryIO, path: pathlib.Path):
  with (
    _as_corpus_errors(path),
    tarfile.open(fileobj=stream, mode='r|') as archive,
  ):
    for number, member in enumerate(archive, start=1):
      file = archive.extractfile(member) if member.isfile() else None
      if file is None:
        continue
      if member.name.endswith(('.txt', '.json')):
        yield number, (member.name, file.read())


def _parse_member(
  member: tuple[str, bytes], path: pathlib.Path, number: int
) -> Record:
  """Parses the name and the content of a member of an archive."""
  name, content = member
  if name.endswith('.json'):
    return _parse_object(content, path, number)
  return {'text': _decode(content, path, number)}


def _decode(text: bytes, path: pathlib.Path, number: int) -> str:
  try:
    return text.decode('utf-8')
  except UnicodeDecodeError as error:
    raise _invalid_utf8_error(error, path, number) from error


def _invalid_utf8_error(
  error: UnicodeDecodeError, path: pathlib.Path, number: int
) -> errors.BadRecordError:
  """Returns the error for a record that is not valid UTF-8."""
  return errors.BadRecordError(
    'A record is not valid UTF-8',
    got=f'byte 0x{error.object[error.start]:02x} at offset {error.start}',
    where=errors.line_location(path, number),
    fix=bad_records.HINT,
  )


def _read_tmx(stream: BinaryIO, path: pathlib.Path):
  """Yields records that map the languages in the file name to their text.

  A record lacks the languages in which its translation unit has no text.
  """
  languages = record_formats.languages_of_name(path)
  with _as_corpus_errors(path):
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
          language for language in languages if _is_variety(code, language)
        ]
        if segment is not None and matching_codes:
          segments[max(matching_codes, key=len)] = _segment_text(segment)
      unit.clear()
      yield number, segments


def _segment_text(node) -> str:
  """Returns the text of a TMX segment without its formatting codes.

  Subflows (`sub`) within native codes are part of the text.
  """
  is_code = node.tag in ('bpt', 'ept', 'it', 'ph', 'ut')
  texts = [None if is_code else node.text]
  for child in node:
    texts += [_segment_text(child), None if is_code else child.tail]
  return ''.join(text for text in texts if text)


def _is_variety(code: str, language: str) -> bool:
  """Returns whether a code such as 'en-US' is a variety of a language."""
  code, language = code.lower().replace('-', '_'), language.lower()
  return code == language or code.startswith(language + '_')


def _read_zip(stream: BinaryIO, path: pathlib.Path):
  languages = record_formats.languages_of_name(path)
  with _as_corpus_errors(path), zipfile.ZipFile(stream) as archive:
    members = {
      language: [
        name for name in archive.namelist() if name.endswith(f'.{language}')
      ]
      for language in languages
    }
    if any(len(names) != 1 for names in members.values()):
      endings = ' and '.join(f'.{language}' for language in languages)
      raise errors.CorpusError(
        'A zip archive with sentence pairs must contain exactly one file for '
        f'each language. The names of the files must end in {endings}',
        got=', '.join(archive.namelist()[:6]),
        where=str(path),
      )
    with contextlib.ExitStack() as stack:
      sides = [
        stack.enter_context(archive.open(members[language][0]))
        for language in languages
      ]
      names = [f'{members[language][0]} in {path}' for language in languages]
      yield from _aligned_lines(sides, names, path)


def _read_moses(first: BinaryIO, second: BinaryIO, path: pathlib.Path):
  names = [str(file) for file in record_formats.source_files(path)]
  return _aligned_lines([first, second], names, path)


def _aligned_lines(
  sides: Sequence[Any], names: Sequence[str], path: pathlib.Path
):
  """Yields the two lines with the same number from two aligned files.

  Args:
    sides: Streams of the two files.
    names: Names of the two files, for error messages.
    path: Path of the pair of files, for error messages.

  Raises:
    CorpusError: If the files have different numbers of lines, or if a file with
      lines that end with LF has a lone CR where the other file has none. The CR
      may be part of the text, and all later pairs would be shifted.
  """
  lines_of_sides = [
    line_splitting.read_numbered_lines(side, path) for side in sides
  ]
  endings_of_sides: list[set[bytes]] = [set() for _ in lines_of_sides]
  has_different_endings = False
  for number, numbered in enumerate(
    itertools.zip_longest(*lines_of_sides), start=1
  ):
    if None in numbered:
      num_lines = [
        number - 1 if line is None else number + sum(1 for _ in lines_of_side)
        for line, lines_of_side in zip(numbered, lines_of_sides, strict=True)
      ]
      raise line_splitting.unequal_lines_error(names, num_lines)
    lines = [line for _, line in numbered]
    endings = [line[len(line.rstrip(b'\r\n')) :][-1:] for line in lines]
    has_different_endings |= len({*endings} - {b''}) > 1
    for seen_endings, ending in zip(endings_of_sides, endings, strict=True):
      seen_endings.add(ending)
    if has_different_endings and any(
      {b'\r', b'\n'} <= seen for seen in endings_of_sides
    ):
      raise errors.CorpusError(
        'Two line-aligned files contain carriage returns in different lines, '
        'so the lines cannot be aligned',
        where=errors.line_location(path, number),
        fix='Replace the carriage returns inside lines with spaces.',
      )
    yield number, lines


def _parse_aligned_lines(
  raw_lines: Sequence[bytes], path: pathlib.Path, number: int
) -> Record:
  """Decodes two aligned lines, and returns them by language."""
  texts = [_decode(line, path, number) for line in raw_lines]
  languages = record_formats.languages_of_name(path)
  return dict(zip(languages, texts, strict=True))


def _read_dataset(stream: BinaryIO, path: pathlib.Path):
  """Yields the rows of a Hugging Face dataset."""
  with _as_corpus_errors(path):
    arguments = {'split': 'train'} | tomllib.loads(stream.read().decode())
    yield from enumerate(
      stream_dataset(
        arguments,
        where=str(path),
        fix='Correct the file, or run the command '
        'again. Without network access (or with HF_HUB_OFFLINE), use a local '
        'directory.',
      ),
      start=1,
    )


def stream_dataset(
  arguments: Mapping[str, Any], *, where: str, fix: str
) -> Iterator[Record]:
  """Yields the rows of a Hugging Face dataset in streaming mode.

  Args:
    arguments: Arguments of `datasets.load_dataset`.
    where: Location of the arguments, for error messages.
    fix: Hint for error messages if the dataset cannot be loaded.

  Raises:
    CorpusError: If the library `datasets` is not installed, or if the dataset
      cannot be loaded.
  """
  try:
    import datasets  # noqa: PLC0415
  except ImportError as error:
    raise errors.CorpusError(
      'Hugging Face datasets require the library `datasets`, which is not '
      'installed',
      where=where,
      fix='Run `pip install ".[sources]"` in a checkout of xlflax.',
    ) from error
  try:
    yield from datasets.load_dataset(**arguments, streaming=True)
  except Exception as error:
    raise errors.CorpusError(
      f'The Hugging Face dataset cannot be loaded ({error}). The argument '
      '`path` is required, and the arguments `name`, `data_files`, `split` and '
      '`revision` are optional',
      got=str(dict(arguments)),
      where=where,
      fix=fix,
      status=errors.ExitStatus.FAILURE,
    ) from error


def _read_tf_records(stream: BinaryIO, path: pathlib.Path):
  return _serialized(binary_records.read_tf_records(stream), path)


def _read_array_records(stream: BinaryIO, path: pathlib.Path):
  del stream  # The array_record library opens the file.
  return _serialized(binary_records.read_array_records(path), path)


def _serialized(serialized_records: Iterator[bytes], path: pathlib.Path):
  with _as_corpus_errors(path):
    yield from enumerate(serialized_records, start=1)


def _parse_serialized(
  serialized: bytes, path: pathlib.Path, number: int
) -> Record:
  """Parses a serialized JSON object or `tf.train.Example`."""
  if serialized.startswith(b'{'):
    return _parse_object(serialized, path, number)
  try:
    return binary_records.parse_tf_example(serialized)
  except ValueError as error:
    raise errors.BadRecordError(
      'A record must be a JSON object or a serialized `tf.train.Example`',
      got=line_splitting.shorten_line(serialized),
      where=errors.line_location(path, number),
    ) from error


@contextlib.contextmanager
def _as_corpus_errors(path: pathlib.Path) -> Iterator[None]:
  """Context in which errors of a library are raised as CorpusErrors."""
  try:
    yield
  except ImportError as error:
    raise errors.CorpusError(
      f'Files in {path.suffix} format require the package {error.name}, '
      'which is not installed',
      where=str(path),
      fix='Run `pip install ".[sources]"` in a checkout of xlflax.',
    ) from error
  except (
    ValueError,  # Base class of pyarrow's errors.
    tarfile.TarError,
    zipfile.BadZipFile,
    ElementTree.ParseError,
  ) as error:
    raise errors.CorpusError(
      f'The {path.suffix} file is damaged ({error})',
      where=errors.line_location(path, error.position[0])
      if isinstance(error, ElementTree.ParseError)
      else str(path),
      fix='Download or write the file again.',
    ) from error


_READERS: dict[str, Reader] = {
  '.jsonl': _read_jsonl,
  '.parquet': _read_parquet,
  '.arrow': _read_arrow,
  '.tar': _read_tar,
  '.tmx': _read_tmx,
  '.zip': _read_zip,
  '.moses': _read_moses,
  '.dataset': _read_dataset,
  '.tfrecord': _read_tf_records,
  '.array_record': _read_array_records,
}


_PARSERS: dict[str, Parser] = {
  '.jsonl': _parse_object,
  '.tar': _parse_member,
  '.zip': _parse_aligned_lines,
  '.moses': _parse_aligned_lines,
  '.tfrecord': _parse_serialized,
  '.array_record': _parse_serialized,
}

# Number of languages in each record of formats in which languages may be
# missing.
_NUM_LANGUAGES = {'.tmx': 2}


class Stream(io.RawIOBase):
  """Binary file that reads its content from an iterator of chunks."""

  def __init__(self, chunks: Iterator[bytes]):
    self._chunks = chunks
    self._pending = b''

  def readable(self) -> bool:
    return True

  def readinto(self, buffer) -> int:
    while not self._pending:
      chunk = next(self._chunks, None)
      if chunk is None:
        return 0
      self._pending = chunk
    count = min(len(buffer), len(self._pending))
    buffer[:count] = self._pending[:count]
    self._pending = self._pending[count:]
    return count


buffered = functools.partial(io.BufferedReader, buffer_size=1 << 20)
