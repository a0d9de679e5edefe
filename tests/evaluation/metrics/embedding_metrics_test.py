"""Compares the embedding metrics with SciPy and scikit-learn."""

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from tests.errors import raises_error
from xlflax.evaluation.metrics import embedding_metrics
from xlflax.utils import errors

_RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize('ties', [3, 1000])
def test_spearman_and_average_precision_equal_references(ties):
  gold = _RANDOM.integers(0, 2, 200)
  scores = _RANDOM.integers(0, ties, 200).astype(float) + gold
  assert embedding_metrics.spearman(gold, scores) == pytest.approx(
    scipy.stats.spearmanr(gold, scores).statistic
  )
  assert embedding_metrics.average_precision(gold, scores) == pytest.approx(
    sklearn.metrics.average_precision_score(gold, scores)
  )


@pytest.mark.parametrize('classes, clusters', [(4, 3), (1, 3), (3, 1), (1, 1)])
def test_v_measure_equals_scikit_learn(classes, clusters):
  gold = _RANDOM.integers(0, classes, 50)
  assignments = _RANDOM.integers(0, clusters, 50)
  assert embedding_metrics.v_measure(gold, assignments) == pytest.approx(
    sklearn.metrics.v_measure_score(gold, assignments)
  )


def test_k_means_finds_separated_clusters():
  labels = np.repeat(np.arange(4), 10)
  vectors = 20 * np.eye(4)[labels] + _RANDOM.normal(size=(40, 4))
  assignments = embedding_metrics.k_means(vectors, 4, seed=1)
  assert embedding_metrics.v_measure(labels, assignments) == 1
  assert (assignments == embedding_metrics.k_means(vectors, 4, seed=1)).all()
  assert set(embedding_metrics.k_means(np.zeros((3, 2)), 2)) <= {0, 1}


@pytest.mark.parametrize('k', [3, 10, 40])
def test_ndcg_equals_scikit_learn(k):
  for _ in range(20):
    gains = _RANDOM.integers(0, 4, 20).astype(float)
    scores = _RANDOM.permutation(20).astype(float)
    ranked = [str(i) for i in np.argsort(-scores)]
    relevance = {str(i): gain for i, gain in enumerate(gains) if gain}
    assert embedding_metrics.ndcg(ranked, relevance, k=k) == pytest.approx(
      sklearn.metrics.ndcg_score(gains[None], scores[None], k=k)
    )


def test_ranking_metrics_computed_by_hand():
  ranked, relevance = ['x', 'a', 'y', 'b'], {'a': 1.0, 'b': 2.0, 'c': 1.0}
  assert embedding_metrics.precision_at_hits(
    ranked, relevance
  ) == pytest.approx((1 / 2 + 2 / 4) / 3)
  assert embedding_metrics.precision_at_hits(ranked, relevance, k=2) == 1 / 4
  assert embedding_metrics.reciprocal_rank(ranked, relevance) == 1 / 2
  assert embedding_metrics.reciprocal_rank(ranked, relevance, k=1) == 0
  assert embedding_metrics.recall(ranked, relevance, k=2) == pytest.approx(
    1 / 3
  )
  for metric in (
    embedding_metrics.ndcg,
    embedding_metrics.precision_at_hits,
    embedding_metrics.reciprocal_rank,
    embedding_metrics.recall,
  ):
    assert metric(ranked, {}) == 0


@pytest.mark.parametrize('seed', range(20))
def test_roc_auc_equals_scikit_learn(seed):
  draw = np.random.default_rng(seed)
  gold = np.append(draw.integers(0, 2, 30), [0, 1])
  scores = draw.integers(0, [3, 1000][seed % 2], 32).astype(float)
  assert embedding_metrics.roc_auc(gold, scores) == pytest.approx(
    sklearn.metrics.roc_auc_score(gold, scores)
  )
  assert np.isnan(embedding_metrics.roc_auc(np.ones(3), np.arange(3)))


def test_average_precision_and_roc_auc_computed_by_hand():
  gold, scores = np.array([1, 0, 1, 0]), np.array([0.9, 0.8, 0.7, 0.1])
  assert embedding_metrics.average_precision(gold, scores) == pytest.approx(
    5 / 6
  )
  assert embedding_metrics.roc_auc(gold, scores) == 3 / 4
  tied = np.array([0.9, 0.7, 0.7, 0.1])  # The second and third are tied.
  assert embedding_metrics.average_precision(gold, tied) == pytest.approx(5 / 6)
  assert embedding_metrics.roc_auc(gold, tied) == 3.5 / 4
  broken = np.array([0.9, np.nan, 0.7, 0.1])
  assert np.isnan(embedding_metrics.average_precision(gold, broken))
  assert np.isnan(embedding_metrics.roc_auc(gold, broken))


def test_undefined_scores_are_nan_or_raise():
  assert np.isnan(embedding_metrics.spearman(np.ones(3), np.arange(3)))
  with raises_error(errors.CorpusError, got=0):
    embedding_metrics.average_precision(np.zeros(2), np.ones(2))
  with raises_error(errors.CorpusError, mentions=(3, 2)):
    embedding_metrics.spearman(np.ones(2), np.ones(3))
