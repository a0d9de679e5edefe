"""Metrics for tasks on sentence vectors, such as clustering and retrieval.

Sources: the tasks of MTEB (Muennighoff et al., 2023, section 3.2); Rosenberg
and Hirschberg (2007) for the V-measure; Järvelin and Kekäläinen (2002) for
nDCG.
"""

import warnings
from collections.abc import Mapping, Sequence

import numpy as np

from xlflax.evaluation.metrics import metric_checks


def spearman(first: np.ndarray, second: np.ndarray) -> float:
  """Returns Spearman's rank correlation of two arrays of shape [N].

  The result is NaN if all values of an array are equal.

  Raises:
    CorpusError: If the arrays are empty, or if their lengths differ.
  """
  from scipy import stats  # slow to import

  metric_checks.same_length(first, second, what='scores')
  metric_checks.not_empty(first, what='scores')
  return pearson(*(stats.rankdata(values) for values in (first, second)))


def pearson(first: np.ndarray, second: np.ndarray) -> float:
  """Returns Pearson's linear correlation of two arrays of shape [N].

  The result is NaN if all values of an array are equal.
  """
  if np.ptp(first) == 0 or np.ptp(second) == 0:
    return float('nan')
  return float(np.corrcoef(first, second)[0, 1])


def average_precision(labels: np.ndarray, scores: np.ndarray) -> float:
  """Returns average precision: the mean of the precision at each positive.

  Pairs with equal scores are ranked together.

  Args:
    labels: Array of shape [N] with 1 for positive pairs and 0 for negative
      pairs.
    scores: Similarity score of each pair, of shape [N].

  Raises:
    CorpusError: If there is no positive pair, or if the arrays' lengths differ.
  """
  from sklearn import metrics  # slow to import

  metric_checks.same_length(labels, scores, what='scores')
  metric_checks.not_empty(np.flatnonzero(labels), what='positive pairs')
  if np.isnan(scores).any():
    return float('nan')
  return float(metrics.average_precision_score(labels, scores))


def roc_auc(labels: np.ndarray, scores: np.ndarray) -> float:
  """Returns the area under the ROC curve.

  The area is the probability that a positive example has a higher score than a
  negative example, where ties count 1/2. The result is NaN if there are no
  positive or no negative examples.

  Args:
    labels: Array of shape [N] with 1 for positive and 0 for negative examples.
    scores: Score of each example, of shape [N].
  """
  from sklearn import metrics  # slow to import

  if len(np.unique(labels)) < 2 or np.isnan(scores).any():
    return float('nan')
  return float(metrics.roc_auc_score(labels, scores))


def v_measure(classes: Sequence[str], clusters: Sequence[int]) -> float:
  """Returns the V-measure, the harmonic mean of homogeneity and completeness.

  Args:
    classes: Gold class of each text.
    clusters: Predicted cluster of each text.

  Raises:
    CorpusError: If there are no texts, or if the arrays' lengths differ.
  """
  from sklearn import metrics  # slow to import

  metric_checks.same_length(classes, clusters, what='clusters')
  metric_checks.not_empty(classes, what='texts')
  return float(metrics.v_measure_score(classes, clusters))


def k_means(
  vectors: np.ndarray, count: int, *, seed: int = 0, restarts: int = 4
) -> np.ndarray:
  """Clusters vectors by k-means.

  Lloyd's algorithm is initialized by k-means++ (Arthur and Vassilvitskii,
  2007). The clustering with the smallest squared distances over several
  initializations is returned.

  Args:
    vectors: Array of vectors to cluster, of shape [N, H].
    count: Number of clusters.
    seed: Random seed for the initializations.
    restarts: Number of random initializations.

  Returns:
    Cluster of each vector, an int array of shape [N].
  """
  from sklearn import cluster, exceptions  # slow to import

  model = cluster.KMeans(count, n_init=restarts, random_state=seed)
  with warnings.catch_warnings():
    # scikit-learn warns if there are fewer distinct vectors than clusters.
    warnings.simplefilter('ignore', exceptions.ConvergenceWarning)
    return model.fit_predict(np.asarray(vectors, np.float64))


def ndcg(
  ranked: Sequence[str], relevance: Mapping[str, float], *, k: int = 10
) -> float:
  """Returns the normalized discounted cumulative gain (NDCG) for a query.

  The gain of a document is its relevance, as in trec_eval.

  Args:
    ranked: Document ids, best document first.
    relevance: Relevance by document id. Documents without an entry have
      relevance 0.
    k: Number of top-ranked documents to consider.
  """
  gains = [max(relevance.get(name, 0.0), 0.0) for name in ranked[:k]]
  ideal_gains = sorted(
    (gain for gain in relevance.values() if gain > 0), reverse=True
  )
  ideal = _discounted(ideal_gains[:k])
  return _discounted(gains) / ideal if ideal else 0.0


def _discounted(gains: Sequence[float]) -> float:
  """Returns the discounted sum of gains, with weights 1 / log2(rank + 1)."""
  return float(
    sum(gain / np.log2(rank + 1) for rank, gain in enumerate(gains, start=1))
  )


def precision_at_hits(
  ranked: Sequence[str], relevance: Mapping[str, float], *, k: int = 20
) -> float:
  """Returns the average precision at k for a query, as in LAReQA.

  Source: Roy et al. (2020). The precisions at all relevant documents among the
  first k are added, and the sum is divided by the largest possible number of
  relevant documents among the first k.

  Args:
    ranked: Document ids, best document first.
    relevance: Relevance by document id. Documents without an entry have
      relevance 0.
    k: Number of top-ranked documents to consider.
  """
  relevant = {name for name, value in relevance.items() if value > 0}
  hits = np.array([name in relevant for name in ranked[:k]], float)
  precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
  return float(hits @ precision / min(len(relevant), k)) if relevant else 0.0


def reciprocal_rank(
  ranked: Sequence[str], relevance: Mapping[str, float], *, k: int = 20
) -> float:
  """Returns the reciprocal rank of the first relevant document, or 0.

  If each query has one relevant document, the mean over queries at k = 20 is
  Mewsli-X's `map@20`.

  Args:
    ranked: Document ids, best document first.
    relevance: Relevance by document id. Documents without an entry have
      relevance 0.
    k: Number of top-ranked documents to consider.
  """
  for rank, name in enumerate(ranked[:k], 1):
    if relevance.get(name, 0.0) > 0:
      return 1 / rank
  return 0.0


def recall(
  ranked: Sequence[str], relevance: Mapping[str, float], *, k: int = 100
) -> float:
  """Returns recall at k, the fraction of relevant documents in the top k.

  Args:
    ranked: Document ids, best document first.
    relevance: Relevance by document id. Documents without an entry have
      relevance 0.
    k: Number of top-ranked documents to consider.
  """
  relevant = {name for name, value in relevance.items() if value > 0}
  return len(relevant & set(ranked[:k])) / len(relevant) if relevant else 0.0
