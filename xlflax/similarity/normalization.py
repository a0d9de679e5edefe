"""Vectors of zero mean: by subtraction, and by iterative normalisation.

Source: Zhang et al. (2019, "Are girls neko or shōjo?") section 3, which ECS
(Wu et al., 2020) section 5.1 applies before an orthogonal mapping is learned:
division by the length and subtraction of the mean, in turn, until neither
changes anything. The orthogonal map between two sides can then be right for
their means and lengths, too.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from xlflax.foundation import errors, validation
from xlflax.similarity import checks


def centred(vectors: np.ndarray, groups: Sequence[str]) -> np.ndarray:
  """Subtracts from each vector [N, H] the mean of its group.

  Args:
    vectors: of any float type, which is that of the result.
    groups: N, such as the language of each.
  """
  found = np.empty_like(vectors)
  names, numbers = np.unique(np.asarray(groups), return_inverse=True)
  for number in range(len(names)):
    rows = numbers == number
    mean = vectors[rows].mean(0, keepdims=True, dtype=np.float64)
    found[rows] = vectors[rows] - mean.astype(vectors.dtype)
  return found


@dataclasses.dataclass(frozen=True)
class Normalized:
  """Vectors at (or near) the fixed point, and the rounds that lead there.

  Attributes:
    vectors: float [N, D], of unit length.
    means: float64 [rounds, D], the mean that each round subtracted.
  """

  vectors: np.ndarray
  means: np.ndarray

  @validation.validate_call
  def apply(self, vectors: np.ndarray) -> np.ndarray:
    """Normalises other vectors [M, D] of the same language by the same rounds.

    For test words and sentences, which must not influence the means.
    """
    vectors = _unit(checks.vectors(vectors, 'the other vectors'))
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
  """Alternates between unit length and zero mean.

  Args:
    vectors: [N, D] of one language, of any float type, which is that of the
      computation; means are float64.
    max_rounds: rounds at most (the source makes five).
    tolerance: rounds end when the mean's length is at most this.

  Returns:
    The vectors after the last division, and the means.

  Raises:
    AnalysisError: no or not finite vectors; fewer than two different ones.
  """
  found = _unit(checks.vectors(vectors, 'a language'))
  means: list[np.ndarray] = []
  while _length(found) > tolerance and len(means) < max_rounds:
    mean = found.mean(0, dtype=np.float64)
    found -= mean[None].astype(found.dtype)  # in place: the vectors are many
    lengths = np.linalg.norm(found, axis=-1, keepdims=True)
    if not means and lengths.max() <= 1e-6:
      raise errors.AnalysisError(
        'Vectors that are all alike have no direction once centred',
        got=f'{len(found)} vectors',
        expected='at least two different ones',
      )
    found /= np.where(lengths > 0, lengths, 1)
    means.append(mean)
  return Normalized(found, np.array(means).reshape(-1, found.shape[1]))


def _length(vectors: np.ndarray) -> float:
  """Of the mean."""
  return float(np.linalg.norm(vectors.mean(0, dtype=np.float64)))


def _unit(vectors: np.ndarray) -> np.ndarray:
  if not np.issubdtype(vectors.dtype, np.floating):
    vectors = vectors.astype(np.float64)
  length = np.linalg.norm(vectors, axis=-1, keepdims=True)
  return vectors / np.where(length > 0, length, 1)
