"""Lines that say again what another line says, exactly or nearly.

Exact duplicates have the same hash of their letters and digits. Near ones are
found by MinHash and banding (Broder, "On the resemblance and containment of
documents", 1997; Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets",
section 3.4): the signature of a line's character n-grams is cut into b bands
of r values, and two lines with one band in common are near-duplicates. Lines
whose n-grams have a Jaccard similarity s are so with probability
1 - (1 - s^r)^b. Signatures are those of the package rensa (extra `web`).
"""

import dataclasses
import enum
import hashlib
import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.data.corpus import text_similarity
from xlflax.data.corpus.corpus_directory import TEST, TRAIN, VALIDATION, Corpus
from xlflax.data.corpus.corpus_files import Kind, TextFile
from xlflax.data.sampling import hashing
from xlflax.utils import progress_reporting, user_modules, validation

# Held-out text comes first, so that what it shares with training stays in it.
_ORDER = (TEST, VALIDATION, TRAIN)
_BLOCK = 4096


class Kept(enum.Enum):
  """Which lines that resemble another are kept."""

  ALL = 'all'
  NOT_EQUAL = 'not_equal'
  NOT_NEAR = 'not_near'


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Deduplication:
  """How duplicates are found.

  Attributes:
    kept: whether equal lines are dropped, or near ones too.
    bands: b, of a signature.
    rows: r, values in a band.
    characters: n of the n-grams.
  """

  kept: Kept = Kept.ALL
  bands: validation.PositiveInt = 16
  rows: validation.PositiveInt = 8
  characters: validation.PositiveInt = 5

  def probability(self, similarity: float) -> float:
    """That two lines of a Jaccard similarity are found."""
    return 1 - (1 - similarity**self.rows) ** self.bands


def find_duplicates(
  corpus: Corpus, deduplication: Deduplication
) -> dict[str, np.ndarray]:
  """The lines that are dropped.

  Of lines that resemble each other the first one is kept, held-out text coming
  before training text. Pairs are compared as a whole; and a training pair goes
  for a side that resembles held-out text, a training line for one that
  resembles a side of a held-out pair. So no line of training, and no side
  of a pair, is near to a held-out one of its language.

  Args:
    corpus: all of whose lines are read.
    deduplication: how.

  Returns:
    Path of a file below the corpus -> number of each line to be dropped,
    counting lines with text from 0, sorted int64 [lines].
  """
  out = {}
  if deduplication.kept is not Kept.ALL:
    for files, held_out in _groups(corpus):
      out.update(_of_group(corpus, files, held_out, deduplication))
  return out


def first_of_equal(keys: np.ndarray) -> np.ndarray:
  """Whether a key is not in the ones before it, bool [n], for uint64 [n].

  Of `5 7 5 5 9` the first, second and last.
  """
  first = np.zeros(keys.size, bool)
  first[np.unique(keys, return_index=True)[1]] = True
  return first


def band_keys(texts: Iterable[str], deduplication: Deduplication) -> np.ndarray:
  """A key for each band of each text, uint64 [texts, bands].

  Equal texts have equal keys; exact duplicates alone have one band.
  """
  texts = iter(texts)
  parts = [np.zeros((0, _num_keys(deduplication)), np.uint64)]
  while block := list(itertools.islice(texts, _BLOCK)):
    parts.append(_block_keys(block, deduplication))
  return np.concatenate(parts)


def _num_keys(deduplication: Deduplication) -> int:
  return 1 if deduplication.kept is Kept.NOT_EQUAL else deduplication.bands


def _block_keys(texts: list[str], deduplication: Deduplication) -> np.ndarray:
  if deduplication.kept is Kept.NOT_EQUAL:
    hashes = np.array(
      [_hash(text_similarity.normalize_for_comparison(text)) for text in texts],
      np.uint64,
    )
    return hashes[:, None]
  bands, rows = deduplication.bands, deduplication.rows
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
  size = deduplication.bands * deduplication.rows
  minhash = user_modules.import_optional(
    'rensa',
    'Near-duplicates need the package rensa',
    fix='pip install ".[web]" in a checkout of xlflax',
  ).RMinHash(num_perm=size, seed=0)
  grams = text_similarity.n_grams(text, deduplication.characters)
  minhash.update(sorted(grams))
  return minhash.digest()


def _hash(text: str) -> int:
  digest = hashlib.blake2b(text.encode('utf-8'), digest_size=8).digest()
  return int.from_bytes(digest, 'little')


def _groups(corpus: Corpus) -> Iterator[tuple[list[TextFile], list[TextFile]]]:
  """Files of one language or pair, and other held-out text in its languages."""
  texts = [file for file in corpus.files if file.kind is not Kind.DICTIONARY]
  for kind, languages in sorted(
    {(file.kind.value, file.languages) for file in texts}
  ):
    group_files = [
      file
      for split in _ORDER
      for file in texts
      if (file.kind.value, file.languages, file.split)
      == (kind, languages, split)
    ]
    held_out = [
      file
      for file in texts
      if file.split != TRAIN
      and set(languages) & set(file.languages)
      and (len(languages) == 2 or file.kind is Kind.PARALLEL)
    ]
    yield group_files, held_out


def _of_group(
  corpus: Corpus,
  files: list[TextFile],
  held_out: list[TextFile],
  deduplication: Deduplication,
) -> dict[str, np.ndarray]:
  """The dropped lines of files that are compared with each other."""
  keys = [band_keys(_texts(file), deduplication) for file in files]
  joined = np.concatenate(keys)
  is_kept = np.ones(len(joined), bool)
  for band in range(joined.shape[1]):
    is_kept &= first_of_equal(joined[:, band])
  ends = np.cumsum([len(part) for part in keys]).tolist()
  places = [
    slice(end - len(part), end) for part, end in zip(keys, ends, strict=True)
  ]
  held_out_keys = {
    language: _held_out_keys(held_out, language, deduplication)
    for language in files[0].languages
  }
  for file, line_slice in zip(files, places, strict=True):
    is_kept[line_slice] &= ~_leaks(
      file, joined[line_slice], held_out_keys, deduplication
    )
  return {
    file.path.relative_to(corpus.directory).as_posix(): np.flatnonzero(
      ~is_kept[line_slice]
    )
    for file, line_slice in zip(files, places, strict=True)
  }


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


def _leaks(
  file: TextFile,
  keys: np.ndarray,
  known: dict[str, np.ndarray],
  deduplication: Deduplication,
) -> np.ndarray:
  """Whether a training line, or a side of a pair, resembles held-out text.

  Args:
    file: of the lines.
    keys: of them.
    known: of held-out text in its languages.
    deduplication: as they were made.
  """
  is_leak = np.zeros(len(keys), bool)
  if file.split != TRAIN:  # what is held out twice tells nothing of training
    return is_leak
  if file.kind is Kind.MONOLINGUAL:
    return _resembles(keys, known[file.languages[0]])
  for language, held_out_keys in known.items():
    if held_out_keys.size:
      is_leak |= _resembles(
        _side_keys(file, language, deduplication), held_out_keys
      )
  return is_leak


def _resembles(keys: np.ndarray, others: np.ndarray) -> np.ndarray:
  """Whether a line has a band in common with one of others, bool [lines]."""
  is_match = np.zeros(len(keys), bool)
  for band in range(keys.shape[1]):
    is_match |= np.isin(keys[:, band], others[:, band])
  return is_match


def _side_keys(
  file: TextFile, language: str, deduplication: Deduplication
) -> np.ndarray:
  """Keys of the lines of a file in a language, which may be a side."""
  side = file.languages.index(language)
  return band_keys(
    (text.split('\t')[side] for text in _texts(file)), deduplication
  )


def _texts(file: TextFile) -> Iterator[str]:
  """The lines with text; pairs with a tab between."""
  label = f'duplicates, {file.path.name}'
  with progress_reporting.Progress(label, unit='lines') as report:
    for number, line in corpus_lines.read_text(file.path):
      if line:
        report(1)
        yield corpus_lines.decode_line(line, file.path, number)
