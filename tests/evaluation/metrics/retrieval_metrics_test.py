import numpy as np
import pytest

from xlflax.evaluation.metrics import retrieval_metrics
from xlflax.evaluation.metrics.string_overlap import Kind
from xlflax.similarity import cosine


def test_score_layers_in_both_directions():
  """In layer 0, the first target sentence retrieves the wrong source."""
  first = np.array([[[1.0, 0.0], [0.0, 1.0]], [[1, 0], [0, 1]]])
  second = np.array([[[0.1, 1.0], [0.0, 1.0]], [[1, 0], [0, 1]]])
  layer_scores = retrieval_metrics.score_layers(first, second)
  np.testing.assert_array_equal(layer_scores.forward, [1, 1])
  np.testing.assert_array_equal(layer_scores.backward, [0.5, 1])
  np.testing.assert_array_equal(layer_scores.mean, [0.75, 1])


def test_csls_avoids_hubs():
  """Key 2 is a hub and is the nearest key of query 0 by cosine."""
  angles = np.deg2rad([[0, 40, 80], [-14, 54, 12]])
  first, second = np.stack([np.cos(angles), np.sin(angles)], -1)
  assert cosine.find_nearest(first, second).forward.tolist() == [2, 1, 1]
  nearest = retrieval_metrics.nearest_by_csls(first, second, k=2)
  similar = first @ second.T
  scores = (
    2 * similar
    - np.sort(similar, 1)[:, 1:].mean(1)[:, None]
    - np.sort(similar, 0)[1:].mean(0)
  )
  np.testing.assert_array_equal(nearest.forward, scores.argmax(1))
  np.testing.assert_array_equal(nearest.backward, scores.argmax(0))
  assert nearest.forward[0] == 0


def test_mean_cosines_equal_the_full_matrix():
  draw = np.random.default_rng(0)
  sides = draw.normal(size=(2, 9, 4)) + 1
  units = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in sides]
  matrix = units[0] @ units[1].T
  mean_cosines = retrieval_metrics.mean_cosines(*sides)
  assert mean_cosines.pairs == pytest.approx(matrix.trace() / 9)
  assert mean_cosines.others == pytest.approx(
    matrix[~np.eye(9, dtype=bool)].mean()
  )


def test_mean_cosine_of_other_pairs_is_nan_for_one_pair():
  mean_cosines = retrieval_metrics.mean_cosines(
    np.ones((1, 2)), np.ones((1, 2))
  )
  assert mean_cosines.pairs == pytest.approx(1) and np.isnan(
    mean_cosines.others
  )


def test_accuracies_by_overlap_kind():
  kinds = np.array([Kind.UNSHARED, Kind.UNSHARED, Kind.EQUAL, Kind.UNSHARED])
  accuracies = retrieval_metrics.retrieval_accuracies(
    'csls', np.array([0, 2, 2, 3]), kinds
  )
  # NaN, because no pair has this kind.
  assert accuracies.pop('csls_shared') != accuracies['csls']
  assert accuracies == {'csls': 3 / 4, 'csls_unshared': 2 / 3}
