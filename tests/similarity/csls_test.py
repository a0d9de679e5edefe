"""Tests that CSLS equals a double loop over words."""

import numpy as np
import pytest
from scipy.spatial import distance

from tests.errors import raises_error
from xlflax.similarity import csls, neighbors
from xlflax.utils import errors

_BLOCKS = neighbors.Blocks(4, 5)


@pytest.fixture
def sides():
  rng = np.random.default_rng(0)
  return rng.normal(size=(13, 4)), rng.normal(size=(17, 4))


def _cosine(x, y):
  return 1 - distance.cosine(x, y)


def _csls(first, second, k):
  """Computes CSLS scores in a loop, following the definition."""
  scores = np.zeros((len(first), len(second)))
  for i, x in enumerate(first):
    near_x = sorted((_cosine(x, y) for y in second), reverse=True)[:k]
    for j, y in enumerate(second):
      near_y = sorted((_cosine(z, y) for z in first), reverse=True)[:k]
      scores[i, j] = (
        2 * _cosine(x, y)
        - sum(near_x) / len(near_x)
        - sum(near_y) / len(near_y)
      )
  return scores


@pytest.mark.parametrize('k', [1, 3, 10, 15])
def test_csls_equals_the_double_loop(sides, k):
  scores = _csls(*sides, k)
  order = np.argsort(-scores, 1)[:, :6]
  nearest = csls.find_nearest(*sides, top=6, k=k, blocks=_BLOCKS)
  np.testing.assert_array_equal(nearest.indices, order)
  np.testing.assert_allclose(
    nearest.scores, np.take_along_axis(scores, order, 1), atol=1e-5
  )


def test_subset_of_queries_uses_penalties_of_all_queries(sides):
  first, second = sides
  all_nearest = csls.find_nearest(first, second, top=2, k=3)
  some = csls.find_nearest(
    first[4:9], second, top=2, k=3, all_queries=first, blocks=_BLOCKS
  )
  np.testing.assert_array_equal(some.indices, all_nearest.indices[4:9])
  np.testing.assert_allclose(some.scores, all_nearest.scores[4:9], atol=1e-6)


def test_cosine_scores_equal_scipy(sides):
  first, second = sides
  matrix = 1 - distance.cdist(first, second, 'cosine')
  nearest = csls.find_nearest(
    10 * first, second, top=3, score='cosine', blocks=_BLOCKS
  )
  np.testing.assert_array_equal(nearest.indices, np.argsort(-matrix, 1)[:, :3])


def test_csls_reduces_hubness():
  """Keys 0 to 3 are correct. Key 4 is a hub that is close to all queries."""
  queries = np.eye(4) + 1.5
  keys = np.concatenate([np.eye(4) + 0.5, np.full((1, 4), 0.75)])
  by_cosine = csls.find_nearest(queries, keys, score='cosine').indices[:, 0]
  assert by_cosine.tolist() == [4] * 4
  assert csls.find_nearest(queries, keys, k=2).indices[:, 0].tolist() == [
    0,
    1,
    2,
    3,
  ]


def test_precision_at_k():
  ranked_keys = np.array([[3, 1], [2, 0], [5, 4]])
  gold = [{1, 9}, {2}, {0}]
  assert csls.precision_at_k(ranked_keys, gold, k=1) == pytest.approx(1 / 3)
  assert csls.precision_at_k(ranked_keys, gold, k=2) == pytest.approx(2 / 3)
  with raises_error(errors.AnalysisError, mentions=(5, 2, 3)):
    csls.precision_at_k(ranked_keys, gold, k=5)
  with raises_error(errors.AnalysisError, mentions=(2, 0)):
    csls.precision_at_k(ranked_keys[:0], [], k=1)
