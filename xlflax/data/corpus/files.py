"""Names of the text files of a corpus directory, and their fingerprints."""

import dataclasses
import enum
import os
import pathlib
import re
from collections.abc import Iterator, Sequence

from xlflax.data.corpus import forms
from xlflax.foundation import errors

LANGUAGE_PATTERN = r'[a-z]{2,3}(?:_[A-Za-z0-9]+)*'
LANGUAGE_RULE = (
  'two or three small letters, then subtags after underscores, such as en, '
  'gsw, zh_Hans (a hyphen would clash with the pair names <l1>-<l2>)'
)


class Kind(enum.Enum):
  """What a file of a corpus directory holds; the value is its folder."""

  MONOLINGUAL = 'mono'
  PARALLEL = 'parallel'
  DICTIONARY = 'dictionaries'


_NAMES = {
  Kind.MONOLINGUAL: (
    re.compile(
      rf'({LANGUAGE_PATTERN})(?:\..+)?'
      r'\.(?:(?:txt|jsonl|tfrecord)(?:\.gz|\.zst)?|parquet|arrow|tar'
      r'|array_record|dataset)'
    ),
    '<language>[.anything].txt, .jsonl, .tfrecord (each also .gz or .zst), '
    '.parquet, .arrow, .tar, .array_record or .dataset',
  ),
  Kind.PARALLEL: (
    re.compile(
      rf'({LANGUAGE_PATTERN})-({LANGUAGE_PATTERN})(?:\..+)?'
      r'\.(?:(?:tsv|jsonl|tfrecord|\1)(?:\.gz|\.zst)?|parquet|arrow|tmx|zip'
      r'|array_record|dataset)'
    ),
    '<l1>-<l2>[.anything].tsv, .jsonl, .tfrecord, .<l1> beside .<l2> (each '
    'also .gz or .zst), .parquet, .arrow, .tmx, .zip, .array_record or '
    '.dataset',
  ),
  Kind.DICTIONARY: (
    re.compile(rf'({LANGUAGE_PATTERN})-({LANGUAGE_PATTERN})\.tsv'),
    '<l1>-<l2>.tsv',
  ),
}


@dataclasses.dataclass(frozen=True)
class TextFile:
  """One file: its path, kind, split and the language or the two languages."""

  path: pathlib.Path
  kind: Kind
  split: str
  languages: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Fingerprint:
  """What tells that a file changed: path, bytes, time of modification (ns).

  Of a file that is several (`forms.parts`), the bytes of all and the last time.

  Of a file of records for which there is a `corpus.toml`, the third number
  changes with what that says on it, too.
  """

  path: str
  size: int
  modified: int


def parse_name(path: pathlib.Path, kind: Kind, split: str) -> TextFile:
  """Reads the languages off a file name.

  Raises:
    CorpusError: the name does not fit the folder, or both languages are one.
  """
  pattern, expected = _NAMES[kind]
  match = pattern.fullmatch(path.name)
  if not match:
    raise errors.CorpusError(
      'Unknown file name in a corpus directory',
      got=path.name,
      expected=f'{expected}; a language code is {LANGUAGE_RULE}',
      where=str(path),
      fix='rename the file or move it elsewhere',
    )
  languages = match.groups()
  if len(set(languages)) != len(languages):
    raise errors.CorpusError(
      'A pair of one language with itself',
      got=path.name,
      expected='two different languages',
      where=str(path),
    )
  return TextFile(path, kind, split, languages)


def check_language(code: str) -> None:
  """Checks that a language code can be part of a file name.

  Raises:
    CorpusError: If the code does not follow `LANGUAGE_RULE`.
  """
  if not re.fullmatch(LANGUAGE_PATTERN, code):
    raise errors.CorpusError(
      'Not a language code', got=code, expected=LANGUAGE_RULE
    )


def without_seconds(paths: Sequence[pathlib.Path]) -> Iterator[pathlib.Path]:
  """Yields the paths that are not the second file of another (`forms.parts`)."""
  seconds = {part for path in paths for part in forms.parts(path)[1:]}
  return (path for path in paths if path not in seconds)


def fingerprint(path, root=None) -> Fingerprint:
  """The fingerprint of a file, named relative to `root` (None: absolute)."""
  found = [os.stat(part) for part in forms.parts(pathlib.Path(path))]
  name = os.path.relpath(path, root) if root else os.path.abspath(path)
  modified = max(status.st_mtime_ns for status in found)
  if form := forms.digest(pathlib.Path(path)):
    modified ^= int(form[-12:], 16)
  size = sum(status.st_size for status in found)
  return Fingerprint(name.replace(os.sep, '/'), size, modified)


def is_sequential(path: pathlib.Path) -> bool:
  """Whether a file can only be read from its beginning."""
  return path.suffix in forms.PACKED or forms.is_records(path)
