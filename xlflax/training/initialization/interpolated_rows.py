"""Rows of tokens that match none, put together from those that do.

FOCUS (Dobler and de Melo 2023): static vectors of the target's tokens, made
from text of its languages, tell which matched tokens a token is near; its row
is the mean of theirs, weighted by sparsemax of the cosines. The vectors are of
co-occurrence (positive PMI and SVD, Levy and Goldberg 2014); the paper's are
fastText's.
"""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

from xlflax.data.corpus.directory import TRAIN, Corpus

_LINES = 200_000  # of each language
_DIMENSIONS, _WINDOW = 64, 5
_NEAREST = 10  # a sparsemax over cosines rarely has more


def mixture(
  vocabulary, directory: str, matched: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Mixtures of the tokens that no other vocabulary has.

  Args:
    vocabulary: the target's.
    directory: a corpus whose text has them.
    matched: bool [V], of which tokens they are put together.

  Returns:
    int32 and float32 [V, K]: tokens that each is put together from, and their
    weights, of each row 1 together, or 0: no mixture.
  """
  corpus = Corpus(directory)
  texts = (
    vocabulary.encode(line.text, language=code)
    for code in corpus.languages
    for line in itertools.islice(corpus.monolingual(code, TRAIN), _LINES)
  )
  found = vectors(texts, len(vocabulary))
  return nearest(found, matched & found.any(axis=1), ~matched)


def vectors(texts: Iterable[Sequence[int]], size: int) -> np.ndarray:
  """Static vectors of tokens [size, D] of length 1; 0 of those in no text."""
  pairs: list[np.ndarray] = []
  for text in texts:
    ids = np.asarray(text, np.int64)
    for apart in range(1, min(_WINDOW, len(ids) - 1) + 1):
      pairs.append(np.stack([ids[:-apart], ids[apart:]]))
  first, second = np.concatenate(pairs, axis=1)
  counts = sparse.coo_array(
    (np.ones(len(first)), (first, second)), shape=(size, size)
  ).tocsr()
  counts = (counts + counts.T).tocoo()
  totals = np.asarray(counts.sum(axis=0)).ravel()
  expected = totals[counts.row] * totals[counts.col] / totals.sum()
  values = np.maximum(np.log(counts.data / expected), 0)
  scores = sparse.csr_array((values, (counts.row, counts.col)), counts.shape)
  left, weights, _ = linalg.svds(
    scores, k=min(_DIMENSIONS, size - 1), v0=np.ones(size)
  )
  found = left * np.sqrt(weights)
  norms = np.linalg.norm(found, axis=1, keepdims=True)
  return np.where(norms > 1e-9, found / np.maximum(norms, 1e-9), 0)


def nearest(
  vectors: np.ndarray, sources: np.ndarray, wanted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """The sources that each wanted token is near, with sparsemax's weights.

  Args:
    vectors: [V, D] of length 1, or 0: such a token has no mixture.
    sources: bool [V].
    wanted: bool [V].

  Returns:
    As `mixture`.
  """
  places = np.flatnonzero(sources)
  count = min(_NEAREST, len(places))
  ids = np.zeros((len(vectors), count), np.int32)
  weights = np.zeros((len(vectors), count), np.float32)
  for token in np.flatnonzero(wanted & vectors.any(axis=1)):
    cosines = vectors[places] @ vectors[token]
    best = np.argsort(-cosines, kind='stable')[:count]
    ids[token] = places[best]
    weights[token] = sparsemax(cosines[best])
  return ids, weights


def sparsemax(scores: np.ndarray) -> np.ndarray:
  """The nearest point of the simplex (Martins and Astudillo 2016).

  Args:
    scores: [K], the largest first.
  """
  steps = np.arange(1, len(scores) + 1)
  sums = np.cumsum(scores)
  support = steps[1 + steps * scores > sums][-1]
  return np.maximum(scores - (sums[support - 1] - 1) / support, 0)
