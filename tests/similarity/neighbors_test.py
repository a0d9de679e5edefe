"""Tests that blocked nearest neighbors equal a sorted similarity matrix."""

import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.similarity import neighbors
from xlflax.utils import errors

_BLOCKS = [
  neighbors.Blocks(5, 7),
  neighbors.Blocks(1, 2),
  neighbors.Blocks(100, 4),
  neighbors.Blocks(3, 100),
]


def _expected(scores, k):
  order = [
    sorted(range(len(row)), key=lambda j: (-row[j], j))[:k]
    for row in scores.tolist()
  ]
  return np.take_along_axis(scores, np.array(order), 1), np.array(order)


@pytest.fixture
def sides():
  """Vectors of small integers, so that many similarities are equal."""
  rng = np.random.default_rng(0)
  return rng.integers(-2, 3, (23, 3)), rng.integers(-2, 3, (31, 3))


@pytest.mark.parametrize('blocks', _BLOCKS)
@pytest.mark.parametrize('k', [1, 3, 31, 50])
def test_neighbors_equal_the_sorted_similarity_matrix(sides, blocks, k):
  first, second = sides
  scores, order = _expected(first @ second.T, k)
  nearest = neighbors.find_nearest(first, second, k=k, blocks=blocks)
  np.testing.assert_array_equal(nearest.scores, scores)
  np.testing.assert_array_equal(nearest.indices, order)
  assert nearest.scores.dtype == np.float32


@pytest.mark.parametrize('blocks', _BLOCKS)
def test_penalties_are_subtracted(sides, blocks):
  first, second = sides
  penalties = np.random.default_rng(1).integers(0, 4, 31)
  scores, order = _expected(first @ second.T - penalties[None], 4)
  nearest = neighbors.find_nearest(
    first, second, k=4, penalties=penalties, blocks=blocks
  )
  np.testing.assert_array_equal(nearest.scores, scores)
  np.testing.assert_array_equal(nearest.indices, order)


@pytest.mark.parametrize('blocks', _BLOCKS)
@pytest.mark.parametrize('k', [2, 25])
def test_both_directions_equal_two_separate_searches(sides, blocks, k):
  first, second = sides
  both_directions = neighbors.find_nearest_both_ways(
    first, second, k=k, blocks=blocks
  )
  for nearest, expected in zip(
    both_directions,
    (
      neighbors.find_nearest(first, second, k=k),
      neighbors.find_nearest(second, first, k=k),
    ),
    strict=True,
  ):
    np.testing.assert_array_equal(nearest.scores, expected.scores)
    np.testing.assert_array_equal(nearest.indices, expected.indices)


def test_wide_blocks_give_the_same_neighbors():
  rng = np.random.default_rng(2)
  first, second = rng.integers(-3, 4, (6, 2)), rng.integers(-3, 4, (900, 2))
  scores, order = _expected(first @ second.T, 5)
  nearest = neighbors.find_nearest(first, second, k=5)
  np.testing.assert_array_equal(nearest.scores, scores)
  np.testing.assert_array_equal(nearest.indices, order)


def test_keys_of_increasing_similarity_are_ranked_correctly():
  keys = np.arange(300.0)[:, None]
  nearest = neighbors.find_nearest(
    np.ones((3, 1)), keys, k=4, blocks=neighbors.Blocks(2, 130)
  )
  assert nearest.indices.tolist() == [[299, 298, 297, 296]] * 3


def test_ties_select_the_first_keys():
  nearest = neighbors.find_nearest(
    np.ones((4, 3)), np.ones((400, 3)), k=2, blocks=neighbors.Blocks(3, 150)
  )
  assert nearest.indices.tolist() == [[0, 1]] * 4


def test_invalid_vectors_are_rejected():
  good = np.ones((4, 3))
  with raises_error(errors.AnalysisError, mentions=(3, 2)):
    neighbors.find_nearest(good, good[:, :2], k=1)
  with raises_error(errors.AnalysisError, got=0):
    neighbors.find_nearest(good, good, k=0)
  with raises_error(errors.AnalysisError, mentions=(0, 3)):
    neighbors.find_nearest(good, good[:0], k=1)
  bad = good.copy()
  bad[2, 1] = np.inf
  with raises_error(errors.AnalysisError, mentions=2):
    neighbors.find_nearest_both_ways(good, bad, k=1)
