"""The k nearest neighbours among many vectors, exactly, in bounded memory.

The matrix of similarities is made block by block; what a block adds to the k
best so far is found by one comparison, so that sorting costs little.
"""

from typing import NamedTuple

import numpy as np

from xlflax import errors
from xlflax.analysis import checks


class Blocks(NamedTuple):
  """Rows and columns of a block of float32 similarities."""

  queries: int = 4096
  keys: int = 8192


BLOCKS = Blocks()


class Neighbours(NamedTuple):
  """The nearest keys of N queries, the nearest first.

  Attributes:
    scores: float32 [N, k].
    indices: int64 [N, k], into the keys.
  """

  scores: np.ndarray
  indices: np.ndarray


def nearest(queries: np.ndarray, keys: np.ndarray, *, k: int,
            penalties: np.ndarray | None = None, blocks: Blocks = BLOCKS
            ) -> Neighbours:
  """The k keys with the greatest inner product, less the keys' penalties.

  Of equal scores that of the lowest index counts, so that a model that maps
  everything to one vector gets no credit.

  Args:
    queries: [N, D]; unit vectors give cosines.
    keys: [M, D].
    k: how many; min(k, M) are given.
    penalties: [M], subtracted from the keys' scores; None: 0.
    blocks: sizes that bound the memory.

  Raises:
    AnalysisError: no or not finite vectors, different sizes, k < 1.
  """
  _check(queries, keys, k)
  found = []
  for i in range(0, len(queries), blocks.queries):
    rows = _single(queries[i:i + blocks.queries])
    best = _Best(len(rows), min(k, len(keys)))
    for j in range(0, len(keys), blocks.keys):
      columns = slice(j, j + blocks.keys)
      scores = rows @ _single(keys[columns]).T
      if penalties is not None:
        scores -= penalties[columns].astype(np.float32)[None]
      best.update(scores, j)
    found.append(best)
  return _joined(found)


def nearest_both(first: np.ndarray, second: np.ndarray, *, k: int,
                 blocks: Blocks = BLOCKS
                 ) -> tuple[Neighbours, Neighbours]:
  """`nearest` of first in second and of second in first, in one pass.

  Returns:
    ([N, min(k, M)], [M, min(k, N)]); errors as `nearest`.
  """
  _check(first, second, k)
  backward = [
      _Best(len(second[j:j + blocks.keys]), min(k, len(first)))
      for j in range(0, len(second), blocks.keys)]
  forward = []
  for i in range(0, len(first), blocks.queries):
    queries = _single(first[i:i + blocks.queries])
    best = _Best(len(queries), min(k, len(second)))
    for n, j in enumerate(range(0, len(second), blocks.keys)):
      block = queries @ _single(second[j:j + blocks.keys]).T
      best.update(block, j)
      backward[n].update(np.ascontiguousarray(block.T), i)
    forward.append(best)
  return _joined(forward), _joined(backward)


def _check(queries: np.ndarray, keys: np.ndarray, k: int) -> None:
  checks.same_dimension(checks.vectors(queries, 'the queries'),
                        checks.vectors(keys, 'the keys'))
  if k < 1:
    raise errors.AnalysisError('There is no such number of neighbours',
                               got=k, expected='at least 1')


def _single(vectors: np.ndarray) -> np.ndarray:
  return np.asarray(vectors, np.float32)


def _joined(parts: list['_Best']) -> Neighbours:
  found = [part.neighbours() for part in parts]
  return Neighbours(np.concatenate([part.scores for part in found]),
                    np.concatenate([part.indices for part in found]))


class _Best:
  """The k greatest of each row, over blocks of columns."""

  def __init__(self, rows: int, k: int):
    self._k = k
    self._scores = np.full((rows, k), -np.inf, np.float32)
    self._indices = np.zeros((rows, k), np.int64)
    self._seen = 0

  def update(self, block: np.ndarray, offset: int) -> None:
    """Takes in the block [rows, columns] whose first column is `offset`.

    At first in narrow stripes, each as wide as all before it, so that few
    entries beat what is known already.
    """
    start = 0
    while start < block.shape[1]:
      width = max(8 * self._k, self._seen)
      stripe = block[:, start:start + width]
      if self._seen < self._k:  # every column may be among the best
        self._merge(slice(None), stripe, np.broadcast_to(
            np.arange(stripe.shape[1]) + offset + start, stripe.shape))
      else:
        self._merge_some(stripe, offset + start)
      self._seen += stripe.shape[1]
      start += width

  def neighbours(self) -> Neighbours:
    return Neighbours(self._scores, self._indices)

  def _merge_some(self, block: np.ndarray, offset: int) -> None:
    """Takes in those entries of a block that beat the row's last."""
    row, column = np.nonzero(block > self._scores[:, -1:])
    if not row.size:
      return
    counts = np.bincount(row, minlength=len(block))
    place = np.arange(row.size) - np.repeat(np.cumsum(counts) - counts, counts)
    rows = np.flatnonzero(counts)
    which = np.repeat(np.arange(rows.size), counts[rows])
    scores = np.full((rows.size, counts.max()), -np.inf, np.float32)
    indices = np.zeros(scores.shape, np.int64)
    scores[which, place] = block[row, column]
    indices[which, place] = column + offset
    self._merge(rows, scores, indices)

  def _merge(self, rows, scores: np.ndarray, indices: np.ndarray) -> None:
    """Merges candidates [rows, n], in the order of their indices."""
    scores = np.concatenate([self._scores[rows], scores], 1)
    indices = np.concatenate([self._indices[rows], indices], 1)
    order = np.argsort(-scores, axis=1, kind='stable')[:, :self._k]
    self._scores[rows] = np.take_along_axis(scores, order, 1)
    self._indices[rows] = np.take_along_axis(indices, order, 1)
