"""Compares metrics and rankings of vectors with the `mteb` package.

The tests require mteb 2. Random scores have ties or none, labels have unusual
frequencies, and relevance is graded or zero.
"""

import random

import numpy as np
import pytest

from xlflax.evaluation.metrics import embedding_metrics, retrieval_metrics
from xlflax.evaluation.tasks import mteb_tasks as tasks
from xlflax.interop import mteb_encoder
from xlflax.similarity import cosine

pytest.importorskip('mteb', reason='the package mteb is not installed')
pytestmark = pytest.mark.slow

_TOLERANCE = 1e-6
_CUTS = (10, 20, 100)


class _Run:
  """Fake run for tests that compute only cosines."""

  def encode(self, texts, *, languages=None, **options):
    raise NotImplementedError


def _scored(run, relevance) -> dict[str, float]:
  scores = tasks.score_run(run, relevance)
  return {name: score.value for name, score in scores.items()}


def _scores(draw, size: int) -> np.ndarray:
  """Returns random scores, some of which have few distinct values."""
  values = draw.choice([2, 3, 20, 10**6])
  scores = np.array([draw.randrange(values) for _ in range(size)], float)
  return draw.choice([scores, -scores, scores * 1e-9, scores + 1e9])


def test_spearman_equals_mteb():
  from mteb.abstasks.sts import AbsTaskSTS

  draw = random.Random(0)
  for _ in range(500):
    size = draw.randint(3, 60)
    gold, predicted = _scores(draw, size), _scores(draw, size)
    if np.ptp(gold) == 0 or np.ptp(predicted) == 0:
      assert np.isnan(embedding_metrics.spearman(gold, predicted))
      continue
    kinds = ('cosine_scores', 'manhattan_distances', 'euclidean_distances')
    expected = AbsTaskSTS._calculate_scores(
      None,
      dict.fromkeys((*kinds, 'similarity_scores'), predicted.tolist()),
      gold.tolist(),
    )
    assert embedding_metrics.spearman(gold, predicted) == pytest.approx(
      expected['cosine_spearman'], abs=_TOLERANCE
    )


def test_average_precision_equals_mteb():
  from mteb.abstasks.pair_classification import AbsTaskPairClassification

  class Task(AbsTaskPairClassification):
    metadata = None

    def __init__(self):
      pass

  draw = random.Random(1)
  for _ in range(300):
    size = draw.randint(2, 60)
    share = draw.choice([0.05, 0.5, 0.95, 1])
    labels = np.array([draw.random() < share for _ in range(size)], int)
    labels[draw.randrange(size)] = 1
    scores = _scores(draw, size)
    expected = Task()._compute_metrics_values(scores.tolist(), labels, True)
    assert embedding_metrics.average_precision(labels, scores) == pytest.approx(
      expected['ap'], abs=_TOLERANCE
    )


def test_v_measure_equals_mteb():
  from mteb.abstasks.clustering_legacy import AbsTaskClusteringLegacy

  draw = random.Random(2)
  for _ in range(500):
    size = draw.randint(1, 60)
    gold, predicted = (
      [draw.randrange(max_clusters) for _ in range(size)]
      for max_clusters in (draw.randint(1, 9), draw.randint(1, 9))
    )
    expected = AbsTaskClusteringLegacy._compute_metrics(
      None, gold, predicted, v_measure_only=True
    )
    assert embedding_metrics.v_measure(gold, predicted) == pytest.approx(
      expected['v_measure'], abs=_TOLERANCE
    )


def _rankings(draw):
  """Returns scores with ties and relevance grades by query and document."""
  names = [f'd{i}' for i in draw.sample(range(2000), draw.randint(30, 160))]
  run, relevance = {}, {}
  for query in map(str, range(12)):
    ranked_names = draw.sample(names, draw.randint(1, len(names)))
    # trec_eval stores scores in 32 bits.
    values = _scores(draw, len(ranked_names)).astype(np.float32)
    run[query] = dict(zip(ranked_names, values.tolist(), strict=True))
    graded = draw.sample(names, draw.randint(1, 20))
    relevance[query] = {name: draw.randint(0, 3) for name in graded}
    relevance[query][graded[0]] = draw.randint(1, 3)
  return run, relevance


def _sorted(run):
  """Sorts a run like `Ranking`, by score and descending id."""
  return {
    query: sorted(ranking.items(), key=lambda x: (x[1], x[0]), reverse=True)[
      :100
    ]
    for query, ranking in run.items()
  }


def test_retrieval_metrics_equal_mteb():
  from mteb import _evaluators as mteb_evaluators

  draw = random.Random(3)
  for _ in range(60):
    run, relevance = _rankings(draw)
    scores = mteb_evaluators.retrieval_metrics.calculate_retrieval_scores(
      run, relevance, _CUTS
    )

    def mean(name, scores=scores):
      values = [
        query_scores[name] for query_scores in scores.all_scores.values()
      ]
      return sum(values) / len(values)

    ours = _scored(_sorted(run), relevance)
    assert ours == pytest.approx(
      {
        'ndcg@10': mean('ndcg_cut_10'),
        # No query has more than 20 relevant documents.
        'map@20': mean('map_cut_20'),
        'mrr@10': scores.mrr['MRR@10'],
        'mrr@20': scores.mrr['MRR@20'],
        'recall@100': mean('recall_100'),
      },
      abs=_TOLERANCE,
    )


def test_map_with_more_than_k_relevant_documents():
  """LAReQA divides by at most k, trec_eval by all relevant documents."""
  from mteb import _evaluators as mteb_evaluators

  draw = random.Random(4)
  right = {f'd{i}': 1 for i in range(30)}
  scores = {f'd{i}': draw.random() for i in range(90)}
  retrieval_scores = (
    mteb_evaluators.retrieval_metrics.calculate_retrieval_scores(
      {'q': scores}, {'q': right}, _CUTS
    )
  )
  ours = _scored(_sorted({'q': scores}), {'q': right})
  assert ours['map@20'] * 20 / 30 == pytest.approx(
    retrieval_scores.all_scores['q']['map_cut_20'], abs=_TOLERANCE
  )


def test_bitext_accuracy_equals_mteb():
  """The bitext mining accuracy of mteb is retrieval in one direction."""
  from mteb._evaluators.text.bitext_mining_evaluator import (
    BitextMiningEvaluator,
  )
  from mteb.abstasks.text.bitext_mining import AbsTaskBitextMining

  model = mteb_encoder.MtebEncoder(_Run())
  generator = np.random.default_rng(5)
  for noise in (0.0, 0.5, 1.0, 3.0):
    first = generator.normal(size=(150, 12)).astype(np.float32)
    second = first + noise * generator.normal(size=(150, 12))
    second = second.astype(np.float32) * generator.random((150, 1))
    nearest = BitextMiningEvaluator._similarity_search(
      None, first, second, model
    )
    assert [
      neighbor['corpus_id'] for neighbor in nearest
    ] == cosine.find_nearest(first, second).forward.tolist()
    gold = [(i, i) for i in range(150)]
    expected = AbsTaskBitextMining._compute_metrics(None, nearest, gold)
    (ours,) = retrieval_metrics.score_layers(first[None], second[None]).forward
    assert ours == pytest.approx(expected['accuracy'], abs=_TOLERANCE)
    assert ours == pytest.approx(expected['recall'], abs=_TOLERANCE)


def test_pair_cosines_equal_scikit_learn():
  from sklearn.metrics import pairwise

  model = mteb_encoder.MtebEncoder(_Run())
  first, second = np.random.default_rng(6).normal(size=(2, 50, 9))
  expected = 1 - pairwise.paired_cosine_distances(first, second)
  pair_cosines = model.similarity_pairwise(first, second)
  np.testing.assert_allclose(pair_cosines, expected, atol=_TOLERANCE)
  all_cosines = model.similarity(first, second)
  np.testing.assert_allclose(
    np.diagonal(all_cosines), expected, atol=_TOLERANCE
  )
