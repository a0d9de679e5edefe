import math

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.errors import raises_error
from xlflax.evaluation.metrics import mining_metrics
from xlflax.utils import errors


def _above(candidates, threshold):
  return [pair for pair, score in candidates.items() if score >= threshold]


def test_scores_computed_by_hand():
  mined = [('a', 'x'), ('b', 'y'), ('b', 'y')]
  gold = [('a', 'x'), ('c', 'z'), ('d', 'w')]
  scores = mining_metrics.mining_scores(mined, gold)
  assert (scores.precision, scores.recall) == (0.5, pytest.approx(1 / 3))
  assert scores.f1 == pytest.approx(0.4)
  statistics = mining_metrics.of_sentences('abcde', mined, gold)
  assert statistics.rows.tolist() == [
    [1, 1, 1],
    [0, 1, 0],
    [0, 0, 1],
    [0, 0, 1],
    [0, 0, 0],
  ]
  assert statistics.value == pytest.approx(0.4)


def test_best_threshold_is_between_two_scores():
  candidates = {('a', 'x'): 0.9, ('b', 'y'): 0.7, ('c', 'w'): 0.3}
  threshold = mining_metrics.best_threshold(
    candidates, [('a', 'x'), ('b', 'y')]
  )
  assert threshold == mining_metrics.Threshold(0.5, 1.0, 1.0, 1.0)
  assert _above(candidates, threshold.value) == [('a', 'x'), ('b', 'y')]


def test_equal_scores_are_not_separated():
  candidates = {('a', 'x'): 0.5, ('b', 'w'): 0.5}
  threshold = mining_metrics.best_threshold(candidates, [('a', 'x')])
  assert (threshold.value, threshold.precision, threshold.recall) == (
    0.5,
    0.5,
    1.0,
  )


def test_best_threshold_without_correct_candidates():
  threshold = mining_metrics.best_threshold({('a', 'x'): 0.5}, [('b', 'y')])
  assert threshold == mining_metrics.Threshold(math.inf, 0.0, 0.0, 0.0)
  assert mining_metrics.mining_scores([], [('b', 'y')]).f1 == 0


@hypothesis.given(
  st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=12)
)
def test_best_threshold_is_optimal(items):
  candidates = {(i, i): score / 4 for i, (score, _) in enumerate(items)}
  gold = {(i, i) for i, (_, right) in enumerate(items) if right} | {(99, 99)}
  threshold = mining_metrics.best_threshold(candidates, gold)
  best = max(
    mining_metrics.mining_scores(_above(candidates, limit), gold).f1
    for limit in candidates.values()
  )
  assert threshold.f1 == pytest.approx(best)
  reached = mining_metrics.mining_scores(
    _above(candidates, threshold.value), gold
  )
  assert reached.f1 == pytest.approx(threshold.f1)


def test_missing_gold_pairs_are_rejected():
  with raises_error(errors.CorpusError, got=0):
    mining_metrics.mining_scores([('a', 'x')], [])
  with raises_error(errors.CorpusError, got=0):
    mining_metrics.best_threshold({}, [])
