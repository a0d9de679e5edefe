"""Forms of text files, and `corpus.toml`: where records have their text.

```
[[records]]
files = 'mono/en*'          # names below the corpus directory; the first entry
text = 'content'            #   that fits a file holds for it
unit = 'line'
at_least = { score = 0.5 }
equal = { lang = 'en' }

[[records]]
files = 'parallel/*'
sides = ['translation.en', 'translation.fr']
```
"""

import dataclasses
import enum
import fnmatch
import functools
import os
import pathlib
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.storage import checksums
from xlflax.utils import errors, validation

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
PACKED = ('.gz', '.zst')


class Unit(enum.Enum):
  """What a record of monolingual text is.

  DOCUMENT: its lines are sentences or paragraphs. LINE: one of them; all
  records of a file are one document.
  """

  DOCUMENT = 'document'
  LINE = 'line'


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Form:
  """How text is read from the records of a file.

  Attributes:
    files: pattern of names below the corpus directory.
    text: column of monolingual text; 'a.b' is `b` of the object `a`.
    sides: columns of the two sides of pairs, in the order of the file's name;
      without them `translation.<language>`. TMX and archives have no columns.
    unit: what a record is.
    at_least: column -> number; records with less are left out.
    equal: column -> value; records with another are left out.
  """

  files: str = '*'
  text: str = 'text'
  sides: tuple[str, str] | None = None
  unit: Unit = Unit.DOCUMENT
  at_least: Mapping[str, validation.FiniteFloat] = dataclasses.field(
    default_factory=dict
  )
  equal: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def format_suffix(path: pathlib.Path) -> str:
  """The suffix that names the form: '.jsonl' of 'en.jsonl.zst'.

  It is '.moses' of 'en-fr.news.en', the first of two files that are aligned.
  """
  name = path.with_suffix('') if path.suffix in PACKED else path
  first, *other_languages = languages_of_name(path)
  return (
    _MOSES if other_languages and name.suffix == f'.{first}' else name.suffix
  )


def source_files(path: pathlib.Path) -> list[pathlib.Path]:
  """The files that the text of a file follows from, itself first.

  Two aligned files are several, all others are one.
  """
  if format_suffix(path) != _MOSES:
    return [path]
  first, second = languages_of_name(path)
  head, _, packed = path.name.rpartition(f'.{first}')
  return [path, path.with_name(f'{head}.{second}{packed}')]


def is_records(path: pathlib.Path) -> bool:
  """Whether a file holds records instead of lines."""
  return format_suffix(path) in RECORDS


def as_lines(path: pathlib.Path, codes: Sequence[str]) -> pathlib.Path:
  """The name of a file of the same text as lines.

  Before: `mono/en.jsonl.zst`; after: `mono/en.jsonl.txt.zst`.
  """
  if not is_records(path):
    return path
  packed = path.suffix if path.suffix in PACKED else ''
  ending = '.txt' if len(codes) == 1 else '.tsv'
  return path.with_name(path.name.removesuffix(packed) + ending + packed)


def languages_of_name(path: pathlib.Path) -> tuple[str, ...]:
  """Of a file's name: ('en', 'fr') of 'en-fr.opus.zip'."""
  return tuple(path.name.partition('.')[0].split('-'))


def find_format(path: pathlib.Path) -> Form:
  """How a file of records is read, by the `corpus.toml` above it.

  Raises:
    CorpusError: that file is not as it must be.
  """
  root, name = _root(path)
  form = next(
    (form for form in _read(root) if fnmatch.fnmatch(name, form.files)), Form()
  )
  codes = languages_of_name(path)
  sides: Any = form.sides or tuple(f'translation.{code}' for code in codes)
  if format_suffix(path) in ('.tmx', '.zip', _MOSES):
    sides = codes
  return dataclasses.replace(form, sides=sides if len(codes) > 1 else None)


def digest_of_settings(path: pathlib.Path) -> str:
  """Of what `corpus.toml` says on a file; '' where there is none."""
  if not is_records(path) or not (_root(path)[0] / FILE).exists():
    return ''
  form = dataclasses.asdict(find_format(path)) | {
    'unit': find_format(path).unit.value
  }
  return checksums.digest_json([form])


def check_corpus_toml(directory: pathlib.Path) -> None:
  """Raises a CorpusError if a corpus directory has a faulty `corpus.toml`."""
  _read(directory)


def _root(path: pathlib.Path) -> tuple[pathlib.Path, str]:
  """The corpus directory of a file, and its name below it."""
  root = path.parent.parent
  if root.name in ('valid', 'test') and not (root / FILE).exists():
    root = root.parent
  return root, path.relative_to(root).as_posix()


def _read(root: pathlib.Path) -> tuple[Form, ...]:
  path = root / FILE
  try:
    status = os.stat(path)
  except FileNotFoundError:
    return ()
  return _parse(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=64)
def _parse(path: pathlib.Path, modified: int, size: int) -> tuple[Form, ...]:
  del modified, size  # A changed file is another key.
  try:
    content = tomllib.loads(path.read_text(encoding='utf-8'))
  except ValueError as error:
    raise _wrong(path, f'is not TOML ({error})') from error
  entries = content.pop('records', [])
  if content or not isinstance(entries, list):
    raise _wrong(path, f'has no [[records]], or more: {", ".join(content)}')
  try:
    return tuple(Form(**entry) for entry in entries)
  except errors.ConfigError as error:
    raise errors.CorpusError(
      error.what.replace('Form', '[[records]]'),
      got=error.got,
      expected=error.expected,
      where=str(path),
      fix=error.fix,
    ) from error


def _wrong(path: pathlib.Path, what: str) -> errors.CorpusError:
  return errors.CorpusError(
    f'{FILE} {what}',
    expected='[[records]], and below it text = …, sides = …',
    where=str(path),
  )
