"""Word translation: dictionaries are learned from and asked for.

Source: ECS (Wu et al., 2020) section 5.1.1 and figure 4: the words of two
languages as vectors (rows of an embedding matrix, means of contextual states,
fastText), an orthogonal map learned from a dictionary's training part, and the
precision of nearest neighbours on its test part, by CSLS with K = 10.
"""

import dataclasses
import enum
import functools
import itertools
import pathlib
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.data.corpus import word_forms
from xlflax.similarity import csls, procrustes, vector_checks
from xlflax.utils import errors, validation

Pairs = Iterable[tuple[str, str]]


class Mapping(enum.Enum):
  """How the vectors of two languages are brought together."""

  NONE = 'none'  # one model reads both
  PROCRUSTES = 'procrustes'


@dataclasses.dataclass(frozen=True, eq=False)
class WordVectors:
  """The words of a language.

  Attributes:
    words: V different words.
    vectors: float32 [V, D].
    language: Language code, which decides the rules of lower case. An empty
      string applies the common rules.
  """

  words: tuple[str, ...]
  vectors: np.ndarray
  language: str = ''

  def __post_init__(self):
    vector_checks.check_vectors(self.vectors, 'the words')
    vector_checks.check_same_length(np.asarray(self.words), self.vectors)

  @functools.cached_property
  def index(self) -> word_forms.WordIndex:
    """The row of each word."""
    return word_forms.WordIndex(self.words, self.language)

  def find(self, word: str) -> int | None:
    """Returns the row of a word; see `word_forms.WordIndex.find`."""
    return self.index.find(word)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Translated:
  """How well words were translated.

  Attributes:
    precision: (score, k) -> precision@k, such as `(Score.CSLS, 1)`.
    queries: words that were asked for.
    asked: different words of the test dictionary; those without a vector, or
      none of whose translations has one, were left out of the precision.
    learned_from: pairs that the map was learned from; 0 without a map.
  """

  precision: dict[tuple[csls.Score, int], float]
  queries: int
  asked: int
  learned_from: int

  @property
  def coverage(self) -> float:
    """Share of the test dictionary's words that were asked for."""
    return self.queries / self.asked


@validation.validate_call
def read_vectors(
  path: validation.FilePath,
  *,
  max_words: validation.PositiveInt | None = 200_000,
  language: str = '',
) -> WordVectors:
  """Reads fastText's or word2vec's text format (`.vec`; also .gz, .zst).

  The first line has the number of words and of dimensions; each other line a
  word and its vector, the most frequent word first. Of a word that comes
  twice the first vector counts.

  Args:
    path: of the file.
    max_words: the first so many lines; None: all.
    language: Language code of the words.

  Raises:
    CorpusError: file:line of a line of another form; a file without words.
  """
  path = pathlib.Path(path)
  lines = corpus_lines.read_lines(path)
  size, dimension = _header(next(lines, (1, b'')), path)
  count = size if max_words is None else min(size, max_words)
  vectors = np.empty((count, dimension), np.float32)
  words: dict[str, int] = {}
  for number, line in itertools.islice(lines, count):
    fields = line.split(b' ')
    word = b' '.join(fields[:-dimension])  # a word may hold spaces
    row = _floats(fields[-dimension:])
    if not word or len(row) != dimension or not np.isfinite(row).all():
      raise errors.CorpusError(
        'Malformed line among word vectors',
        got=repr(line[:60].decode(errors='replace')),
        expected=f'a word and {dimension} finite numbers, with one space in '
        'between',
        where=f'{path}:{number}',
      )
    text = corpus_lines.decode_line(word, path, number)
    if text not in words:
      vectors[len(words)] = row
      words[text] = len(words)
  if not words:
    raise errors.CorpusError(
      'A file of word vectors has no words', where=str(path)
    )
  return WordVectors(tuple(words), vectors[: len(words)], language)


@validation.validate_call
def index_pairs(
  pairs: Pairs, source: WordVectors, target: WordVectors
) -> np.ndarray:
  """The rows of pairs both of whose words have vectors, int [P, 2], sorted."""
  found = (
    (source.find(word), target.find(translation)) for word, translation in pairs
  )
  rows = sorted({(i, j) for i, j in found if i is not None and j is not None})
  return np.array(rows, np.int64).reshape(-1, 2)


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
  """Precision@k of the nearest target words of source words.

  All target words are candidates. A word is translated rightly if any of its
  translations in the dictionary is among the k nearest.

  Args:
    source: words of one language.
    target: words of the other.
    test: pairs (word, translation) to ask for.
    train: pairs to learn the map from; not needed without a map.
    mapping: PROCRUSTES, after iterative normalisation; NONE takes the vectors
      as they are.
    scores: COSINE, CSLS, or both.
    top: values of k in precision@k.
    k: K of CSLS.
    max_rounds: of the iterative normalisation.

  Raises:
    AnalysisError: no pair of a dictionary has vectors on both sides.
  """
  mapping = validation.validate(mapping, Mapping, name='mapping')
  test = list(test)
  gold = _gold(index_pairs(test, source, target))
  queries = np.array(sorted(gold), np.int64)
  first, second, learned_from = source.vectors, target.vectors, 0
  if mapping is Mapping.PROCRUSTES:
    seen = index_pairs(train, source, target)
    alignment = procrustes.fit_vocabulary_alignment(
      first, second, seen, max_rounds=max_rounds
    )
    first = procrustes.apply_map(alignment.matrix, alignment.source.vectors)
    second, learned_from = alignment.target.vectors, len(seen)
  precision: dict[tuple[csls.Score, int], float] = {}
  for score in (
    validation.validate(x, csls.Score, name='scores') for x in scores
  ):
    found = csls.find_nearest(
      first[queries], second, top=max(top), score=score, k=k, all_queries=first
    ).indices
    found = np.pad(
      found, ((0, 0), (0, max(top) - found.shape[1])), constant_values=-1
    )  # fewer words than were asked for
    precision |= {
      (score, n): csls.precision_at_k(
        found, [gold[i] for i in queries.tolist()], k=n
      )
      for n in top
    }
  return Translated(
    precision=precision,
    queries=len(queries),
    asked=len({word for word, _ in test}),
    learned_from=learned_from,
  )


def _gold(rows: np.ndarray) -> dict[int, set[int]]:
  """Source row -> rows of its translations."""
  if not len(rows):
    raise errors.AnalysisError(
      'No word of the dictionary can be asked for',
      got='a dictionary none of whose pairs has vectors on both sides',
      fix='look whether both are lowercased, and the right way round',
    )
  gold: dict[int, set[int]] = {}
  for i, j in rows.tolist():
    gold.setdefault(i, set()).add(j)
  return gold


def _floats(fields: list[bytes]) -> np.ndarray:
  """Numbers, float32; none at all if a field is none."""
  try:
    return np.array(fields, np.float32)
  except ValueError:
    return np.zeros(0, np.float32)


def _header(line: tuple[int, bytes], path: pathlib.Path) -> tuple[int, int]:
  """(words, dimensions) that the first line tells."""
  try:
    size, dimension = map(int, line[1].split())
    if size < 1 or dimension < 1:
      raise ValueError
  except ValueError:
    raise errors.CorpusError(
      'A file of word vectors does not begin with its sizes',
      got=repr(line[1][:60].decode(errors='replace')),
      expected='the number of words and of dimensions',
      where=f'{path}:1',
    ) from None
  return size, dimension
