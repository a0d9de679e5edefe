"""Rows of tokens that match none, put together from those of others.

FOCUS (Dobler and de Melo 2023): static vectors of the target's tokens, made
from text of its languages, tell which matched tokens a token is near; its row
is the mean of theirs, weighted by sparsemax of the cosines.

WECHSEL (Minixhofer et al. 2022): the source's tokens have static vectors, too,
of their own language's text; an orthogonal map, learned on matched tokens
(translations of a dictionary above all), brings each language's vectors to
them. A row is the mean of the nearest source tokens' rows, by softmax.

The vectors are of co-occurrence (positive PMI and SVD, Levy and Goldberg 2014);
both papers' are fastText's. Here matched tokens keep their match's row.
"""

import itertools
import logging
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from scipy import sparse, special
from scipy.sparse import linalg

from xlflax.data.corpus.corpus_directory import TRAIN, Corpus
from xlflax.similarity import procrustes

_LINES = 200_000  # of each language
_DIMENSIONS, _WINDOW = 64, 5
_NEAREST = 10  # a sparsemax over cosines rarely has more
_TEMPERATURE = 0.1  # of WECHSEL's softmax, as its authors have it
_BLOCK = 4096  # tokens whose neighbours are looked for together


def focus_mixture(
  vocabulary, directory: str, matched: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Mixtures of the tokens that no other vocabulary has (FOCUS).

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
    text
    for code in corpus.languages
    for text in _texts(vocabulary, corpus, code)
  )
  vectors = static_token_vectors(texts, len(vocabulary))
  has_vector = vectors.any(axis=1)
  return _mixed(
    vectors,
    np.flatnonzero(~matched & has_vector),
    vectors,
    np.flatnonzero(matched & has_vector),
    sparsemax,
  )


def wechsel_mixture(
  target, source, directory: str, pairs: np.ndarray, language: str
) -> tuple[np.ndarray, np.ndarray]:
  """Mixtures of the source's tokens, found across languages (WECHSEL).

  Args:
    target: a vocabulary.
    source: likewise.
    directory: a corpus with text of the source's language and of others.
    pairs: int [P, 2], ids of the target and the source that mean the same.
    language: of the source.

  Returns:
    int32 and float32 [V, K], of all tokens of the target that stand in text of
    another language: ids of the source, and weights as `focus_mixture` has them.
  """
  corpus = Corpus(directory)
  source_vectors = static_token_vectors(
    _texts(source, corpus, language), len(source)
  )
  places = np.flatnonzero(source_vectors.any(axis=1))
  ids, weights = _empty(len(target), len(places))
  best_counts = np.zeros(len(target), np.int64)
  for code in corpus.languages:
    if code == language:
      continue
    texts = list(_texts(target, corpus, code))
    target_vectors = static_token_vectors(texts, len(target))
    taught = pairs[
      target_vectors[pairs[:, 0]].any(1) & source_vectors[pairs[:, 1]].any(1)
    ]
    if len(taught) < _DIMENSIONS:
      logging.warning(
        'Rows of %s stay fresh: %d of its tokens have a match that both texts '
        'have, and a map needs %d; give a dictionary or more text.',
        code,
        len(taught),
        _DIMENSIONS,
      )
      continue
    aligned = procrustes.fit_alignment(
      target_vectors[taught[:, 0]], source_vectors[taught[:, 1]]
    )
    counts = np.bincount(np.concatenate(texts), minlength=len(target))
    selected = np.flatnonzero(
      target_vectors.any(axis=1) & (counts > best_counts)
    )
    mixture = _mixed(
      _unit(aligned.map_source(target_vectors)),
      selected,
      _unit(aligned.map_target(source_vectors)),
      places,
      lambda cosines: special.softmax(cosines / _TEMPERATURE),
    )
    ids[selected], weights[selected] = (
      mixture[0][selected],
      mixture[1][selected],
    )
    best_counts = np.maximum(best_counts, counts)
  return ids, weights


def _texts(vocabulary, corpus: Corpus, code: str) -> Iterable[Sequence[int]]:
  """The token ids of a language's first lines."""
  for line in itertools.islice(corpus.monolingual(code, TRAIN), _LINES):
    yield vocabulary.encode(line.text, language=code)


def static_token_vectors(
  texts: Iterable[Sequence[int]], size: int
) -> np.ndarray:
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
  left_vectors, weights, _ = linalg.svds(
    scores, k=min(_DIMENSIONS, size - 1), v0=np.ones(size)
  )
  vectors = left_vectors * np.sqrt(weights)
  has_vector = np.linalg.norm(vectors, axis=1, keepdims=True) > 1e-9
  return np.where(has_vector, _unit(vectors), 0)


def _mixed(
  vectors: np.ndarray,
  wanted: np.ndarray,
  sources: np.ndarray,
  places: np.ndarray,
  weigh: Callable[[np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
  """The sources that each wanted token is near, and their weights.

  Args:
    vectors: [V, D] of length 1.
    wanted: ids of tokens that have one.
    sources: [S, D] likewise.
    places: ids of those that may be near.
    weigh: weights of cosines, the largest first.

  Returns:
    As `focus_mixture`.
  """
  ids, weights = _empty(len(vectors), len(places))
  count = ids.shape[1]
  for start in range(0, len(wanted), _BLOCK):
    block = wanted[start : start + _BLOCK]
    cosines = vectors[block] @ sources[places].T
    best = np.argsort(-cosines, axis=1, kind='stable')[:, :count]
    ids[block] = places[best]
    weights[block] = [
      weigh(row) for row in np.take_along_axis(cosines, best, axis=1)
    ]
  return ids, weights


def _empty(tokens: int, sources: int) -> tuple[np.ndarray, np.ndarray]:
  shape = tokens, min(_NEAREST, sources)
  return np.zeros(shape, np.int32), np.zeros(shape, np.float32)


def _unit(vectors: np.ndarray) -> np.ndarray:
  norms = np.linalg.norm(vectors, axis=1, keepdims=True)
  return vectors / np.maximum(norms, 1e-9)


def sparsemax(scores: np.ndarray) -> np.ndarray:
  """The nearest point of the simplex (Martins and Astudillo 2016).

  Args:
    scores: [K], the largest first.
  """
  steps = np.arange(1, len(scores) + 1)
  sums = np.cumsum(scores)
  support = steps[1 + steps * scores > sums][-1]
  return np.maximum(scores - (sums[support - 1] - 1) / support, 0)
