"""Blockwise top-k: the greatest entries of a matrix's rows and columns.

A limit for each row and column is compared with all entries of a block at once;
the few that exceed it are merged with the best so far.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

_CACHED = 1 << 18  # entries of a block that are looked at together
_STRIPE = 1 << 20  # entries that may all be among the best


def limits_of_both(
  both: tuple['TopK', 'TopK'], i: int, j: int, block: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Returns limits that the best entries of rows and columns exceed.

  Args:
    both: the best of all rows, and of all columns.
    i: the block's first row.
    j: its first column.
    block: [rows, columns].

  Returns:
    ([rows], [columns]).
  """
  return (
    both[0].known(i, len(block)) if j else lower_limits(block, both[0].size),
    both[1].known(j, block.shape[1])
    if i
    else lower_limits(block, both[1].size, axis=0),
  )


def take_both(
  both: tuple['TopK', 'TopK'],
  found: 'Hits',
  i: int,
  j: int,
  limits: tuple[np.ndarray, np.ndarray],
) -> None:
  """Merges entries of a block into the best of their rows and columns.

  Arguments as of `limits_of_both`, which returned `limits` [rows], [columns].
  """
  chosen = found.scores > limits[0][found.rows]
  both[0].take(Hits(*(part[chosen] for part in found)), i, j)
  chosen = np.flatnonzero(found.scores > limits[1][found.columns])
  chosen = chosen[np.argsort(found.columns[chosen], kind='stable')]
  both[1].take(
    Hits(found.columns[chosen], found.rows[chosen], found.scores[chosen]), j, i
  )


class Hits(NamedTuple):
  """Entries of a block that may be among the best of their rows.

  Attributes:
    rows: [n], ascending.
    columns: [n], ascending for each row.
    scores: [n].
  """

  rows: np.ndarray
  columns: np.ndarray
  scores: np.ndarray


def above(
  block: np.ndarray, rows: np.ndarray, columns: np.ndarray | None = None
) -> np.ndarray:
  """Returns which entries exceed the limit of their row or column.

  Args:
    block: [N, M].
    rows: [N].
    columns: [M]; None: only rows count.

  Returns:
    bool [N, M].
  """
  wanted = np.empty(block.shape, bool)
  for part in stripes(block):
    np.greater(block[part], rows[part, None], out=wanted[part])
    if columns is not None:
      wanted[part] |= block[part] > columns[None]
  return wanted


def stripes(block: np.ndarray) -> Iterator[slice]:
  """Yields slices of rows of `block` [N, M] that fit the processor's cache."""
  step = max(1, _CACHED // block.shape[1])
  for start in range(0, len(block), step):
    yield slice(start, start + step)


def hits(block: np.ndarray, wanted: np.ndarray) -> Iterator[Hits]:
  """Yields the entries where a mask is true.

  In one piece, or in stripes if many are wanted.

  Args:
    block: [rows, columns].
    wanted: bool [rows, columns].
  """
  height, width = block.shape
  step = (
    height if np.count_nonzero(wanted) <= _STRIPE else max(1, _STRIPE // width)
  )
  for start in range(0, height, step):
    found = np.flatnonzero(wanted[start : start + step])
    if found.size:
      rows, columns = np.divmod(found, width)
      yield Hits(
        start + rows, columns, block[start : start + step].reshape(-1)[found]
      )


def lower_limits(block: np.ndarray, k: int, *, axis: int = 1) -> np.ndarray:
  """Returns limits below the k-th greatest entries along an axis.

  At least k of 4 k parts of the block [N, M] have an entry above the limit,
  [N] or [M]. It is -inf if the block is too small for parts.
  """
  parts = 4 * k
  size = block.shape[axis] // parts
  if size < 2:
    return np.full(block.shape[1 - axis], -np.inf, np.float32)
  if axis == 1:
    found = block[:, : parts * size].reshape(len(block), parts, size).max(2)
  else:
    found = block[: parts * size].reshape(parts, size, -1).max(1).T
  return np.nextafter(
    np.partition(found, -k, axis=1)[:, -k], np.float32(-np.inf)
  )


class TopK:
  """The k greatest entries of each of N rows, over blocks of columns."""

  def __init__(self, rows: int, k: int):
    self.size = k
    self.scores = np.full((rows, k), -np.inf, np.float32)
    self.indices = np.zeros((rows, k), np.int64)

  def known(self, start: int, count: int) -> np.ndarray:
    """Returns the k-th best scores of some rows, [count]."""
    return self.scores[start : start + count, -1]

  def take(self, found: Hits, first_row: int, first_column: int) -> None:
    """Merges entries of a block that is to the right of earlier ones."""
    if not found.rows.size:
      return
    places, counts = np.unique(found.rows, return_counts=True)
    starts = np.cumsum(counts) - counts
    step = 4 * self.size
    for first in range(0, int(counts.max()), step):
      sizes = np.clip(counts - first, 0, step)
      more = sizes > 0
      column = np.arange(sizes.max())[None]
      source = np.minimum(
        (starts[more] + first)[:, None] + column, found.rows.size - 1
      )
      there = column < sizes[more][:, None]
      self._merge(
        first_row + places[more],
        np.where(there, found.scores[source], -np.inf),
        np.where(there, first_column + found.columns[source], 0),
      )

  def _merge(self, rows, scores: np.ndarray, indices: np.ndarray) -> None:
    """Merges candidates [rows, n], in the order of their indices."""
    scores = np.concatenate([self.scores[rows], scores], 1)
    indices = np.concatenate([self.indices[rows], indices], 1)
    order = np.argsort(-scores, axis=1, kind='stable')[:, : self.size]
    self.scores[rows] = np.take_along_axis(scores, order, 1)
    self.indices[rows] = np.take_along_axis(indices, order, 1)
