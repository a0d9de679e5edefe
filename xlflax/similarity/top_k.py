"""Blockwise top-k selection for each row and column of a matrix.

All entries of a block are compared with a limit per row and per column in one
vectorized operation. Only the few entries above a limit are merged with the
current top k.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

_CACHED = 1 << 18  # Number of matrix entries that fit in the processor's cache.
_STRIPE = 1 << 20  # Maximum number of entries that are yielded at once.


def compute_limits(
  top_k: tuple['TopK', 'TopK'],
  first_row: int,
  first_column: int,
  block: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the scores that a block's entries must exceed to be in the top k.

  Args:
    top_k: Pair of the entries found so far: the top k entries in each row, and
      the top k entries in each column.
    first_row: Index of the block's first row.
    first_column: Index of the block's first column.
    block: Scores of shape [rows, columns].

  Returns:
    Limits of the rows, of shape [rows], and limits of the columns, of shape
    [columns].
  """
  if first_column:
    row_limits = top_k[0].lowest_scores(first_row, len(block))
  else:
    row_limits = compute_lower_limits(block, top_k[0].size)
  if first_row:
    column_limits = top_k[1].lowest_scores(first_column, block.shape[1])
  else:
    column_limits = compute_lower_limits(block, top_k[1].size, axis=0)
  return row_limits, column_limits


def merge_hits(
  top_k: tuple['TopK', 'TopK'],
  hits: 'Hits',
  first_row: int,
  first_column: int,
  limits: tuple[np.ndarray, np.ndarray],
) -> None:
  """Merges candidates in a block of scores into the top k of rows and columns.

  Args:
    top_k: Pair of the entries found so far: the top k entries in each row, and
      the top k entries in each column.
    hits: Entries of the block that may be among the top k of their row or
      column.
    first_row: Index of the block's first row.
    first_column: Index of the block's first column.
    limits: Row limits and column limits, as returned by `compute_limits`.
  """
  selected = hits.scores > limits[0][hits.rows]
  top_k[0].merge(
    Hits(*(part[selected] for part in hits)), first_row, first_column
  )
  selected = np.flatnonzero(hits.scores > limits[1][hits.columns])
  selected = selected[np.argsort(hits.columns[selected], kind='stable')]
  top_k[1].merge(
    Hits(hits.columns[selected], hits.rows[selected], hits.scores[selected]),
    first_column,
    first_row,
  )


class Hits(NamedTuple):
  """Entries of a block of scores that are candidates for a row's top k.

  Attributes:
    rows: Row indices of shape [n], ascending.
    columns: Column indices of shape [n], ascending within each row.
    scores: Scores of shape [n].
  """

  rows: np.ndarray
  columns: np.ndarray
  scores: np.ndarray


def exceeds_limits(
  block: np.ndarray,
  row_limits: np.ndarray,
  column_limits: np.ndarray | None = None,
) -> np.ndarray:
  """Returns a mask of entries that exceed the limit of their row or column.

  Args:
    block: Scores of shape [N, M].
    row_limits: Score limit of each row, of shape [N].
    column_limits: Score limit of each column, of shape [M]. If None, only the
      limits of the rows apply.

  Returns:
    Boolean mask of shape [N, M].
  """
  mask = np.empty(block.shape, bool)
  for stripe in iterate_stripes(block):
    np.greater(block[stripe], row_limits[stripe, None], out=mask[stripe])
    if column_limits is not None:
      mask[stripe] |= block[stripe] > column_limits[None]
  return mask


def iterate_stripes(block: np.ndarray) -> Iterator[slice]:
  """Yields slices of a block's rows that fit in the processor's cache."""
  step = max(1, _CACHED // block.shape[1])
  for start in range(0, len(block), step):
    yield slice(start, start + step)


def iterate_hits(block: np.ndarray, mask: np.ndarray) -> Iterator[Hits]:
  """Yields the entries of a block that a mask selects.

  All entries are yielded at once, or in stripes of rows if there are many.

  Args:
    block: Scores of shape [rows, columns].
    mask: Boolean mask that selects the entries, of shape [rows, columns].
  """
  height, width = block.shape
  step = (
    height if np.count_nonzero(mask) <= _STRIPE else max(1, _STRIPE // width)
  )
  for start in range(0, height, step):
    positions = np.flatnonzero(mask[start : start + step])
    if positions.size:
      rows, columns = np.divmod(positions, width)
      yield Hits(
        start + rows,
        columns,
        block[start : start + step].reshape(-1)[positions],
      )


def compute_lower_limits(
  block: np.ndarray, k: int, *, axis: int = 1
) -> np.ndarray:
  """Returns lower bounds for the k-th greatest entries along an axis.

  Each line along the axis is divided into 4 k parts. The k-th greatest of the
  parts' maxima is at most the k-th greatest entry, so at least k entries exceed
  the returned limit.

  Args:
    block: Scores of shape [N, M].
    k: Minimum number of entries that must exceed the returned limit.
    axis: Axis along which entries are compared.

  Returns:
    Limits of shape [N] or [M]. They are -inf if the block is too small to be
    divided.
  """
  parts = 4 * k
  size = block.shape[axis] // parts
  if size < 2:
    return np.full(block.shape[1 - axis], -np.inf, np.float32)
  if axis == 1:
    maxima = block[:, : parts * size].reshape(len(block), parts, size).max(2)
  else:
    maxima = block[: parts * size].reshape(parts, size, -1).max(1).T
  return np.nextafter(
    np.partition(maxima, -k, axis=1)[:, -k], np.float32(-np.inf)
  )


class TopK:
  """Greatest k entries of each of N rows, updated block by block.

  Attributes:
    size: Number k of entries to keep per row.
    scores: Greatest scores in descending order, of shape [N, k].
    indices: Column indices of the entries in `scores`, of shape [N, k].
  """

  def __init__(self, num_rows: int, k: int):
    self.size = k
    self.scores = np.full((num_rows, k), -np.inf, np.float32)
    self.indices = np.zeros((num_rows, k), np.int64)

  def lowest_scores(self, start: int, count: int) -> np.ndarray:
    """Returns the k-th greatest score so far for each of `count` rows."""
    return self.scores[start : start + count, -1]

  def merge(self, hits: Hits, first_row: int, first_column: int) -> None:
    """Merges the candidates in a block of scores into the top k of each row.

    The block must be to the right of all earlier blocks.
    """
    if not hits.rows.size:
      return
    unique_rows, counts = np.unique(hits.rows, return_counts=True)
    starts = np.cumsum(counts) - counts
    step = 4 * self.size
    for first in range(0, int(counts.max()), step):
      sizes = np.clip(counts - first, 0, step)
      has_more = sizes > 0
      offsets = np.arange(sizes.max())[None]
      positions = np.minimum(
        (starts[has_more] + first)[:, None] + offsets, hits.rows.size - 1
      )
      is_present = offsets < sizes[has_more][:, None]
      self._merge_candidates(
        first_row + unique_rows[has_more],
        np.where(is_present, hits.scores[positions], -np.inf),
        np.where(is_present, first_column + hits.columns[positions], 0),
      )

  def _merge_candidates(
    self, rows, scores: np.ndarray, indices: np.ndarray
  ) -> None:
    """Merges candidates [rows, n], which are ordered by their indices."""
    scores = np.concatenate([self.scores[rows], scores], 1)
    indices = np.concatenate([self.indices[rows], indices], 1)
    order = np.argsort(-scores, axis=1, kind='stable')[:, : self.size]
    self.scores[rows] = np.take_along_axis(scores, order, 1)
    self.indices[rows] = np.take_along_axis(indices, order, 1)
