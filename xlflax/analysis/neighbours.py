"""The k nearest neighbours among many vectors, exactly, in bounded memory.

The matrix of similarities is made block by block; what a block adds to the k
best so far is found by one comparison, so that sorting costs little.
"""

from typing import NamedTuple

import numpy as np

from xlflax import errors
from xlflax.analysis import checks


class Blocks(NamedTuple):
  """Rows and columns of a block, which takes 4 bytes a number, six times."""

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
    """Takes in the block [rows, columns] whose first column is `offset`."""
    if self._seen < self._k:  # every column may be among the best
      self._merge(slice(None), block, np.broadcast_to(
          np.arange(block.shape[1]) + offset, block.shape))
    else:
      self._merge_some(block, offset)
    self._seen += block.shape[1]

  def neighbours(self) -> Neighbours:
    return Neighbours(self._scores, self._indices)

  def _merge_some(self, block: np.ndarray, offset: int) -> None:
    """Takes in those entries of a block that beat the row's last."""
    row, column = np.nonzero(block > self._scores[:, -1:])
    if not row.size:
      return
    rows, starts, counts = np.unique(
        row, return_index=True, return_counts=True)
    place = np.arange(row.size) - np.repeat(starts, counts)
    scores = np.full((len(rows), counts.max()), -np.inf, np.float32)
    indices = np.zeros(scores.shape, np.int64)
    which = np.repeat(np.arange(len(rows)), counts)
    scores[which, place] = block[row, column]
    indices[which, place] = column + offset
    self._merge(rows, scores, indices)

  def _merge(self, rows, scores: np.ndarray, indices: np.ndarray) -> None:
    """Merges candidates [rows, n], in the order of their indices."""
    all_scores = np.concatenate([self._scores[rows], scores], 1)
    all_indices = np.concatenate([self._indices[rows], indices], 1)
    order = _greatest(all_scores, self._k)
    self._scores[rows] = np.take_along_axis(all_scores, order, 1)
    self._indices[rows] = np.take_along_axis(all_indices, order, 1)


def _greatest(scores: np.ndarray, k: int) -> np.ndarray:
  """Places [N, k] of the greatest scores, of equal ones the first."""
  if scores.shape[1] <= 64 * k:
    return np.argsort(-scores, axis=1, kind='stable')[:, :k]
  last = -np.partition(-scores, k - 1, axis=1)[:, k - 1:k]  # the k-th greatest
  above = scores > last
  equal = scores == last
  # Of those that equal the k-th, the first that there is room for.
  room = k - above.sum(1, keepdims=True)
  taken = above | (equal & (np.cumsum(equal, 1) <= room))
  places = np.nonzero(taken)[1].reshape(len(scores), k)
  values = np.take_along_axis(scores, places, 1)
  return np.take_along_axis(
      places, np.argsort(-values, axis=1, kind='stable'), 1)
