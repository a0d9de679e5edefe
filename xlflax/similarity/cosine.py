"""Nearest neighbours by cosine, in blocks that bound the memory."""

from typing import NamedTuple

import numpy as np

from xlflax.foundation import errors, validation
from xlflax.similarity import checks


class Neighbours(NamedTuple):
  """The most similar vector of the other side for each vector.

  Attributes:
    forward: int [N], for each row of `first` an index into `second`.
    backward: int [M], for each row of `second` an index into `first`.
  """

  forward: np.ndarray
  backward: np.ndarray


@validation.validate_call
def nearest(
  first: np.ndarray,
  second: np.ndarray,
  *,
  block_size: validation.PositiveInt = 2048,
) -> Neighbours:
  """Finds nearest neighbours by cosine in both directions.

  One pass over blocks of the similarity matrix serves both directions. Of
  equally similar vectors the one with the lowest index counts, so that a model
  that maps all sentences to one vector gets no credit. A zero vector has
  similarity 0 to everything.

  Args:
    first: float32 [N, H].
    second: float32 [M, H], M > 0 where N > 0.
    block_size: rows and columns of a block.

  Returns:
    Indices into the other side.

  Raises:
    AnalysisError: no tables of vectors, of different sizes, or one is empty.
  """
  first = checks.shaped(first, 'first', 'vectors, dimensions')
  second = checks.shaped(second, 'second', 'vectors, dimensions')
  checks.same_dimension(first, second)
  if bool(len(first)) != bool(len(second)):
    raise errors.AnalysisError(
      'One side has no vectors to be near to',
      got=f'shapes {first.shape} and {second.shape}',
      expected='vectors on both sides',
      where='cosine.nearest',
      fix='look why there is no text on one side',
    )
  first, second = unit_rows(first), unit_rows(second)
  forward = _Best(len(first))
  backward = _Best(len(second))
  for i in range(0, len(first), block_size):
    for j in range(0, len(second), block_size):
      block = first[i : i + block_size] @ second[j : j + block_size].T
      forward.update(i, block, offset=j)
      backward.update(j, block.T, offset=i)
  return Neighbours(forward.index, backward.index)


@validation.validate_call
def accuracy(indices: np.ndarray) -> float:
  """Returns the share of `neighbours` [N] with neighbours[i] = i.

  Raises:
    AnalysisError: these are no indices, or none.
  """
  indices = checks.shaped(indices, 'indices', 'vectors')
  if not len(indices):
    raise errors.AnalysisError(
      'Of no vectors there is no accuracy',
      got='shape (0,)',
      expected='an index for each of some vectors',
      where='cosine.accuracy',
    )
  return float(np.mean(indices == np.arange(len(indices))))


@validation.validate_call
def unit_rows(vectors: np.ndarray) -> np.ndarray:
  """Scales rows [..., H] to unit length; zero rows stay zero."""
  vectors = checks.shaped(vectors, 'vectors', '..., dimensions')
  length = np.linalg.norm(vectors, axis=-1, keepdims=True)
  return vectors / np.where(length > 0, length, 1)


class _Best:
  """Running maximum over blocks of columns, and its place."""

  def __init__(self, rows: int):
    self.index = np.zeros(rows, np.int64)
    self._value = np.full(rows, -np.inf, np.float32)

  def update(self, start: int, block: np.ndarray, *, offset: int):
    """`block` [rows, columns] begins at row `start`, column `offset`."""
    rows = slice(start, start + len(block))
    column = block.argmax(-1)
    value = np.take_along_axis(block, column[:, None], -1)[:, 0]
    better = value > self._value[rows]
    self._value[rows][better] = value[better]
    self.index[rows][better] = column[better] + offset
