"""Accuracy of retrieving sentence translations by vector similarity.

Neighbors are found by cosine or by CSLS (Conneau et al., 2018, section 2.3),
which penalizes vectors that are close to many others.
"""

from typing import NamedTuple

import numpy as np

from xlflax.evaluation.metrics.string_overlap import Kind
from xlflax.similarity import cosine, csls

# Kind of string overlap by suffix of the metric.
_KINDS = {'': None, '_unshared': Kind.UNSHARED, '_shared': Kind.SHARED}


class PairScores(NamedTuple):
  """Retrieval accuracy@1 for a language pair.

  Attributes:
    forward: Accuracy at each layer with queries in the first language and
      candidates in the second language, of shape [layers + 1].
    backward: Accuracy at each layer with queries in the second language and
      candidates in the first language, of shape [layers + 1].
  """

  forward: np.ndarray
  backward: np.ndarray

  @property
  def mean(self) -> np.ndarray:
    """Retrieval accuracy by layer, averaged over both directions."""
    return (self.forward + self.backward) / 2


def score_layers(first: np.ndarray, second: np.ndarray) -> PairScores:
  """Computes accuracy@1 by layer for vectors of shape [layers + 1, N, H]."""
  forward, backward = [], []
  for first_vectors, second_vectors in zip(first, second, strict=True):
    neighbors = cosine.find_nearest(first_vectors, second_vectors)
    forward.append(cosine.retrieval_accuracy(neighbors.forward))
    backward.append(cosine.retrieval_accuracy(neighbors.backward))
  return PairScores(np.array(forward), np.array(backward))


def nearest_by_csls(
  first: np.ndarray, second: np.ndarray, *, k: int
) -> cosine.BidirectionalNeighbors:
  """Finds nearest neighbors by CSLS similarity in both directions.

  Args:
    first: Sentence vectors in the first language, of shape [N, H].
    second: Sentence vectors in the second language, of shape [M, H].
    k: Number of neighbors over which CSLS averages similarities.
  """
  return cosine.BidirectionalNeighbors(
    csls.find_nearest(first, second, k=k).indices[:, 0],
    csls.find_nearest(second, first, k=k).indices[:, 0],
  )


class MeanCosines(NamedTuple):
  """Mean cosine similarities of translation pairs and of unrelated sentences.

  Both means are close to 1 if all vectors point in the same direction.

  Attributes:
    pairs: Mean cosine over translation pairs.
    others: Mean cosine over pairs of sentences that are not translations of
      each other. NaN if there is only one translation pair.
  """

  pairs: float
  others: float


def mean_cosines(first: np.ndarray, second: np.ndarray) -> MeanCosines:
  """Computes the mean cosine similarities of paired rows and unpaired rows.

  Args:
    first: Vectors of N sentences, of shape [N, H].
    second: Vectors of their translations, of shape [N, H].
  """
  first, second = cosine.normalize_rows(first), cosine.normalize_rows(second)
  num_pairs = len(first)
  pair_sum = float(np.sum(first * second, dtype=np.float64))
  total = first.sum(0, dtype=np.float64) @ second.sum(0, dtype=np.float64)
  num_others = num_pairs * (num_pairs - 1)
  return MeanCosines(
    pairs=pair_sum / num_pairs,
    others=(total - pair_sum) / num_others if num_others else float('nan'),
  )


def retrieval_accuracies(
  name: str, indices: np.ndarray, kinds: np.ndarray
) -> dict[str, float]:
  """Returns accuracy@1 for all queries and for each kind of string overlap.

  Args:
    name: Name of the metric over all queries. `<name>_unshared` is computed
      over the queries that have no string in common with their translations,
      and `<name>_shared` over the queries that have one.
    indices: Index of each query's nearest neighbor, of shape [N]. The correct
      neighbor of query i is i.
    kinds: Kind of string overlap of each pair, of shape [N].

  Returns:
    Accuracy by metric name. An accuracy is NaN if it is computed over no
    queries.
  """
  is_correct = indices == np.arange(len(indices))
  accuracies = {}
  for suffix, kind in _KINDS.items():
    selected = is_correct if kind is None else is_correct[kinds == kind]
    accuracy = float(selected.mean()) if len(selected) else float('nan')
    accuracies[name + suffix] = accuracy
  return accuracies
