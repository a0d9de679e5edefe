import numpy as np
import pytest
from scipy.spatial import distance

from xlflax.similarity import cosine as similarity


def _vectors(rows, seed):
  return np.random.default_rng(seed).normal(size=(rows, 5)).astype(np.float32)


@pytest.mark.parametrize('block_size', [1, 4, 7, 1000])
def test_nearest_vectors_equal_those_of_a_loop(block_size):
  first, second = _vectors(13, 0), _vectors(9, 1)
  nearest = similarity.find_nearest(first, second, block_size=block_size)
  for i in range(13):
    cosines = [1 - distance.cosine(first[i], second[j]) for j in range(9)]
    assert nearest.forward[i] == int(np.argmax(cosines))
  for j in range(9):
    cosines = [1 - distance.cosine(second[j], first[i]) for i in range(13)]
    assert nearest.backward[j] == int(np.argmax(cosines))


def test_nearest_vectors_do_not_depend_on_vector_norms():
  first, second = _vectors(6, 0), _vectors(6, 1)
  scales = np.arange(1, 7, dtype=np.float32)[:, None]
  np.testing.assert_array_equal(
    similarity.find_nearest(first, second).forward,
    similarity.find_nearest(first, second * scales).forward,
  )


def test_ties_select_the_first_vector_for_any_block_size():
  same = np.ones((8, 3), np.float32)
  for block_size in (1, 3, 100):
    nearest = similarity.find_nearest(same, same, block_size=block_size)
    assert nearest.forward.tolist() == [0] * 8
    assert nearest.backward.tolist() == [0] * 8
  assert similarity.retrieval_accuracy(nearest.forward) == 1 / 8


def test_zero_vectors_are_not_normalized():
  vectors = np.array([[0, 0], [1, 0], [0, 1]], np.float32)
  np.testing.assert_array_equal(similarity.normalize_rows(vectors), vectors)
  assert similarity.find_nearest(vectors, vectors).forward.tolist() == [0, 1, 2]


def test_retrieval_accuracy_is_the_fraction_of_correct_indices():
  assert similarity.retrieval_accuracy(np.array([0, 2, 2, 3])) == 0.75
