"""Names of the text files of a corpus directory, and their fingerprints."""

import dataclasses
import enum
import os
import pathlib
import re

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
      r'\.(?:(?:txt|jsonl)(?:\.gz|\.zst)?|parquet|arrow|tar)'
    ),
    '<language>[.anything].txt, .jsonl (each also .gz or .zst), .parquet, '
    '.arrow or .tar',
  ),
  Kind.PARALLEL: (
    re.compile(
      rf'({LANGUAGE_PATTERN})-({LANGUAGE_PATTERN})(?:\..+)?'
      r'\.(?:(?:tsv|jsonl)(?:\.gz|\.zst)?|parquet|arrow|tmx|zip)'
    ),
    '<l1>-<l2>[.anything].tsv, .jsonl (each also .gz or .zst), .parquet, '
    '.arrow, .tmx or .zip',
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


def fingerprint(path, root=None) -> Fingerprint:
  """The fingerprint of a file, named relative to `root` (None: absolute)."""
  status = os.stat(path)
  name = os.path.relpath(path, root) if root else os.path.abspath(path)
  modified = status.st_mtime_ns
  if form := forms.digest(pathlib.Path(path)):
    modified ^= int(form[-12:], 16)
  return Fingerprint(name.replace(os.sep, '/'), status.st_size, modified)


def is_sequential(path: pathlib.Path) -> bool:
  """Whether a file can only be read from its beginning."""
  return path.suffix in forms.PACKED or forms.is_records(path)
