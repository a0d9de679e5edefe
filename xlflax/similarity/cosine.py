"""Nearest neighbors by cosine, computed in blocks of bounded memory."""

from typing import NamedTuple

import numpy as np

from xlflax.similarity import vector_checks
from xlflax.utils import errors, validation


class BidirectionalNeighbors(NamedTuple):
  """Nearest neighbors between two sets of vectors, in both directions.

  Attributes:
    forward: Index of the nearest row of `second` for each row of `first`, int
      of shape [N].
    backward: Index of the nearest row of `first` for each row of `second`, int
      of shape [M].
  """

  forward: np.ndarray
  backward: np.ndarray


@validation.validate_call
def find_nearest(
  first: np.ndarray,
  second: np.ndarray,
  *,
  block_size: validation.PositiveInt = 2048,
) -> BidirectionalNeighbors:
  """Finds nearest neighbors by cosine in both directions.

  One pass over blocks of the similarity matrix serves both directions. Ties are
  resolved in favor of the lowest index, so a model that maps all sentences to
  the same vector gets no credit. A zero vector has similarity 0 to every
  vector.

  Args:
    first: Vectors of shape [N, H], float32.
    second: Vectors of shape [M, H], float32. M may be 0 only if N is 0.
    block_size: Number of rows and columns per block of similarities.

  Returns:
    Indices of the nearest neighbors in the opposite set.

  Raises:
    AnalysisError: If an array is not a matrix, the dimensions differ, or only
      one of the sets is empty.
  """
  first = vector_checks.check_axes(first, 'first', 'vectors, dimensions')
  second = vector_checks.check_axes(second, 'second', 'vectors, dimensions')
  vector_checks.check_same_dimension(first, second)
  if bool(len(first)) != bool(len(second)):
    raise errors.AnalysisError(
      '`find_nearest` requires two non-empty sets of vectors, but found arrays '
      f'of shape {first.shape} and {second.shape}',
      fix='Check that both sets of texts contain at least one text.',
    )
  first, second = normalize_rows(first), normalize_rows(second)
  forward = _RunningMaximum(len(first))
  backward = _RunningMaximum(len(second))
  for i in range(0, len(first), block_size):
    for j in range(0, len(second), block_size):
      block = first[i : i + block_size] @ second[j : j + block_size].T
      forward.update(i, block, offset=j)
      backward.update(j, block.T, offset=i)
  return BidirectionalNeighbors(forward.index, backward.index)


@validation.validate_call
def retrieval_accuracy(indices: np.ndarray) -> float:
  """Returns accuracy@1: the fraction of positions i at which indices[i] = i.

  Raises:
    AnalysisError: If the array is empty or is not one-dimensional.
  """
  indices = vector_checks.check_axes(indices, 'indices', 'vectors')
  if not len(indices):
    raise errors.AnalysisError(
      '`retrieval_accuracy` requires at least one index of a nearest neighbor',
      got=len(indices),
    )
  return float(np.mean(indices == np.arange(len(indices))))


@validation.validate_call
def normalize_rows(vectors: np.ndarray) -> np.ndarray:
  """Scales rows [..., H] to unit length. Zero rows remain zero."""
  vectors = vector_checks.check_axes(vectors, 'vectors', '..., dimensions')
  length = np.linalg.norm(vectors, axis=-1, keepdims=True)
  return vectors / np.where(length > 0, length, 1)


class _RunningMaximum:
  """Running maximum of each row over blocks of columns, and its index."""

  def __init__(self, rows: int):
    self.index = np.zeros(rows, np.int64)
    self._value = np.full(rows, -np.inf, np.float32)

  def update(self, start: int, block: np.ndarray, *, offset: int):
    """Updates the maximum score of each row, and the column that contains it.

    Args:
      start: Index of the block's first row.
      block: Scores of shape [rows, columns].
      offset: Index of the block's first column.
    """
    rows = slice(start, start + len(block))
    column = block.argmax(-1)
    value = np.take_along_axis(block, column[:, None], -1)[:, 0]
    is_better = value > self._value[rows]
    self._value[rows][is_better] = value[is_better]
    self.index[rows][is_better] = column[is_better] + offset
