"""Metrics of sentence vectors: similarity, pairs, clusters, rankings.

Sources: the tasks of MTEB (Muennighoff et al., 2023, section 3.2); Rosenberg
and Hirschberg (2007), V-measure; Järvelin and Kekäläinen (2002), nDCG.
"""

import warnings
from collections.abc import Mapping, Sequence

import numpy as np

from xlflax.evaluation.metrics import metric_checks


def spearman(first: np.ndarray, second: np.ndarray) -> float:
  """The correlation of two rankings [N]; NaN where one has no order.

  Raises:
    CorpusError: there are no numbers, or not as many of both.
  """
  from scipy import stats  # slow to import

  metric_checks.same_length(first, second, what='scores')
  metric_checks.not_empty(first, what='scores')
  return pearson(*(stats.rankdata(values) for values in (first, second)))


def pearson(first: np.ndarray, second: np.ndarray) -> float:
  """The correlation of numbers [N]; NaN where one side's are all the same."""
  if np.ptp(first) == 0 or np.ptp(second) == 0:
    return float('nan')
  return float(np.corrcoef(first, second)[0, 1])


def average_precision(labels: np.ndarray, scores: np.ndarray) -> float:
  """The mean precision at each positive pair, by falling score.

  Pairs of equal score are taken together.

  Args:
    labels: [N], 1 for a positive pair, else 0.
    scores: [N].

  Raises:
    CorpusError: no positive pair, or not as many of both.
  """
  from sklearn import metrics  # slow to import

  metric_checks.same_length(labels, scores, what='scores')
  metric_checks.not_empty(np.flatnonzero(labels), what='positive pairs')
  if np.isnan(scores).any():
    return float('nan')
  return float(metrics.average_precision_score(labels, scores))


def roc_auc(labels: np.ndarray, scores: np.ndarray) -> float:
  """How often a positive example has a higher score than another; a tie is 1/2.

  Args:
    labels: [N], 1 for a positive example, else 0; NaN where all are the same.
    scores: [N].
  """
  from sklearn import metrics  # slow to import

  if len(np.unique(labels)) < 2 or np.isnan(scores).any():
    return float('nan')
  return float(metrics.roc_auc_score(labels, scores))


def v_measure(classes: Sequence[str], clusters: Sequence[int]) -> float:
  """Harmonic mean of homogeneity and completeness of N clustered texts.

  Raises:
    CorpusError: there are no texts, or not as many of both.
  """
  from sklearn import metrics  # slow to import

  metric_checks.same_length(classes, clusters, what='clusters')
  metric_checks.not_empty(classes, what='texts')
  return float(metrics.v_measure_score(classes, clusters))


def k_means(
  vectors: np.ndarray, count: int, *, seed: int = 0, restarts: int = 4
) -> np.ndarray:
  """Clusters vectors [N, H] into `count` groups; int [N].

  Lloyd's iteration from k-means++ seeding (Arthur and Vassilvitskii, 2007);
  of several starts the one of the least squared distance counts.
  """
  from sklearn import cluster, exceptions  # slow to import

  model = cluster.KMeans(count, n_init=restarts, random_state=seed)
  with warnings.catch_warnings():  # fewer different vectors than groups
    warnings.simplefilter('ignore', exceptions.ConvergenceWarning)
    return model.fit_predict(np.asarray(vectors, np.float64))


def ndcg(
  ranked: Sequence[str], relevance: Mapping[str, float], *, k: int = 10
) -> float:
  """Normalised discounted gain of a query's first k documents.

  A document's gain is its relevance, as in trec_eval.

  Args:
    ranked: ids of documents, the best first.
    relevance: id -> relevance, of those that have any.
    k: documents that count.
  """
  gains = [max(relevance.get(name, 0.0), 0.0) for name in ranked[:k]]
  best = sorted((gain for gain in relevance.values() if gain > 0), reverse=True)
  ideal = _discounted(best[:k])
  return _discounted(gains) / ideal if ideal else 0.0


def _discounted(gains: Sequence[float]) -> float:
  return float(sum(g / np.log2(rank + 2) for rank, g in enumerate(gains)))


def precision_at_hits(
  ranked: Sequence[str], relevance: Mapping[str, float], *, k: int = 20
) -> float:
  """A query's average precision at k: LAReQA's (Roy et al., 2020).

  The mean of the precision at each relevant document among the first k,
  divided by as many as could be there.
  """
  right = {name for name, value in relevance.items() if value > 0}
  hits = np.array([name in right for name in ranked[:k]], float)
  precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
  return float(hits @ precision / min(len(right), k)) if right else 0.0


def reciprocal_rank(
  ranked: Sequence[str], relevance: Mapping[str, float], *, k: int = 20
) -> float:
  """1 / the place of the first relevant document among k; 0 for none.

  With one relevant document for each query this is Mewsli-X's `map@20`.
  """
  for rank, name in enumerate(ranked[:k], 1):
    if relevance.get(name, 0.0) > 0:
      return 1 / rank
  return 0.0


def recall(
  ranked: Sequence[str], relevance: Mapping[str, float], *, k: int = 100
) -> float:
  """The share of a query's relevant documents among the first k."""
  right = {name for name, value in relevance.items() if value > 0}
  return len(right & set(ranked[:k])) / len(right) if right else 0.0
