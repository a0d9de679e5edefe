"""Decontamination: removes training text that occurs in evaluation texts.

A training line is dropped if it shares a run of text with an evaluation text
that is as long as 13 English words (Brown et al. 2020, "Language Models are
Few-Shot Learners", appendix C). An evaluation text that is shorter must be all
of the line. A pair is dropped if either side is.

Words are runs of letters and digits after case folding. In scripts without
spaces between words a run is measured in characters, each of which counts as
much as the text that it carries (`text_length`): 26 Chinese characters, about
30 of Japanese, 72 of Thai and Khmer, and 100 of Burmese are as long as 13
English words.
"""

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from xlflax.data.corpus import (
  corpus_directory,
  language_codes,
  text_length,
  text_similarity,
)
from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.data.corpus.corpus_directory import TRAIN, Corpus
from xlflax.data.corpus.corpus_files import Kind, TextFile
from xlflax.data.sampling import hashing
from xlflax.storage import bucket_staging, checksums
from xlflax.utils import errors, progress_reporting, validation

_BLOCK = 4096  # lines
_ENGLISH_WORD = 1000  # the weight of a word; integers make runs reproducible
_BASE = 0x9E3779B97F4A7C15


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Decontamination:
  """Which evaluation texts are kept out of training, and how.

  Attributes:
    files: Files of evaluation texts with one text per line, in any format of a
      corpus directory. Each column of a line is a text of its own.
    words: Length of a run that makes a line contaminated, in English words.
  """

  files: Sequence[str] = ()
  words: validation.PositiveInt = 13

  def identity(self) -> dict:
    """What the text depends on, as JSON data."""
    digests = [
      checksums.digest_file(bucket_staging.stage_input(name))
      for name in self.files
    ]
    return {'files': sorted(digests), 'words': self.words}


def find_contaminated_lines(
  corpus: Corpus, decontamination: Decontamination
) -> dict[str, np.ndarray]:
  """The training lines that have something of the evaluation texts.

  Args:
    corpus: all of whose training text is read.
    decontamination: the evaluation texts.

  Returns:
    Path of a file below the corpus -> numbers of its lines, counting lines with
    text from 0, sorted int64 [lines].

  Raises:
    CorpusError: a file of evaluation texts is missing or has no text.
  """
  if not decontamination.files:
    return {}
  texts = itertools.chain.from_iterable(map(_texts, decontamination.files))
  evaluation_keys = keys_of(texts, decontamination.words)
  if not evaluation_keys.size:
    raise errors.CorpusError(
      'The evaluation texts to be kept out of training have no words',
      got=', '.join(decontamination.files),
    )
  return {
    file.path.relative_to(corpus.directory).as_posix(): find_matching_lines(
      file, evaluation_keys, decontamination.words
    )
    for file in corpus.files
    if file.split == TRAIN and file.kind is not Kind.DICTIONARY
  }


def keys_of(texts: Iterable[str], words: int) -> np.ndarray:
  """A key for each run of so many words, or shorter text: sorted uint64 [n]."""
  texts = iter(texts)
  parts = [np.zeros(0, np.uint64)]
  while block := list(itertools.islice(texts, _BLOCK)):
    parts.append(np.unique(_keys(block, words)[0]))
  return np.unique(np.concatenate(parts))


def find_matching_lines(
  file: TextFile, known: np.ndarray, words: int
) -> np.ndarray:
  """Numbers of the lines of a file that have a key in `known`, sorted int64."""
  report = progress_reporting.Progress(
    f'decontaminate, {file.path.name}', unit='lines'
  )
  parts, first = [np.zeros(0, np.int64)], 0
  rows = read_sides(file)
  while block := list(itertools.islice(rows, _BLOCK)):
    keys, places = _keys(list(itertools.chain.from_iterable(block)), words)
    matching = np.unique(places[np.isin(keys, known)]) // len(file.languages)
    parts.append(first + np.unique(matching))
    first += len(block)
    report(len(block))
  return np.concatenate(parts).astype(np.int64)


def read_sides(file: TextFile) -> Iterator[Sequence[str]]:
  """The texts of each line of a file of a corpus directory: one, or two."""
  if file.kind is Kind.PARALLEL:
    yield from corpus_directory.read_parallel(file.path)
  else:
    for line in corpus_directory.read_monolingual(file.path):
      yield (line.text,)


def _keys(texts: Sequence[str], words: int) -> tuple[np.ndarray, np.ndarray]:
  """Computes the keys of all runs of texts.

  A run starts at every token and ends where its weights, in English words, add
  up to `words`. A text that is shorter than that is one run.

  Returns:
    Keys, uint64 [runs], and the index of the text of each, int64 [runs].
  """
  split = [_tokens(text) for text in texts]
  counts = np.array([len(tokens) for tokens in split], np.int64)
  total = int(counts.sum())
  if not total:
    return np.zeros(0, np.uint64), np.zeros(0, np.int64)
  tokens = list(itertools.chain.from_iterable(split))
  hashes = np.fromiter(map(_hash, tokens), np.uint64, total)
  weights = np.fromiter(map(_weight, tokens), np.int64, total)
  places = np.repeat(np.arange(len(texts)), counts)
  text_ends = np.cumsum(counts)[places]
  reached = np.concatenate([[0], np.cumsum(weights)])
  starts = np.arange(total)
  ends = np.searchsorted(reached, reached[starts] + words * _ENGLISH_WORD)
  # Runs that would leave their text: only the one that is all of a short text.
  is_first = starts == text_ends - counts[places]
  is_kept = (ends <= text_ends) | is_first
  starts, places = starts[is_kept], places[is_kept]
  ends = np.minimum(ends[is_kept], text_ends[is_kept])
  # Differences of prefix sums of a polynomial modulo 2^64, divided by the power
  # at their start. Its base is odd, so it has an inverse.
  powers = _powers(_BASE, total)
  prefixes = np.concatenate([[np.uint64(0)], np.cumsum(hashes * powers)])
  inverses = _powers(pow(_BASE, -1, 1 << 64), total)
  runs = (prefixes[ends] - prefixes[starts]) * inverses[starts]
  sizes = (ends - starts).astype(np.uint64)
  return hashing.mix_bits(runs ^ hashing.mix_bits(sizes)), places


def _powers(base: int, count: int) -> np.ndarray:
  """Powers 0 to count - 1 of a number modulo 2^64, uint64 [count]."""
  factors = np.full(count, base, np.uint64)
  factors[:1] = 1
  return np.cumprod(factors, dtype=np.uint64)


def _tokens(text: str) -> list[str]:
  """Words, and single characters of scripts without spaces between words."""
  essence = text_similarity.normalize_for_comparison(text)
  if not any(map(str.isalnum, essence)):
    return []
  spaced = language_codes.TEXT_WITHOUT_SPACES.sub(
    lambda character: f' {character[0]} ', essence
  )
  return spaced.split()


@functools.lru_cache(maxsize=1 << 18)
def _weight(token: str) -> int:
  """Returns the weight of a token in units of 1 / `_ENGLISH_WORD` words."""
  if not language_codes.TEXT_WITHOUT_SPACES.match(token):
    return _ENGLISH_WORD
  word_equivalents = text_length.WEIGHTS[token] / text_length.LETTERS_PER_WORD
  return round(_ENGLISH_WORD * word_equivalents)


@functools.lru_cache(maxsize=1 << 18)
def _hash(word: str) -> int:
  digest = hashlib.blake2b(word.encode('utf-8'), digest_size=8).digest()
  return int.from_bytes(digest, 'little')


def _texts(name: str) -> Iterator[str]:
  path = bucket_staging.stage_input(name)
  for number, line in corpus_lines.read_text(path):
    if line:
      yield from corpus_lines.decode_line(line, path, number).split('\t')
