"""Bilingual lexicon induction with word vectors.

Source: ECS (Wu et al., 2020) section 5.1.1 and figure 4. The words of two
languages are represented by vectors (rows of an embedding table, means of
contextual states, fastText). An orthogonal map is learned from the training
part of a dictionary. The metric is the precision of nearest neighbors on the
test part, by CSLS with K = 10.
"""

import dataclasses
import enum
import functools
import itertools
import pathlib
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from xlflax.data.corpus import line_reader, word_forms
from xlflax.similarity import csls, procrustes, vector_checks
from xlflax.utils import errors, line_splitting, validation

Pairs = Iterable[tuple[str, str]]


class Mapping(enum.Enum):
  """Type of map from one language's word vectors to another language's."""

  NONE = 'none'  # No map, for vectors of a single model.
  PROCRUSTES = 'procrustes'  # Orthogonal map.


@dataclasses.dataclass(frozen=True, eq=False)
class WordVectors:
  """Word vectors for one language.

  Attributes:
    words: V distinct words.
    vectors: Float32 array of word vectors of shape [V, D].
    language: Language code, which determines the rules for lowercasing. If it
      is empty, language-independent rules are used.
  """

  words: tuple[str, ...]
  vectors: np.ndarray
  language: str = ''

  def __post_init__(self):
    vector_checks.check_vectors(self.vectors, 'the words')
    vector_checks.check_same_length(np.asarray(self.words), self.vectors)

  @functools.cached_property
  def index(self) -> word_forms.WordIndex:
    """Index that maps each word to its row."""
    return word_forms.WordIndex(self.words, self.language)

  def find(self, word: str) -> int | None:
    """Returns the row index of a word, or None (see `WordIndex.find`)."""
    return self.index.find(word)

  def restrict(self, words: Collection[str]) -> 'WordVectors':
    """Returns only the vectors of words in the given collection.

    Raises:
      AnalysisError: If the collection contains none of the words.
    """
    kept_words = set(words)
    rows = [row for row, word in enumerate(self.words) if word in kept_words]
    return WordVectors(
      tuple(self.words[row] for row in rows), self.vectors[rows], self.language
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Translated:
  """Accuracy of word translation.

  Attributes:
    precision: Map from similarity score and k, such as `(Score.CSLS, 1)`, to
      precision@k.
    queries: Number of words that were translated.
    num_source_words: Number of distinct source words in the test dictionary. A
      word is excluded from the precision if it does not have a vector, or if
      none of its translations has one.
    learned_from: Number of word pairs from which the map was learned, or 0
      without a map.
  """

  precision: dict[tuple[csls.Score, int], float]
  queries: int
  num_source_words: int
  learned_from: int

  @property
  def coverage(self) -> float:
    """Fraction of words in the test dictionary that were translated."""
    return self.queries / self.num_source_words


@validation.validate_call
def read_vectors(
  path: validation.FilePath,
  *,
  max_words: validation.PositiveInt | None = 200_000,
  language: str = '',
) -> WordVectors:
  """Reads word vectors in the text format of fastText and word2vec (`.vec`).

  Files that end in .gz or .zst are decompressed. The first line contains the
  number of words and of dimensions. Each other line contains a word and its
  vector, the most frequent word first. If a word occurs twice, its first vector
  is used.

  Args:
    path: Path to the file of word vectors.
    max_words: Maximum number of words to read. If None, all words are read.
    language: Language code for the words.

  Raises:
    CorpusError: If a line is malformed, or if the file contains no words or
      fewer words than its first line states.
  """
  path = pathlib.Path(path)
  lines = line_reader.read_lines(path)
  size, dimension = _parse_header(next(lines, (1, b'')), path)
  count = size if max_words is None else min(size, max_words)
  vectors = np.empty((count, dimension), np.float32)
  row_of_word: dict[str, int] = {}
  num_lines = 0
  for line_number, line in itertools.islice(lines, count):
    num_lines += 1
    fields = line.split(b' ')
    word = b' '.join(fields[:-dimension])  # Words may contain spaces.
    row = _parse_floats(fields[-dimension:])
    if not word or len(row) != dimension or not np.isfinite(row).all():
      raise errors.CorpusError(
        f'Each line of a word-vector file must contain a word and {dimension} '
        'finite numbers, separated by single spaces',
        got=line_splitting.shorten_line(line),
        where=errors.line_location(path, line_number),
      )
    text = line_reader.decode_line(word, path, line_number)
    if text not in row_of_word:
      vectors[len(row_of_word)] = row
      row_of_word[text] = len(row_of_word)
  if not row_of_word:
    raise errors.CorpusError(
      'The word-vector file does not contain any words', where=str(path)
    )
  if num_lines < count:
    raise errors.CorpusError(
      'The word-vector file is truncated. It contains '
      f'{num_lines:,} words, but its first line specifies {size:,}',
      where=str(path),
      fix='Download the file again.',
    )
  return WordVectors(tuple(row_of_word), vectors[: len(row_of_word)], language)


@validation.validate_call
def index_pairs(
  pairs: Pairs, source: WordVectors, target: WordVectors
) -> np.ndarray:
  """Returns the row indices of word pairs in which both words have vectors.

  Returns:
    Sorted rows in `source` and `target` of shape [P, 2], int.
  """
  rows = set()
  for word, translation in pairs:
    source_row = source.find(word)
    target_row = target.find(translation)
    if source_row is not None and target_row is not None:
      rows.add((source_row, target_row))
  return np.array(sorted(rows), np.int64).reshape(-1, 2)


@validation.validate_call
def translate(
  source: WordVectors,
  target: WordVectors,
  *,
  test: Pairs,
  train: Pairs = (),
  mapping: Mapping | str = Mapping.PROCRUSTES,
  scores: Sequence[csls.Score | str] = tuple(csls.Score),
  top: Collection[int] = (1, 5, 10),
  k: int = 10,
  max_rounds: validation.NonNegativeInt = 50,
) -> Translated:
  """Translates words to their nearest neighbors and computes precision@k.

  All target words are candidates. A translation is correct if any of the word's
  translations in the dictionary is among the k nearest neighbors.

  Args:
    source: Word vectors in the source language.
    target: Word vectors in the target language.
    test: Pairs (word, translation) in the test dictionary.
    train: Pairs (word, translation) from which the map is learned. They are not
      required without a map.
    mapping: PROCRUSTES for an orthogonal map after iterative normalization, or
      NONE to compare the vectors without a map.
    scores: Similarity scores to evaluate: COSINE, CSLS, or both.
    top: Values of k for which precision@k is computed.
    k: Number of neighbors K in the definition of CSLS.
    max_rounds: Maximum number of rounds of iterative normalization.

  Raises:
    AnalysisError: If a dictionary contains no pair in which both words have
      vectors.
  """
  mapping = validation.validate(mapping, Mapping, name='mapping')
  test = list(test)
  translations = _group_translations(index_pairs(test, source, target))
  queries = np.array(sorted(translations), np.int64)
  source_vectors = source.vectors
  target_vectors = target.vectors
  learned_from = 0
  if mapping is Mapping.PROCRUSTES:
    train_pairs = index_pairs(train, source, target)
    learned_from = len(train_pairs)
    alignment = procrustes.fit_vocabulary_alignment(
      source_vectors, target_vectors, train_pairs, max_rounds=max_rounds
    )
    source_vectors = procrustes.apply_map(
      alignment.matrix, alignment.source.vectors
    )
    target_vectors = alignment.target.vectors

  gold = [translations[row] for row in queries.tolist()]
  precision: dict[tuple[csls.Score, int], float] = {}
  for score_name in scores:
    score = validation.validate(score_name, csls.Score, name='scores')
    neighbors = csls.find_nearest(
      source_vectors[queries],
      target_vectors,
      top=max(top),
      score=score,
      k=k,
      all_queries=source_vectors,
    ).indices
    # There may be fewer target words than max(top).
    neighbors = np.pad(
      neighbors,
      ((0, 0), (0, max(top) - neighbors.shape[1])),
      constant_values=-1,
    )
    precision |= {
      (score, n): csls.precision_at_k(neighbors, gold, k=n) for n in top
    }
  return Translated(
    precision=precision,
    queries=len(queries),
    num_source_words=len({word for word, _ in test}),
    learned_from=learned_from,
  )


def _group_translations(rows: np.ndarray) -> dict[int, set[int]]:
  """Maps each source word's row to the set of rows of its translations.

  Raises:
    AnalysisError: If there are no word pairs.
  """
  if not len(rows):
    raise errors.AnalysisError(
      'None of the word pairs in the test dictionary has vectors for both '
      'words',
      fix='Check the letter case of the words and the order of the languages.',
    )
  translations: dict[int, set[int]] = {}
  for source_row, target_row in rows.tolist():
    translations.setdefault(source_row, set()).add(target_row)
  return translations


def _parse_floats(fields: list[bytes]) -> np.ndarray:
  """Parses numbers as float32. Returns an empty array if one is invalid."""
  try:
    return np.array(fields, np.float32)
  except ValueError:
    return np.zeros(0, np.float32)


def _parse_header(
  line: tuple[int, bytes], path: pathlib.Path
) -> tuple[int, int]:
  """Parses the numbers of words and dimensions from the first line."""
  try:
    size, dimension = map(int, line[1].split())
    if size < 1 or dimension < 1:
      raise ValueError
  except ValueError:
    raise errors.CorpusError(
      'The first line of a word-vector file must contain the number of words '
      'and the number of dimensions',
      got=line_splitting.shorten_line(line[1]),
      where=errors.line_location(path, 1),
    ) from None
  return size, dimension
