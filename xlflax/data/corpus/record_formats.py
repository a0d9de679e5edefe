"""Formats of corpus files with records, as configured in `corpus.toml`.

```
[[records]]
files = 'mono/en*'          # names relative to the corpus directory; the first
text_field = 'content'      #   entry that matches a file applies to it
record_unit = 'line'
min_values = { score = 0.5 }
filter_equals = { lang = 'en' }

[[records]]
files = 'parallel/*'
pair_fields = ['translation.en', 'translation.fr']
```
"""

import dataclasses
import enum
import fnmatch
import functools
import pathlib
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.storage import checksums
from xlflax.utils import errors, line_splitting, validation

FILE = 'corpus.toml'
_MOSES = '.moses'
RECORDS = frozenset(
  {
    '.jsonl',
    '.parquet',
    '.arrow',
    '.tar',
    '.tmx',
    '.zip',
    '.dataset',
    '.tfrecord',
    '.array_record',
    _MOSES,
  }
)
COMPRESSIONS = ('.gz', '.zst')


class Unit(enum.Enum):
  """Unit of text in a monolingual record: a document or a line.

  DOCUMENT: The record is a document, and its lines are sentences or paragraphs.
  LINE: The record is one sentence or paragraph, and all records in a file form
  one document.
  """

  DOCUMENT = 'document'
  LINE = 'line'


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordFormat:
  """Settings for converting the records in a file to text.

  Attributes:
    files: Pattern that matches file names relative to the corpus directory.
    text_field: Column that contains monolingual text. 'a.b' is the field `b` in
      the object `a`.
    pair_fields: Columns that contain the two sentences of a pair, in the order
      of the languages in the file name. If None, the columns are named
      `translation.<language>`. TMX files and archives have no columns.
    record_unit: Unit of text that a record contains, such as a document or a
      line.
    min_values: Mapping from columns to minimum values. Records with a smaller
      value are dropped.
    filter_equals: Mapping from columns to required values. Records with a
      different value are dropped.
  """

  files: str = '*'
  text_field: str = 'text'
  pair_fields: tuple[str, str] | None = None
  record_unit: Unit = Unit.DOCUMENT
  min_values: Mapping[str, validation.FiniteFloat] = dataclasses.field(
    default_factory=dict
  )
  filter_equals: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def format_suffix(path: pathlib.Path) -> str:
  """Returns the suffix of a file's format: '.jsonl' for 'en.jsonl.zst'.

  The format of 'en-fr.news.en', the first of two line-aligned files, is
  '.moses'.
  """
  name = path.with_suffix('') if path.suffix in COMPRESSIONS else path
  first, *other_languages = languages_of_name(path)
  return (
    _MOSES if other_languages and name.suffix == f'.{first}' else name.suffix
  )


def source_files(path: pathlib.Path) -> list[pathlib.Path]:
  """Returns the path of a corpus file, or both paths in the Moses format.

  The Moses format consists of two files. All other formats consist of one file.
  """
  if format_suffix(path) != _MOSES:
    return [path]
  first, second = languages_of_name(path)
  stem, _, compression = path.name.rpartition(f'.{first}')
  return [path, path.with_name(f'{stem}.{second}{compression}')]


def is_records(path: pathlib.Path) -> bool:
  """Returns whether a file contains records, such as JSON, instead of lines."""
  return format_suffix(path) in RECORDS


def text_file_path(path: pathlib.Path, codes: Sequence[str]) -> pathlib.Path:
  """Returns the path at which a file's text is stored as plain lines.

  For example, `mono/en.jsonl.zst` becomes `mono/en.jsonl.txt.zst`.

  Args:
    path: Path of a corpus file, which contains lines or records.
    codes: Language of the text, or both languages of parallel text.
  """
  if not is_records(path):
    return path
  compression = path.suffix if path.suffix in COMPRESSIONS else ''
  extension = '.txt' if len(codes) == 1 else '.tsv'
  return path.with_name(
    path.name.removesuffix(compression) + extension + compression
  )


def languages_of_name(path: pathlib.Path) -> tuple[str, ...]:
  """Returns a file name's languages: ('en', 'fr') for 'en-fr.opus.zip'."""
  return tuple(path.name.partition('.')[0].split('-'))


def find_format(path: pathlib.Path) -> RecordFormat:
  """Returns the record format that `corpus.toml` specifies for a file.

  Raises:
    CorpusError: If `corpus.toml` is invalid.
  """
  root, name = _split_root(path)
  form = next(
    (form for form in _read_toml(root) if fnmatch.fnmatch(name, form.files)),
    RecordFormat(),
  )
  codes = languages_of_name(path)
  sides: Any = form.pair_fields or tuple(
    f'translation.{code}' for code in codes
  )
  if format_suffix(path) in ('.tmx', '.zip', _MOSES):
    sides = codes
  return dataclasses.replace(
    form, pair_fields=sides if len(codes) > 1 else None
  )


def digest_of_settings(path: pathlib.Path) -> str:
  """Returns a digest of a file's record settings in `corpus.toml`.

  The digest is '' if `corpus.toml` does not exist or if the file contains lines
  rather than records.
  """
  if not is_records(path) or not has_corpus_toml(path):
    return ''
  form = dataclasses.asdict(find_format(path)) | {
    'record_unit': find_format(path).record_unit.value
  }
  return checksums.digest_json([form])


def has_corpus_toml(path: pathlib.Path) -> bool:
  """Returns whether the corpus directory of a file contains `corpus.toml`."""
  return (_split_root(path)[0] / FILE).exists()


def check_corpus_toml(directory: pathlib.Path) -> None:
  """Raises a CorpusError if a directory's `corpus.toml` is invalid."""
  _read_toml(directory)


def _split_root(path: pathlib.Path) -> tuple[pathlib.Path, str]:
  """Returns the corpus directory of a file, and the name relative to it."""
  root = path.parent.parent
  if root.name in ('valid', 'test') and not (root / FILE).exists():
    root = root.parent
  return root, path.relative_to(root).as_posix()


def _read_toml(root: pathlib.Path) -> tuple[RecordFormat, ...]:
  path = root / FILE
  try:
    text = path.read_bytes()
  except FileNotFoundError:
    return ()
  return _parse_toml(path, text)


@functools.lru_cache(maxsize=64)
def _parse_toml(path: pathlib.Path, text: bytes) -> tuple[RecordFormat, ...]:
  """Parses the content of a `corpus.toml` file."""
  try:
    content = tomllib.loads(text.removeprefix(line_splitting.BOM).decode())
  except ValueError as error:
    raise _invalid_toml(
      path, f'The file {FILE} is not valid TOML ({error})'
    ) from error
  entries = content.pop('records', [])
  if content or not isinstance(entries, list):
    raise _invalid_toml(
      path,
      f'The file {FILE} must contain only [[records]] tables',
      got=', '.join(content) or repr(entries),
      fix=_suggest_records_table(content),
    )
  try:
    return tuple(RecordFormat(**entry) for entry in entries)
  except errors.ConfigError as error:
    raise errors.CorpusError(
      error.what.replace('RecordFormat', '[[records]]'),
      got=error.got,
      expected=error.expected,
      where=str(path),
      fix=error.fix,
    ) from error


def _suggest_records_table(content: Mapping[str, Any]) -> str | None:
  """Returns a hint for settings that are not in a [[records]] table.

  Args:
    content: Content of `corpus.toml` other than its [[records]] tables.
  """
  if not content:
    return 'Write [[records]] with two brackets on each side.'
  if any(isinstance(value, dict | list) for value in content.values()):
    return None
  fields = {field.name for field in dataclasses.fields(RecordFormat)}
  if not fields.isdisjoint(content):
    return 'Insert the line `[[records]]` above these keys.'
  return (
    'Put the keys below the line `[[records]]`. The column with the text is '
    "specified with `text_field = 'COLUMN'`, and the columns of parallel text "
    "with `pair_fields = ['SOURCE', 'TARGET']`."
  )


def _invalid_toml(
  path: pathlib.Path,
  problem: str,
  got: str | None = None,
  fix: str | None = None,
) -> errors.CorpusError:
  return errors.CorpusError(
    problem,
    got=got,
    where=str(path),
    fix=fix
    or 'Specify the settings in [[records]] tables with keys such as '
    '`text_field` and `pair_fields`.',
  )
