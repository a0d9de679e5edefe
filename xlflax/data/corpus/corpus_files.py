"""File names and fingerprints of the text files in a corpus directory."""

import dataclasses
import enum
import functools
import hashlib
import json
import os
import pathlib
import re
import stat
from collections.abc import Iterator, Sequence

import numpy as np

from xlflax.data.corpus import csv_text, record_formats
from xlflax.utils import errors

LANGUAGE_PATTERN = r'[a-z]{2,3}(?:_[A-Za-z0-9]+)*'
LANGUAGE_RULE = (
  'two or three lowercase letters and optional subtags after underscores, such '
  'as en, gsw or zh_Hans (hyphens are reserved for language pairs <l1>-<l2>)'
)


class Kind(enum.Enum):
  """Type of text in a corpus file; each value is the name of its folder."""

  MONOLINGUAL = 'mono'
  PARALLEL = 'parallel'
  DICTIONARY = 'dictionaries'


_NAME_RULES = {
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
    '<l1>-<l2>[.anything].tsv, .jsonl, .tfrecord, .<l1> together with .<l2> '
    '(each also .gz or .zst), .parquet, .arrow, .tmx, .zip, .array_record or '
    '.dataset',
  ),
  Kind.DICTIONARY: (
    re.compile(rf'({LANGUAGE_PATTERN})-({LANGUAGE_PATTERN})\.tsv'),
    '<l1>-<l2>.tsv',
  ),
}
# End of the name of a CSV file, which may be compressed.
_CSV_NAME = re.compile(r'\.csv(\.gz|\.zst|\.xz)?$')


@dataclasses.dataclass(frozen=True, eq=False)
class LineSplits:
  """Assignment of the lines of a file to splits.

  Attributes:
    names: Names of the splits.
    indices: For each nonempty line, or for each pair, the index of its split
      in `names`, uint8 of shape [lines].
  """

  names: tuple[str, ...]
  indices: np.ndarray

  def mask(self, split: str) -> np.ndarray:
    """Returns a mask that marks the lines in a split, bool of shape [lines]."""
    return self.indices == self.names.index(split)


@dataclasses.dataclass(frozen=True)
class TextFile:
  """File in a corpus directory.

  Attributes:
    path: Path of the file.
    kind: Type of text in the file.
    split: Split to which the file belongs.
    languages: Language of the text, or both languages of parallel text.
    line_splits: Assignment of the file's lines to splits. Only the lines of the
      split `split` are read. If None, all lines are read.
    skips_bad_records: Whether lines and records that cannot be used are skipped
      when the file is read. Otherwise, they raise an error.
  """

  path: pathlib.Path
  kind: Kind
  split: str
  languages: tuple[str, ...]
  line_splits: LineSplits | None = None
  skips_bad_records: bool = False


# Larger files than the product of both numbers, 4 MiB, are sampled.
_NUM_SAMPLES = 64
_SAMPLE_BYTES = 1 << 16
_DIGEST_LIMIT = 1 << 56


@dataclasses.dataclass(frozen=True)
class Fingerprint:
  """Fingerprint of a text file: its path, its size and its content.

  A copy with a different modification time has the same fingerprint. An edit
  changes the fingerprint even if it preserves the file's size and modification
  time. If a file is larger than 4 MiB, its content is sampled at 64 positions.

  If a text consists of several files (`record_formats.source_files`), the
  fingerprint covers all of them. If `corpus.toml` describes the format of the
  file's records, the fingerprint also covers this description.

  Attributes:
    path: Path of the file.
    size: Size of the file in bytes.
    content: Digest of the content, or of a sample of the content if the file is
      large. The digest is an integer less than 2^56.
  """

  path: str
  size: int
  content: int


def is_csv(path: pathlib.Path) -> bool:
  """Returns whether a file name has the extension of a CSV file."""
  return _CSV_NAME.search(path.name) is not None


def parse_name(path: pathlib.Path, kind: Kind, split: str) -> TextFile:
  """Parses the language codes in a file name.

  Args:
    path: Path of the file.
    kind: Type of text in the file.
    split: Split to which the file belongs.

  Raises:
    CorpusError: If the folder's naming rule does not permit the name, or if
      both languages are the same.
  """
  pattern, expected = _NAME_RULES[kind]
  match = pattern.fullmatch(path.name)
  if not match and is_csv(path):
    raise errors.CorpusError(
      'A corpus directory must not contain files in the CSV format',
      got=path.name,
      expected=expected,
      where=str(path),
      fix=csv_text.describe_conversion(
        path, num_columns=1 if kind is Kind.MONOLINGUAL else 2
      ),
    )
  if not match:
    raise errors.CorpusError(
      'The name of a file in the corpus directory is not valid. '
      f'Language codes must consist of {LANGUAGE_RULE}',
      got=path.name,
      expected=expected,
      where=str(path),
      fix='Rename the file, or move it to a different directory.',
    )
  languages = match.groups()
  if len(set(languages)) != len(languages):
    raise errors.CorpusError(
      'A language pair must consist of two different languages',
      got=path.name,
      where=str(path),
      fix='Rename the file, or move it to a different directory.',
    )
  return TextFile(path, kind, split, languages)


def check_language(code: str) -> None:
  """Checks that a language code can be part of a file name.

  Raises:
    CorpusError: If the language code has an invalid format.
  """
  if not re.fullmatch(LANGUAGE_PATTERN, code):
    raise errors.CorpusError(
      'The language code does not have a valid format',
      got=code,
      expected=LANGUAGE_RULE,
    )


def drop_second_files(paths: Sequence[pathlib.Path]) -> Iterator[pathlib.Path]:
  """Yields all paths except the second file of each line-aligned pair."""
  second_files = {
    second_file
    for path in paths
    for second_file in record_formats.source_files(path)[1:]
  }
  return (path for path in paths if path not in second_files)


def fingerprint_file(path, root=None) -> Fingerprint:
  """Returns the fingerprint of a text file.

  Args:
    path: Path of the file.
    root: Directory to which the path stored in the fingerprint is relative. If
      None, the path is absolute.
  """
  source_files = record_formats.source_files(pathlib.Path(path))
  states = [os.stat(source_file) for source_file in source_files]
  name = os.path.relpath(path, root) if root else os.path.abspath(path)
  content = 0
  for source_file, state in zip(source_files, states, strict=True):
    digest = _digest_entry(os.path.abspath(source_file), state)
    content = content * 31 % _DIGEST_LIMIT ^ digest
  if settings_digest := record_formats.digest_of_settings(pathlib.Path(path)):
    content ^= int(settings_digest[-12:], 16)
  size = sum(state.st_size for state in states)
  return Fingerprint(name.replace(os.sep, '/'), size, content)


def _digest_entry(path: str, state: os.stat_result) -> int:
  """Returns a digest of a file, or of the names and files of a directory."""
  if not stat.S_ISDIR(state.st_mode):
    version = (state.st_ino, state.st_mtime_ns, state.st_ctime_ns)
    return _sample_digest(path, state.st_size, version)
  digest = hashlib.blake2b(digest_size=7)
  for folder, _, names in sorted(os.walk(path)):
    for name in sorted(names):
      member = os.path.join(folder, name)
      member_state = os.stat(member)
      entry = [
        os.path.relpath(member, path),
        member_state.st_size,
        _digest_entry(member, member_state),
      ]
      digest.update(json.dumps(entry).encode())
  return int.from_bytes(digest.digest(), 'big')


@functools.lru_cache(maxsize=1 << 16)
def _sample_digest(path: str, size: int, version: tuple[int, ...]) -> int:
  """Returns a digest of the content of a file, or of a sample of it.

  Args:
    path: Path of the file.
    size: Size of the file in bytes.
    version: Inode number, modification time and status-change time of the file.
      They are part of the cache key, so that the digest is computed again if
      the file has changed.
  """
  del version
  digest = hashlib.blake2b(digest_size=7)
  with open(path, 'rb') as file:
    if size <= _NUM_SAMPLES * _SAMPLE_BYTES:
      digest.update(file.read())
    else:
      for i in range(_NUM_SAMPLES):
        file.seek(i * (size - _SAMPLE_BYTES) // (_NUM_SAMPLES - 1))
        digest.update(file.read(_SAMPLE_BYTES))
  return int.from_bytes(digest.digest(), 'big')


def is_sequential(path: pathlib.Path) -> bool:
  """Returns whether a file must be read sequentially from its beginning."""
  return (
    path.suffix in record_formats.COMPRESSIONS
    or record_formats.is_records(path)
  )
