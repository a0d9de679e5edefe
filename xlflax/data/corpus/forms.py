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

from xlflax.foundation import errors, suggestions
from xlflax.storage import digests

FILE = 'corpus.toml'
RECORDS = ('.jsonl', '.parquet', '.arrow', '.tar', '.tmx', '.zip')
PACKED = ('.gz', '.zst')


class Unit(enum.Enum):
  """What a record of monolingual text is.

  DOCUMENT: its lines are sentences or paragraphs. LINE: one of them; all
  records of a file are one document.
  """

  DOCUMENT = 'document'
  LINE = 'line'


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
  sides: Sequence[str] = ()
  unit: Unit = Unit.DOCUMENT
  at_least: Mapping[str, float] = dataclasses.field(default_factory=dict)
  equal: Mapping[str, Any] = dataclasses.field(default_factory=dict)


_KINDS = {
  'files': (str, 'a pattern of names, such as mono/en*'),
  'text': (str, 'the name of a column'),
  'sides': (list, 'the names of two columns'),
  'unit': (str, ' or '.join(unit.value for unit in Unit)),
  'at_least': (dict, '{ column = number }'),
  'equal': (dict, '{ column = value }'),
}


def suffix(path: pathlib.Path) -> str:
  """The suffix that names the form: '.jsonl' of 'en.jsonl.zst'."""
  name = path.with_suffix('') if path.suffix in PACKED else path
  return name.suffix


def is_records(path: pathlib.Path) -> bool:
  """Whether a file holds records instead of lines."""
  return suffix(path) in RECORDS


def as_lines(path: pathlib.Path, codes: Sequence[str]) -> pathlib.Path:
  """The name of a file of the same text as lines.

  Before: `mono/en.jsonl.zst`; after: `mono/en.jsonl.txt.zst`.
  """
  if not is_records(path):
    return path
  packed = path.suffix if path.suffix in PACKED else ''
  ending = '.txt' if len(codes) == 1 else '.tsv'
  return path.with_name(path.name.removesuffix(packed) + ending + packed)


def languages(path: pathlib.Path) -> tuple[str, ...]:
  """Of a file's name: ('en', 'fr') of 'en-fr.opus.zip'."""
  return tuple(path.name.partition('.')[0].split('-'))


def of(path: pathlib.Path) -> Form:
  """How a file of records is read, by the `corpus.toml` above it.

  Raises:
    CorpusError: that file is not as it must be.
  """
  root, name = _root(path)
  found = next(
    (form for form in _read(root) if fnmatch.fnmatch(name, form.files)), Form()
  )
  codes = languages(path)
  if len(codes) == 1:
    return dataclasses.replace(found, sides=())
  if suffix(path) in ('.tmx', '.zip'):
    return dataclasses.replace(found, sides=codes)
  sides = found.sides or [f'translation.{code}' for code in codes]
  return dataclasses.replace(found, sides=tuple(sides))


def digest(path: pathlib.Path) -> str:
  """Of what `corpus.toml` says on a file; '' where there is none."""
  if not is_records(path) or not (_root(path)[0] / FILE).exists():
    return ''
  form = dataclasses.asdict(of(path)) | {'unit': of(path).unit.value}
  return digests.of_json([form])


def check(directory: pathlib.Path) -> None:
  """Raises a CorpusError if a corpus directory has a faulty `corpus.toml`."""
  _read(directory)


def _root(path: pathlib.Path) -> tuple[pathlib.Path, str]:
  """The corpus directory of a file, and its name below it."""
  root = path.parents[1]
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
    found = tomllib.loads(path.read_text(encoding='utf-8'))
  except ValueError as error:
    raise _wrong(path, f'is not TOML ({error})') from error
  entries = found.pop('records', [])
  if found or not isinstance(entries, list):
    raise _wrong(
      path, 'has an unknown name', ', '.join(found) or None, '[[records]]'
    )
  return tuple(_form(entry, path) for entry in entries)


def _form(entry: dict, path: pathlib.Path) -> Form:
  for name, value in entry.items():
    if name not in _KINDS:
      raise _wrong(
        path,
        'has an unknown name',
        name,
        ', '.join(_KINDS),
        suggestions.did_you_mean(name, _KINDS),
      )
    kind, expected = _KINDS[name]
    if not isinstance(value, kind) or not _fits(name, value):
      raise _wrong(path, f'has another value of {name}', repr(value), expected)
  unit = Unit(entry.get('unit', Unit.DOCUMENT.value))
  return Form(**{**entry, 'unit': unit})


def _fits(name: str, value: Any) -> bool:
  if name == 'unit':
    return value in [unit.value for unit in Unit]
  if name == 'sides':
    return len(value) == 2 and all(isinstance(one, str) for one in value)
  if name == 'at_least':
    return all(isinstance(one, int | float) for one in value.values())
  return True


def _wrong(path, what: str, got=None, expected=None, fix=None):
  return errors.CorpusError(
    f'{FILE} {what}', got=got, expected=expected, where=str(path), fix=fix
  )
