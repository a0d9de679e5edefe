"""Orthogonal Procrustes maps between the word vectors of two languages.

Source: ECS (Wu et al., 2020) section 5.1, equation 1: W = argmin over
orthogonal W of ||W X - Y||_F = U V^T with U S V^T = SVD(Y X^T), where vectors
are columns. Here, vectors are rows, and a vector x is mapped to x W^T.
"""

import dataclasses

import numpy as np

from xlflax.similarity import vector_checks, vector_normalization
from xlflax.utils import errors, validation

_BLOCK = 1 << 16  # Number of rows that are converted to float64 at once.


@validation.validate_call
def orthogonal_map(source: np.ndarray, target: np.ndarray) -> np.ndarray:
  """Computes the orthogonal matrix that best maps source to target vectors.

  Args:
    source: Source vectors of shape [N, D]. Row i should be mapped to row i of
      `target`.
    target: Target vectors of shape [N, D].

  Returns:
    W, float64 of shape [D, D], such that `source @ W.T` is close to `target`.
    Directions that the vectors do not determine (N < D) are mapped to each
    other arbitrarily.

  Raises:
    AnalysisError: If there are no vectors, a value is not finite, or the shapes
      differ.
  """
  source = vector_checks.check_vectors(source, 'the source')
  target = vector_checks.check_vectors(target, 'the target')
  vector_checks.check_same_dimension(source, target)
  vector_checks.check_same_length(source, target)
  u, _, vt = np.linalg.svd(_cross_product(target, source))
  return u @ vt


@validation.validate_call
def apply_map(matrix: np.ndarray, vectors: np.ndarray) -> np.ndarray:
  """Maps vectors x [..., D] to x W^T without changing their data type.

  Args:
    matrix: Orthogonal matrix W of shape [D, D].
    vectors: Vectors of shape [..., D].

  Raises:
    AnalysisError: If the dimensions do not match.
  """
  vectors = vector_checks.check_axes(vectors, 'vectors', '..., dimensions')
  vector_checks.check_shape((vectors.shape[-1],) * 2, matrix, 'matrix')
  return vectors @ matrix.T.astype(vectors.dtype)


@dataclasses.dataclass(frozen=True)
class Alignment:
  """Orthogonal map between two normalized embedding spaces.

  Attributes:
    matrix: Orthogonal matrix W of shape [D, D].
    source: Result of the iterative normalization of the source vectors.
    target: Result of the iterative normalization of the target vectors.
  """

  matrix: np.ndarray
  source: vector_normalization.Normalized
  target: vector_normalization.Normalized

  def map_source(self, vectors: np.ndarray) -> np.ndarray:
    """Normalizes source vectors [M, D] and maps them to the target space."""
    return apply_map(self.matrix, self.source.apply(vectors))

  def map_target(self, vectors: np.ndarray) -> np.ndarray:
    """Normalizes target vectors [M, D] with the alignment's stored means."""
    return self.target.apply(vectors)


@validation.validate_call
def fit_alignment(
  source: np.ndarray,
  target: np.ndarray,
  *,
  max_rounds: validation.NonNegativeInt = 50,
) -> Alignment:
  """Normalizes both sets of vectors iteratively and fits the orthogonal map.

  Args:
    source: Source vectors of shape [N, D]. Row i should be mapped to row i of
      `target`.
    target: Target vectors of shape [N, D].
    max_rounds: Maximum number of normalization rounds. With 0, vectors are
      only scaled to unit length.

  Raises:
    AnalysisError: If the vectors are not valid for `orthogonal_map`, or all
      vectors of a set are equal.
  """
  sides = [
    vector_normalization.iterative_normalization(side, max_rounds=max_rounds)
    for side in (source, target)
  ]
  matrix = orthogonal_map(sides[0].vectors, sides[1].vectors)
  return Alignment(matrix, *sides)


@validation.validate_call
def fit_vocabulary_alignment(
  source: np.ndarray,
  target: np.ndarray,
  pairs: np.ndarray,
  *,
  max_rounds: validation.NonNegativeInt = 50,
) -> Alignment:
  """Fits an orthogonal map between word vectors, using pairs of a dictionary.

  The method is the same as in `fit_alignment`, except that the normalization
  uses the means of all words.

  Args:
    source: Vectors of all words of the source language, of shape [N, D].
    target: Vectors of all words of the target language, of shape [M, D].
    pairs: Pairs of row indices (source word, target word) that are translations
      of each other, int of shape [P, 2].
    max_rounds: Maximum number of normalization rounds. With 0, vectors are
      only scaled to unit length.

  Raises:
    AnalysisError: If the vectors are not valid for `fit_alignment`, or there is
      no pair.
  """
  pairs = _check_pairs(pairs, (len(source), len(target)))
  if not len(pairs):
    raise errors.AnalysisError(
      'Fitting an alignment map requires at least one dictionary pair for '
      'which both words have vectors',
      fix='Check the letter case of both languages and the order of each pair.',
    )
  sides = [
    vector_normalization.iterative_normalization(side, max_rounds=max_rounds)
    for side in (source, target)
  ]
  matrix = orthogonal_map(
    *(side.vectors[pairs[:, i]] for i, side in enumerate(sides))
  )
  return Alignment(matrix, *sides)


def _check_pairs(pairs: np.ndarray, sizes: tuple[int, int]) -> np.ndarray:
  """Returns valid pairs of row indices, int64 of shape [P, 2]."""
  if pairs.size and (pairs.ndim != 2 or pairs.shape[1] != 2):
    raise errors.AnalysisError(
      'The argument `pairs` of `fit_vocabulary_alignment` must be an array of '
      'shape [num_pairs, 2]',
      got=pairs.shape,
      fix='Create `pairs` with xlflax.analysis.lexicon_induction.index_pairs.',
    )
  pairs = pairs.astype(np.int64).reshape(-1, 2)
  for side, column, size in zip(
    ('source', 'target'), pairs.T, sizes, strict=True
  ):
    outside = column[(column < 0) | (column >= size)]
    if outside.size:
      raise errors.AnalysisError(
        'The argument `pairs` of `fit_vocabulary_alignment` must contain row '
        f'indices of `{side}` from 0 to {size - 1}',
        got=outside[0],
        fix='Pass each pair as the row index in `source`, followed by the row '
        'index in `target`.',
      )
  return pairs


def _cross_product(first: np.ndarray, second: np.ndarray) -> np.ndarray:
  """Returns first^T second [D, D] in float64 without copying all rows."""
  total = np.zeros((first.shape[1], second.shape[1]))
  for start in range(0, len(first), _BLOCK):
    rows = slice(start, start + _BLOCK)
    total += first[rows].astype(np.float64).T @ second[rows].astype(np.float64)
  return total
