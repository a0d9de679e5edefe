"""Tests that mined candidates equal those of a double loop over sentences."""

import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.similarity import margin_scoring, neighbors
from xlflax.utils import errors

_K = 3


@pytest.fixture
def sides():
  rng = np.random.default_rng(0)
  shared = rng.normal(size=(8, 5))
  return (
    np.concatenate([shared, rng.normal(size=(3, 5))]) + 1,
    np.concatenate(
      [shared + rng.normal(size=(8, 5)) / 2, rng.normal(size=(6, 5))]
    )
    + 1,
  )


def _cosines(first, second):
  return np.array(
    [[x @ y / np.sqrt((x @ x) * (y @ y)) for y in second] for x in first]
  )


def _scores(first, second, kind):
  """Returns the cosines and scores of all pairs (equations 2 to 4)."""
  cosine = _cosines(first, second)
  scores = np.zeros_like(cosine)
  for i in range(len(first)):
    for j in range(len(second)):
      mean = np.sort(cosine[i])[-_K:].sum() / (2 * _K) + np.sort(cosine[:, j])[
        -_K:
      ].sum() / (2 * _K)
      scores[i, j] = {
        'absolute': cosine[i, j],
        'distance': cosine[i, j] - mean,
        'ratio': cosine[i, j] / mean,
      }[kind]
  return cosine, scores


def _best_of_rows(cosine, scores):
  """Returns the pair (i, j) with the best score of each row's neighbors."""
  best_pairs = set()
  for i, row in enumerate(cosine):
    near = np.argsort(-row)[:_K]
    best_pairs.add((i, int(max(near, key=lambda j, i=i: scores[i, j]))))
  return best_pairs


def _pairs(candidates):
  return set(
    zip(candidates.first.tolist(), candidates.second.tolist(), strict=True)
  )


@pytest.mark.parametrize('kind', ['absolute', 'distance', 'ratio'])
def test_candidates_equal_those_of_a_double_loop(sides, kind):
  cosine, scores = _scores(*sides, kind)
  forward = _best_of_rows(cosine, scores)
  backward = {(j, i) for i, j in _best_of_rows(cosine.T, scores.T)}
  paired = [set(), set()]
  best = set()
  for i, j in sorted(forward | backward, key=lambda pair: -scores[pair]):
    if i not in paired[0] and j not in paired[1]:
      paired[0].add(i)
      paired[1].add(j)
      best.add((i, j))
  for direction, expected in (
    ('forward', forward),
    ('backward', backward),
    ('intersection', forward & backward),
    ('max', best),
  ):
    candidates = margin_scoring.find_candidates(
      *sides,
      k=_K,
      margin=kind,
      direction=direction,
      blocks=neighbors.Blocks(4, 3),
    )
    assert _pairs(candidates) == expected, direction
    assert (np.diff(candidates.scores) <= 0).all()
    for i, j, score in zip(*candidates, strict=True):
      assert score == pytest.approx(scores[i, j], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize('kind', ['absolute', 'distance', 'ratio'])
def test_margin_scores_equal_those_of_a_double_loop(sides, kind):
  first, second = sides[0], sides[1][: len(sides[0])]
  _, scores = _scores(first, second, kind)
  pair_scores = margin_scoring.margin_scores(
    first, second, k=_K, margin=kind, blocks=neighbors.Blocks(4, 3)
  )
  np.testing.assert_allclose(
    pair_scores, np.diagonal(scores), rtol=1e-5, atol=1e-6
  )
  with raises_error(errors.AnalysisError, mentions=('margin_scores', 11, 14)):
    margin_scoring.margin_scores(*sides)


def test_ratio_scores_equal_values_computed_by_hand():
  first = np.array([[1.0, 0.0], [0.0, 1.0]])
  second = np.array([[1.0, 0.0], [0.6, 0.8]])
  candidates = margin_scoring.find_candidates(
    first, second, k=2, direction='forward'
  )
  # Cosines: 1 .6; 0 .8. Means of rows: .8, .4; of columns: .5, .7.
  assert _pairs(candidates) == {(0, 0), (1, 1)}
  np.testing.assert_allclose(candidates.scores, [1 / 0.65, 0.8 / 0.55])


def test_vectors_without_similarity_have_finite_scores():
  first, second = np.eye(4)[:2], np.eye(4)[2:]
  for kind in margin_scoring.Margin:
    for rows in (second, -first, np.zeros((2, 4))):
      candidates = margin_scoring.find_candidates(first, rows, margin=kind)
      assert np.isfinite(candidates.scores).all()


def test_k_may_exceed_the_number_of_sentences(sides):
  candidates = margin_scoring.find_candidates(sides[0][:1], sides[1][:2], k=50)
  assert len(candidates.first) == 1
  with raises_error(errors.AnalysisError, got=0):
    margin_scoring.find_candidates(*sides, k=0)


def test_unknown_margin_is_rejected(sides):
  with raises_error(
    errors.ConfigError,
    got='cosine',
    where='find_candidates.margin',
    mentions=('absolute', 'distance'),
  ):
    margin_scoring.find_candidates(*sides, margin='cosine')
