"""Mean centering and iterative normalization of vectors.

Source: Zhang et al. (2019, "Are girls neko or shōjo?") section 3, which ECS (Wu
et al., 2020) section 5.1 applies before fitting an orthogonal map. Vectors are
alternately scaled to unit length and centered until both operations leave them
unchanged. The orthogonal map between two languages can then match their means
and lengths, too.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from xlflax.similarity import vector_checks
from xlflax.utils import errors, validation


def center_by_group(vectors: np.ndarray, groups: Sequence[str]) -> np.ndarray:
  """Subtracts from each vector [N, H] the mean of its group.

  Args:
    vectors: Vectors of shape [N, H], of any float type. The result has the same
      type.
    groups: Name of each vector's group, such as its language.
  """
  centered = np.empty_like(vectors)
  unique_groups, group_indices = np.unique(
    np.asarray(groups), return_inverse=True
  )
  for index in range(len(unique_groups)):
    rows = group_indices == index
    mean = vectors[rows].mean(0, keepdims=True, dtype=np.float64)
    centered[rows] = vectors[rows] - mean.astype(vectors.dtype)
  return centered


@dataclasses.dataclass(frozen=True)
class Normalized:
  """Result of iterative normalization: the vectors and the subtracted means.

  Attributes:
    vectors: Unit vectors, float of shape [N, D].
    means: Mean that was subtracted in each round, float64 of shape [rounds, D].
  """

  vectors: np.ndarray
  means: np.ndarray

  @validation.validate_call
  def apply(self, vectors: np.ndarray) -> np.ndarray:
    """Normalizes additional vectors [M, D] with the stored means.

    Use this method for test words and sentences of the same language, which
    must not influence the means.
    """
    vectors = _unit(vector_checks.check_vectors(vectors, 'the language'))
    for mean in self.means:
      vectors = _unit(vectors - mean[None].astype(vectors.dtype))
    return vectors


@validation.validate_call
def iterative_normalization(
  vectors: np.ndarray,
  *,
  max_rounds: validation.NonNegativeInt = 50,
  tolerance: validation.NonNegativeFloat = 1e-6,
) -> Normalized:
  """Repeatedly scales vectors to unit length and subtracts their mean.

  Args:
    vectors: Vectors of one language, of shape [N, D]. The computation uses the
      vectors' float type, and means are float64.
    max_rounds: Maximum number of rounds. The original paper uses five.
    tolerance: Norm of the mean at or below which the iteration ends.

  Returns:
    The vectors after the last scaling, and the means.

  Raises:
    AnalysisError: If there are no vectors, a value is not finite, or all
      vectors are equal.
  """
  normalized = _unit(vector_checks.check_vectors(vectors, 'a language'))
  means: list[np.ndarray] = []
  while _mean_norm(normalized) > tolerance and len(means) < max_rounds:
    mean = normalized.mean(0, dtype=np.float64)
    # The operations are in place to save memory.
    normalized -= mean[None].astype(normalized.dtype)
    norms = np.linalg.norm(normalized, axis=-1, keepdims=True)
    if not means and norms.max() <= 1e-6:
      raise errors.AnalysisError(
        'Iterative normalization requires at least two different vectors, but '
        f'all vectors are equal. The number of vectors is {len(normalized)}'
      )
    normalized /= np.where(norms > 0, norms, 1)
    means.append(mean)
  return Normalized(
    normalized, np.array(means).reshape(-1, normalized.shape[1])
  )


def _mean_norm(vectors: np.ndarray) -> float:
  """Returns the norm of the mean vector."""
  return float(np.linalg.norm(vectors.mean(0, dtype=np.float64)))


def _unit(vectors: np.ndarray) -> np.ndarray:
  if not np.issubdtype(vectors.dtype, np.floating):
    vectors = vectors.astype(np.float64)
  norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
  return vectors / np.where(norms > 0, norms, 1)
