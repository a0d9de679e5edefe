"""Names of the text files of a corpus directory, and their fingerprints."""

import dataclasses
import enum
import functools
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Iterator, Sequence

from xlflax.data.corpus import record_formats
from xlflax.utils import errors

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


# Files up to 4 MiB are read completely.
_NUM_SAMPLES = 64
_SAMPLE_BYTES = 1 << 16
_DIGEST_LIMIT = 1 << 56


@dataclasses.dataclass(frozen=True)
class Fingerprint:
  """The identity of a file of text: its path, its size and its content.

  A copy with another time of modification has the same fingerprint; an edit that
  keeps size and time has another one. The content of files above 4 MiB is
  sampled at 64 places.

  If a file consists of several (`record_formats.source_files`), the fingerprint covers all of
  them. For a file of records that `corpus.toml` describes, it also covers the
  description.

  Attributes:
    path: Path of the file.
    size: Number of bytes.
    content: Digest of (a sample of) the content, below 2^56.
  """

  path: str
  size: int
  content: int


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
  """Yields the paths that are not the second file of another (`record_formats.source_files`)."""
  seconds = {
    part for path in paths for part in record_formats.source_files(path)[1:]
  }
  return (path for path in paths if path not in seconds)


def fingerprint_file(path, root=None) -> Fingerprint:
  """The fingerprint of a file, named relative to `root` (None: absolute)."""
  parts = record_formats.source_files(pathlib.Path(path))
  states = [os.stat(part) for part in parts]
  name = os.path.relpath(path, root) if root else os.path.abspath(path)
  content = 0
  for part, state in zip(parts, states, strict=True):
    digest = _sample_digest(
      os.path.abspath(part),
      state.st_size,
      (state.st_ino, state.st_mtime_ns, state.st_ctime_ns),
    )
    content = content * 31 % _DIGEST_LIMIT ^ digest
  if form := record_formats.digest_of_settings(pathlib.Path(path)):
    content ^= int(form[-12:], 16)
  size = sum(state.st_size for state in states)
  return Fingerprint(name.replace(os.sep, '/'), size, content)


@functools.lru_cache(maxsize=1 << 16)
def _sample_digest(path: str, size: int, version: tuple[int, ...]) -> int:
  """Returns a digest of the content of a file, or of a sample of it.

  Args:
    path: Path of the file, or of a directory, whose names and sizes count.
    size: Number of bytes.
    version: Inode and times, so that the digest of a file that was written
      since is computed again.
  """
  del version
  digest = hashlib.blake2b(digest_size=7)
  if os.path.isdir(path):
    for folder, _, names in sorted(os.walk(path)):
      for name in sorted(names):
        member = os.path.join(folder, name)
        entry = [os.path.relpath(member, path), os.stat(member).st_size]
        digest.update(json.dumps(entry).encode())
    return int.from_bytes(digest.digest(), 'big')
  with open(path, 'rb') as file:
    if size <= _NUM_SAMPLES * _SAMPLE_BYTES:
      digest.update(file.read())
    else:
      for i in range(_NUM_SAMPLES):
        file.seek(i * (size - _SAMPLE_BYTES) // (_NUM_SAMPLES - 1))
        digest.update(file.read(_SAMPLE_BYTES))
  return int.from_bytes(digest.digest(), 'big')


def is_sequential(path: pathlib.Path) -> bool:
  """Whether a file can only be read from its beginning."""
  return path.suffix in record_formats.PACKED or record_formats.is_records(path)
