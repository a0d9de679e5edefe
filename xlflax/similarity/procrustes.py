"""The orthogonal map from one language's vectors to another's.

Source: ECS (Wu et al., 2020) section 5.1, equation 1: W = argmin over
orthogonal W of ||W X - Y||_F = U V^T with U S V^T = SVD(Y X^T), there with
vectors as columns. Here vectors are rows, and a vector x is mapped to x W^T.
"""

import dataclasses

import numpy as np

from xlflax.foundation import errors, validation
from xlflax.similarity import checks, normalization

_BLOCK = 1 << 16  # rows that are converted to float64 together


@validation.validate_call
def orthogonal_map(source: np.ndarray, target: np.ndarray) -> np.ndarray:
  """Finds the orthogonal matrix that maps source nearest to target.

  Args:
    source: [N, D], row i to be mapped to row i of `target`.
    target: [N, D].

  Returns:
    W float64 [D, D]; `source @ W.T` is near to `target`. Directions
    without rows (N < D) are mapped to each other arbitrarily.

  Raises:
    AnalysisError: no or not finite vectors, other numbers or dimensions.
  """
  source = checks.vectors(source, 'the source')
  target = checks.vectors(target, 'the target')
  checks.same_dimension(source, target)
  checks.paired(source, target)
  u, _, vt = np.linalg.svd(_cross(target, source))
  return u @ vt


@validation.validate_call
def apply(matrix: np.ndarray, vectors: np.ndarray) -> np.ndarray:
  """Maps rows [N, D] by W [D, D] to x W^T, in the type of `vectors`.

  Raises:
    AnalysisError: the sizes do not fit.
  """
  vectors = checks.shaped(vectors, 'vectors', '..., dimensions')
  checks.fitting((vectors.shape[-1],) * 2, matrix, 'matrix')
  return vectors @ matrix.T.astype(vectors.dtype)


@dataclasses.dataclass(frozen=True)
class Alignment:
  """A map between two normalised spaces.

  Attributes:
    matrix: W [D, D].
    source: normalisation of the source's vectors.
    target: normalisation of the target's vectors.
  """

  matrix: np.ndarray
  source: normalization.Normalized
  target: normalization.Normalized

  def map_source(self, vectors: np.ndarray) -> np.ndarray:
    """Normalises source vectors [M, D] and maps them to the target space."""
    return apply(self.matrix, self.source.apply(vectors))

  def map_target(self, vectors: np.ndarray) -> np.ndarray:
    """Normalises target vectors [M, D] as those of the alignment."""
    return self.target.apply(vectors)


@validation.validate_call
def align(
  source: np.ndarray,
  target: np.ndarray,
  *,
  max_rounds: validation.NonNegativeInt = 50,
) -> Alignment:
  """Normalises both sides iteratively, then finds the orthogonal map.

  Args:
    source: [N, D], row i to be mapped to row i of `target`.
    target: [N, D].
    max_rounds: of the normalisation; 0: unit length only.

  Raises:
    AnalysisError: as `orthogonal_map`, or all vectors of a side are alike.
  """
  sides = [
    normalization.iterative_normalization(side, max_rounds=max_rounds)
    for side in (source, target)
  ]
  matrix = orthogonal_map(sides[0].vectors, sides[1].vectors)
  return Alignment(matrix, *sides)


@validation.validate_call
def align_vocabularies(
  source: np.ndarray,
  target: np.ndarray,
  pairs: np.ndarray,
  *,
  max_rounds: validation.NonNegativeInt = 50,
) -> Alignment:
  """Aligns whole vocabularies by a dictionary.

  Like `align`, but the normalisation is that of all words.

  Args:
    source: [N, D], all words of the source language.
    target: [M, D], all words of the target language.
    pairs: int [P, 2], rows of source and target that translate each other.
    max_rounds: of the normalisation; 0: unit length only.

  Raises:
    AnalysisError: as `align`, or there is no pair.
  """
  pairs = _pairs(pairs, (len(source), len(target)))
  if not len(pairs):
    raise errors.AnalysisError(
      'There is no pair of words to learn a map from',
      got='a dictionary none of whose pairs has vectors on both sides',
      fix='look whether both are lowercased, and the right way round',
    )
  sides = [
    normalization.iterative_normalization(side, max_rounds=max_rounds)
    for side in (source, target)
  ]
  matrix = orthogonal_map(
    *(side.vectors[pairs[:, i]] for i, side in enumerate(sides))
  )
  return Alignment(matrix, *sides)


def _pairs(pairs: np.ndarray, sizes: tuple[int, int]) -> np.ndarray:
  """int64 [P, 2], rows that are there."""
  if pairs.size and (pairs.ndim != 2 or pairs.shape[1] != 2):
    raise errors.AnalysisError(
      'Pairs of words are two columns of rows',
      got=f'shape {pairs.shape}',
      expected='[pairs, 2]',
      where='align_vocabularies.pairs',
      fix='make them with xlflax.analysis.dictionaries.index_pairs',
    )
  pairs = pairs.astype(np.int64).reshape(-1, 2)
  for column, size in zip(pairs.T, sizes, strict=True):
    outside = column[(column < 0) | (column >= size)]
    if outside.size:
      raise errors.AnalysisError(
        'A pair names a word that has no vector',
        got=f'row {outside[0]}',
        expected=f'0 to {size - 1}',
        where='align_vocabularies.pairs',
        fix='give rows of these vectors, source and target the right way round',
      )
  return pairs


def _cross(first: np.ndarray, second: np.ndarray) -> np.ndarray:
  """first^T second [D, D] in float64, without a copy of all rows."""
  total = np.zeros((first.shape[1], second.shape[1]))
  for start in range(0, len(first), _BLOCK):
    rows = slice(start, start + _BLOCK)
    total += first[rows].astype(np.float64).T @ second[rows].astype(np.float64)
  return total
