"""Exact and fuzzy deduplication of the lines in a corpus.

Exact duplicates have the same hash of their letters and digits. Near-duplicates
are found by MinHash and banding (Broder, "On the resemblance and containment of
documents", 1997; Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets",
section 3.4): The signature of a line's character n-grams is divided into b
bands of r values, and two lines are near-duplicates if they have a band in
common. Lines whose n-grams have a Jaccard similarity s are near-duplicates with
probability 1 - (1 - s^r)^b. Signatures are computed by the package rensa (extra
`web`).
"""

import dataclasses
import enum
import hashlib
import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from xlflax.data.corpus import corpus_directory, text_similarity
from xlflax.data.corpus.corpus_directory import TEST, TRAIN, VALIDATION, Corpus
from xlflax.data.corpus.corpus_files import Kind, TextFile
from xlflax.data.preprocessing import text_processing
from xlflax.data.sampling import hashing
from xlflax.utils import progress_reporting, user_modules, validation

# Held-out text precedes training text, so that duplicates are removed from the
# training text.
_SPLIT_ORDER = (TEST, VALIDATION, TRAIN)
_LINES_PER_BLOCK = 4096


class DeduplicationMode(enum.Enum):
  """Type of duplicates that are removed.

  NONE: No lines are removed. EXACT: Lines that equal another line are removed.
  FUZZY: Near-duplicates of another line are removed.
  """

  NONE = 'none'
  EXACT = 'exact'
  FUZZY = 'fuzzy'


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Deduplication:
  """Settings for deduplication.

  Attributes:
    mode: Type of duplicates that are removed: none, exact or near-duplicates.
    num_bands: Number of bands b in the MinHash signature of a line.
    rows_per_band: Number of hash values r in each band of a signature.
    ngram_size: Length n of the character n-grams.
  """

  mode: DeduplicationMode = DeduplicationMode.NONE
  num_bands: validation.PositiveInt = 16
  rows_per_band: validation.PositiveInt = 8
  ngram_size: validation.PositiveInt = 5

  def probability(self, similarity: float) -> float:
    """Returns the probability that two lines are considered near-duplicates.

    Args:
      similarity: Jaccard similarity of the two lines' n-grams.
    """
    return 1 - (1 - similarity**self.rows_per_band) ** self.num_bands


class DuplicateLines(NamedTuple):
  """Lines to drop in each file of a corpus, by reason.

  The keys are file paths relative to the corpus directory. The values are the
  sorted zero-based indices of the lines to drop, int64 of shape [lines]. Lines
  without text are not counted. A line is listed for one reason only.

  Attributes:
    repeated: Lines that are duplicates of an earlier line, but not of held-out
      text.
    held_out: Training lines that are duplicates of held-out text, and training
      pairs of which at least one text is a duplicate of held-out text.
  """

  repeated: dict[str, np.ndarray]
  held_out: dict[str, np.ndarray]


def find_duplicates(
  corpus: Corpus, deduplication: Deduplication
) -> DuplicateLines:
  """Finds the duplicate lines to drop in each file of a corpus.

  The first of several duplicates is kept, where held-out text precedes training
  text. Source and target of a pair are compared together. In addition, a
  training pair is dropped if its source or target is a duplicate of held-out
  text, and a training line is dropped if it is a duplicate of the source or
  target of a held-out pair. Therefore, no training text is a near-duplicate of
  held-out text in its language.

  Args:
    corpus: Corpus whose lines are compared.
    deduplication: Settings for deduplication.
  """
  duplicates = DuplicateLines(repeated={}, held_out={})
  if deduplication.mode is DeduplicationMode.NONE:
    return duplicates
  for files, held_out_files in _file_groups(corpus):
    _find_duplicates_in_group(files, held_out_files, deduplication, duplicates)
  return duplicates


def mask_first_occurrences(keys: np.ndarray) -> np.ndarray:
  """Returns a mask that marks the first occurrence of each key.

  For example, for the keys `5 7 5 5 9`, the mask is True at the first, second
  and last key.

  Args:
    keys: Hash keys of texts, uint64 of shape [n].

  Returns:
    The mask, bool of shape [n].
  """
  is_first = np.zeros(keys.size, bool)
  is_first[np.unique(keys, return_index=True)[1]] = True
  return is_first


def band_keys(texts: Iterable[str], deduplication: Deduplication) -> np.ndarray:
  """Returns MinHash keys of each text. Near duplicates usually share a key.

  There is one key for each band of a text's MinHash signature. Equal texts have
  equal keys. For exact deduplication, there is one band.

  Args:
    texts: Texts to compare.
    deduplication: Settings for deduplication.

  Returns:
    The keys, uint64 of shape [texts, bands].
  """
  texts = iter(texts)
  keys = [np.zeros((0, _num_keys(deduplication)), np.uint64)]
  while block := list(itertools.islice(texts, _LINES_PER_BLOCK)):
    keys.append(_block_keys(block, deduplication))
  return np.concatenate(keys)


def _num_keys(deduplication: Deduplication) -> int:
  return (
    1
    if deduplication.mode is DeduplicationMode.EXACT
    else deduplication.num_bands
  )


def _block_keys(texts: list[str], deduplication: Deduplication) -> np.ndarray:
  if deduplication.mode is DeduplicationMode.EXACT:
    hashes = np.array(
      [_hash(text_similarity.normalize_for_comparison(text)) for text in texts],
      np.uint64,
    )
    return hashes[:, None]
  bands, rows = deduplication.num_bands, deduplication.rows_per_band
  signatures = np.array(
    [
      _signature(text_similarity.normalize_for_comparison(text), deduplication)
      for text in texts
    ],
    np.uint64,
  ).reshape(-1, bands, rows)
  shape = signatures.shape[:2]
  keys = np.broadcast_to(np.arange(bands, dtype=np.uint64), shape)
  for row in range(rows):
    keys = hashing.mix_bits(keys ^ signatures[:, :, row])
  return keys


def _signature(text: str, deduplication: Deduplication) -> list[int]:
  size = deduplication.num_bands * deduplication.rows_per_band
  minhash = user_modules.import_optional(
    'rensa',
    'Fuzzy deduplication requires the package rensa',
    fix='Run `pip install ".[web]"` in a checkout of xlflax.',
  ).RMinHash(num_perm=size, seed=0)
  grams = text_similarity.n_grams(text, deduplication.ngram_size)
  minhash.update(sorted(grams))
  return minhash.digest()


def _hash(text: str) -> int:
  digest = hashlib.blake2b(text.encode('utf-8'), digest_size=8).digest()
  return int.from_bytes(digest, 'little')


def _file_groups(
  corpus: Corpus,
) -> Iterator[tuple[list[TextFile], list[TextFile]]]:
  """Yields groups of files that are compared with each other.

  A group consists of all files for a language or language pair, and of all
  other files with held-out text in the same languages.
  """
  text_files = [
    file for file in corpus.files if file.kind is not Kind.DICTIONARY
  ]
  for kind, languages in sorted(
    {(file.kind.value, file.languages) for file in text_files}
  ):
    group_files = [
      file
      for split in _SPLIT_ORDER
      for file in text_files
      if (file.kind.value, file.languages, file.split)
      == (kind, languages, split)
    ]
    held_out_files = [
      file
      for file in text_files
      if file.split != TRAIN
      and set(languages) & set(file.languages)
      and (len(languages) == 2 or file.kind is Kind.PARALLEL)
    ]
    yield group_files, held_out_files


def _find_duplicates_in_group(
  files: list[TextFile],
  held_out_files: list[TextFile],
  deduplication: Deduplication,
  duplicates: DuplicateLines,
) -> None:
  """Adds the indices of the lines to drop in a group to `duplicates`."""
  keys_of_files = [
    band_keys(_read_lines(file), deduplication) for file in files
  ]
  keys = np.concatenate(keys_of_files)
  is_first = np.ones(len(keys), bool)
  for band in range(keys.shape[1]):
    is_first &= mask_first_occurrences(keys[:, band])

  held_out_keys = {
    language: _held_out_keys(held_out_files, language, deduplication)
    for language in files[0].languages
  }
  held_out_line_keys = np.concatenate(
    [band_keys((), deduplication)]
    + [
      file_keys
      for file, file_keys in zip(files, keys_of_files, strict=True)
      if file.split != TRAIN
    ]
  )
  start = 0
  for file, file_keys in zip(files, keys_of_files, strict=True):
    stop = start + len(file_keys)
    is_held_out = np.zeros(len(file_keys), bool)
    if file.split == TRAIN:
      is_held_out = _shares_band(
        file_keys, held_out_line_keys
      ) | _resembles_held_out(file, file_keys, held_out_keys, deduplication)
    name = corpus_directory.relative_path(file)
    duplicates.held_out[name] = np.flatnonzero(is_held_out)
    duplicates.repeated[name] = np.flatnonzero(
      ~is_first[start:stop] & ~is_held_out
    )
    start = stop


def _held_out_keys(
  files: list[TextFile], language: str, deduplication: Deduplication
) -> np.ndarray:
  return np.concatenate(
    [band_keys((), deduplication)]
    + [
      _side_keys(file, language, deduplication)
      for file in files
      if language in file.languages
    ]
  )


def _resembles_held_out(
  file: TextFile,
  keys: np.ndarray,
  held_out_keys: dict[str, np.ndarray],
  deduplication: Deduplication,
) -> np.ndarray:
  """Returns a mask of training lines that are duplicates of held-out text.

  Args:
    file: Training file that contains the lines.
    keys: Deduplication keys of each line (`band_keys`), uint64 of shape [lines,
      bands].
    held_out_keys: Deduplication keys of the validation and test text in each of
      the file's languages.
    deduplication: Settings for deduplication.

  Returns:
    The mask of lines, or of pairs in which one text is a duplicate, bool of
    shape [lines].
  """
  if file.kind is Kind.MONOLINGUAL:
    return _shares_band(keys, held_out_keys[file.languages[0]])
  resembles = np.zeros(len(keys), bool)
  for language, language_keys in held_out_keys.items():
    if language_keys.size:
      side_keys = _side_keys(file, language, deduplication)
      resembles |= _shares_band(side_keys, language_keys)
  return resembles


def _shares_band(keys: np.ndarray, other_keys: np.ndarray) -> np.ndarray:
  """Returns a mask of lines that share a key with other text, bool [lines]."""
  is_match = np.zeros(len(keys), bool)
  for band in range(keys.shape[1]):
    is_match |= np.isin(keys[:, band], other_keys[:, band])
  return is_match


def _side_keys(
  file: TextFile, language: str, deduplication: Deduplication
) -> np.ndarray:
  """Returns the keys of the texts of one language in a file."""
  side = file.languages.index(language)
  return band_keys(
    (line.split('\t')[side] for line in _read_lines(file)), deduplication
  )


def _read_lines(file: TextFile) -> Iterator[str]:
  """Yields the lines with text. A tab separates the two texts of a pair."""
  label = f'duplicates, {file.path.name}'
  with progress_reporting.Progress(label, unit='lines') as report:
    for texts in corpus_directory.read_texts(file):
      if texts[0]:
        report(1)
        yield '\t'.join(text_processing.remove_nulls(texts))
