"""Decontamination: removal of training text that occurs in evaluation texts.

A training line is dropped if it has a passage in common with an evaluation text
and this passage is as long as 13 English words (Brown et al. 2020, "Language
Models are Few-Shot Learners", appendix C). If an evaluation text is shorter,
only lines that equal it are dropped. A sentence pair is dropped if its source
or its target is contaminated.

Words are runs of letters and digits after case folding. An apostrophe between
two letters belongs to the word: in Tahitian and many other languages it is a
letter. In scripts without spaces between words, the length of a passage is
measured in characters, weighted by the amount of text that they carry
(`text_length`). For example, 26 Chinese characters, about 30 Japanese, 72 Thai
or Khmer, and 100 Burmese characters are as long as 13 English words.
"""

import dataclasses
import functools
import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from xlflax.data.corpus import (
  corpus_directory,
  language_codes,
  line_reader,
  text_length,
  text_similarity,
)
from xlflax.data.corpus.corpus_directory import TRAIN, Corpus
from xlflax.data.corpus.corpus_files import Kind, TextFile
from xlflax.data.preprocessing import text_processing
from xlflax.data.sampling import hashing
from xlflax.storage import bucket_staging, checksums
from xlflax.utils import errors, progress_reporting, validation

_LINES_PER_BLOCK = 4096
# Weight of an English word. Weights are integers so that runs are reproducible.
ENGLISH_WORD = 1000
_HASH_BASE = 0x9E3779B97F4A7C15
# Apostrophes and modifier letters that are used as such, between two letters.
_INNER_APOSTROPHE = re.compile(
  r"(?<=[^\W\d_])['\u2018\u2019\u02BB\u02BC](?=[^\W\d_])"
)


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Decontamination:
  """Settings for removing evaluation texts from the training text.

  Attributes:
    files: Paths of files with one evaluation text per line, in any format that
      a corpus directory supports. Each column of a line is a separate text.
    ngram_size: Minimum length of a shared passage, in English words. A line is
      contaminated if it shares a passage of this length with an evaluation
      text.
  """

  files: Sequence[str] = ()
  ngram_size: validation.PositiveInt = 13

  def identity(self) -> dict:
    """Returns the n-gram size and the digests of the evaluation files.

    This JSON data determines which lines are considered contaminated.
    """
    digests = [
      checksums.digest_file(bucket_staging.stage_input(name))
      for name in self.files
    ]
    return {'files': sorted(digests), 'words': self.ngram_size}


def find_contaminated_lines(
  corpus: Corpus, decontamination: Decontamination
) -> dict[str, np.ndarray]:
  """Finds the training lines that contain a passage from the evaluation texts.

  Args:
    corpus: Corpus whose training text is checked.
    decontamination: Evaluation texts, and the minimum length of a passage that
      contaminated lines share with them.

  Returns:
    A mapping from file paths, relative to the corpus directory, to the sorted
    zero-based indices of the contaminated lines, int64 of shape [lines]. Lines
    without text are not counted.

  Raises:
    CorpusError: If a file with evaluation texts is missing or contains no text.
  """
  if not decontamination.files:
    return {}
  texts = itertools.chain.from_iterable(map(_texts, decontamination.files))
  evaluation_keys = compute_keys(texts, decontamination.ngram_size)
  if not evaluation_keys.size:
    raise errors.CorpusError(
      'The evaluation texts for decontamination do not contain any words',
      got=', '.join(decontamination.files),
    )
  return {
    corpus_directory.relative_path(file): find_matching_lines(
      file, evaluation_keys, decontamination.ngram_size
    )
    for file in corpus.files
    if file.split == TRAIN and file.kind is not Kind.DICTIONARY
  }


def compute_keys(texts: Iterable[str], words: int) -> np.ndarray:
  """Returns the hashes of all passages in the texts, without duplicates.

  Args:
    texts: Texts whose passages are hashed.
    words: Length of each passage, measured in English words. A shorter text is
      a single passage.

  Returns:
    The hashes in ascending order, uint64 of shape [keys].
  """
  texts = iter(texts)
  keys = [np.zeros(0, np.uint64)]
  while block := list(itertools.islice(texts, _LINES_PER_BLOCK)):
    keys.append(np.unique(hash_passages(block, words)[0]))
  return np.unique(np.concatenate(keys))


def find_matching_lines(
  file: TextFile, evaluation_keys: np.ndarray, words: int
) -> np.ndarray:
  """Finds the lines in a file that share a passage with evaluation texts.

  Args:
    file: File in a corpus directory.
    evaluation_keys: Hashes of the passages in the evaluation texts, as returned
      by `compute_keys`, uint64 of shape [keys].
    words: Length of each passage, measured in English words.

  Returns:
    The sorted, zero-based indices of the lines, int64 of shape [lines]. Lines
    without text are not counted.
  """
  report = progress_reporting.Progress(
    f'decontaminate, {file.path.name}', unit='lines'
  )
  matches = [np.zeros(0, np.int64)]
  first = 0
  lines = read_sides(file)
  while block := list(itertools.islice(lines, _LINES_PER_BLOCK)):
    texts = list(itertools.chain.from_iterable(block))
    keys, text_indices = hash_passages(texts, words)
    matching_texts = np.unique(text_indices[np.isin(keys, evaluation_keys)])
    matches.append(first + np.unique(matching_texts // len(file.languages)))
    first += len(block)
    report(len(block))
  return np.concatenate(matches).astype(np.int64)


def read_sides(file: TextFile) -> Iterator[Sequence[str]]:
  """Yields the texts of each line: one text, or a source and its translation.

  NUL characters are removed. A line of NUL characters is an empty text.
  """
  for texts in corpus_directory.read_texts(file):
    if texts[0]:
      yield text_processing.remove_nulls(texts)


def hash_passages(
  texts: Sequence[str], words: int
) -> tuple[np.ndarray, np.ndarray]:
  """Hashes all passages of a given length in the texts.

  A passage starts at every token and ends where the weights of its tokens, in
  English words, add up to `words`. A shorter text is a single passage.

  Args:
    texts: Texts whose passages are hashed.
    words: Length of each passage, measured in English words.

  Returns:
    The hash of each passage, uint64 of shape [passages], and the index of the
    text that contains each passage, int64 of shape [passages].
  """
  tokens_of_texts = [split_tokens(text) for text in texts]
  counts = np.array([len(tokens) for tokens in tokens_of_texts], np.int64)
  total = int(counts.sum())
  if not total:
    return np.zeros(0, np.uint64), np.zeros(0, np.int64)

  tokens = list(itertools.chain.from_iterable(tokens_of_texts))
  hashes = np.fromiter(map(_hash, tokens), np.uint64, total)
  weights = np.fromiter(map(token_weight, tokens), np.int64, total)
  text_indices = np.repeat(np.arange(len(texts)), counts)
  text_ends = np.cumsum(counts)[text_indices]
  cumulative = np.concatenate([[0], np.cumsum(weights)])
  starts = np.arange(total)
  ends = np.searchsorted(cumulative, cumulative[starts] + words * ENGLISH_WORD)

  # A run must end within its text, unless it is an entire short text.
  is_first = starts == text_ends - counts[text_indices]
  is_run = (ends <= text_ends) | is_first
  starts, text_indices = starts[is_run], text_indices[is_run]
  ends = np.minimum(ends[is_run], text_ends[is_run])

  # The hash of a run is a difference of prefix sums of a polynomial modulo
  # 2^64, divided by the power at its start. The base is odd and therefore has
  # an inverse.
  powers = _powers(_HASH_BASE, total)
  prefixes = np.concatenate([[np.uint64(0)], np.cumsum(hashes * powers)])
  inverses = _powers(pow(_HASH_BASE, -1, 1 << 64), total)
  run_hashes = (prefixes[ends] - prefixes[starts]) * inverses[starts]
  sizes = (ends - starts).astype(np.uint64)
  keys = hashing.mix_bits(run_hashes ^ hashing.mix_bits(sizes))
  return keys, text_indices


def _powers(base: int, count: int) -> np.ndarray:
  """Returns powers 0 to count - 1 of a number modulo 2^64, uint64 [count]."""
  factors = np.full(count, base, np.uint64)
  factors[:1] = 1
  return np.cumprod(factors, dtype=np.uint64)


def split_tokens(text: str) -> list[str]:
  """Splits a text into words, or into characters for scripts without spaces."""
  joined = _INNER_APOSTROPHE.sub('', text)
  normalized = text_similarity.normalize_for_comparison(joined)
  if not any(map(str.isalnum, normalized)):
    return []
  spaced = language_codes.TEXT_WITHOUT_SPACES.sub(
    lambda match: f' {match[0]} ', normalized
  )
  return spaced.split()


@functools.lru_cache(maxsize=1 << 18)
def token_weight(token: str) -> int:
  """Returns a token's length in units of 1/1000 of an English word.

  A word in a script with spaces has the length `ENGLISH_WORD` (1000). In
  scripts without spaces, a token is a character and has a smaller length.
  """
  if not language_codes.TEXT_WITHOUT_SPACES.match(token):
    return ENGLISH_WORD
  word_equivalents = text_length.WEIGHTS[token] / text_length.LETTERS_PER_WORD
  return round(ENGLISH_WORD * word_equivalents)


@functools.lru_cache(maxsize=1 << 18)
def _hash(word: str) -> int:
  digest = hashlib.blake2b(word.encode('utf-8'), digest_size=8).digest()
  return int.from_bytes(digest, 'little')


def _texts(name: str) -> Iterator[str]:
  """Yields the columns of all lines in a file with evaluation texts."""
  path = bucket_staging.stage_input(name)
  for number, line in line_reader.read_text(path):
    if line:
      yield from line_reader.decode_line(line, path, number).split('\t')
