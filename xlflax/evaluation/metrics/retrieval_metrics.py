"""Accuracy of finding a sentence's translation among vectors.

CSLS (Conneau et al., 2018, section 2.3) beside the cosine: it penalises
vectors that are near to everything.
"""

from typing import NamedTuple

import numpy as np

from xlflax.evaluation.metrics.string_overlap import Kind
from xlflax.similarity import cosine, csls

_KINDS = {'': None, '_unshared': Kind.UNSHARED, '_shared': Kind.SHARED}


class PairScores(NamedTuple):
  """Accuracy@1 of one language pair, [layers + 1] each."""

  forward: np.ndarray
  backward: np.ndarray

  @property
  def mean(self) -> np.ndarray:
    """The mean over both directions, by layer."""
    return (self.forward + self.backward) / 2


def score_layers(first: np.ndarray, second: np.ndarray) -> PairScores:
  """Accuracy@1 for each layer of two [layers + 1, N, H] sets of vectors."""
  neighbors_by_layer = [
    cosine.find_nearest(x, y) for x, y in zip(first, second, strict=True)
  ]
  return PairScores(
    np.array(
      [cosine.retrieval_accuracy(n.forward) for n in neighbors_by_layer]
    ),
    np.array(
      [cosine.retrieval_accuracy(n.backward) for n in neighbors_by_layer]
    ),
  )


def nearest_by_csls(
  first: np.ndarray, second: np.ndarray, *, k: int
) -> cosine.BidirectionalNeighbors:
  """Finds nearest neighbours by CSLS in both directions; [N, H], [M, H]."""
  sides = (first, second), (second, first)
  return cosine.BidirectionalNeighbors(
    *(csls.find_nearest(x, y, k=k).indices[:, 0] for x, y in sides)
  )


class MeanCosines(NamedTuple):
  """How similar vectors are: both are near 1 where all point one way.

  Attributes:
    pairs: the mean cosine of pairs.
    others: that of two sentences that are no pair; NaN for one pair.
  """

  pairs: float
  others: float


def mean_cosines(first: np.ndarray, second: np.ndarray) -> MeanCosines:
  """Mean cosines of N pairs of vectors, [N, H] each."""
  first, second = cosine.normalize_rows(first), cosine.normalize_rows(second)
  count = len(first)
  pairs = float(np.sum(first * second, dtype=np.float64))
  everything = first.sum(0, dtype=np.float64) @ second.sum(0, dtype=np.float64)
  num_other_pairs = count * (count - 1)
  return MeanCosines(
    pairs / count,
    (everything - pairs) / num_other_pairs if num_other_pairs else float('nan'),
  )


def retrieval_accuracies(
  name: str, indices: np.ndarray, kinds: np.ndarray
) -> dict[str, float]:
  """Accuracy@1 of all queries, and of those of pairs without and with strings.

  Args:
    name: of the metric; `<name>_unshared` and `<name>_shared` are the parts.
    indices: the neighbour of each query [N]; that of query i should be i.
    kinds: `Kind` of each pair [N].

  Returns:
    Metric -> accuracy; NaN where there is no such query.
  """
  right = indices == np.arange(len(indices))
  parts = {
    name + end: right[slice(None) if kind is None else kinds == kind]
    for end, kind in _KINDS.items()
  }
  return {
    part: float(is_correct.mean()) if len(is_correct) else float('nan')
    for part, is_correct in parts.items()
  }
