import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.similarity import vector_normalization
from xlflax.utils import errors


@pytest.fixture
def vectors():
  rng = np.random.default_rng(0)
  spread, mean = rng.uniform(1, 9, 8), rng.normal(size=8) * 4
  return rng.normal(size=(60, 8)) * spread + mean


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_normalized_vectors_have_unit_norm_and_zero_mean(vectors, dtype):
  normalized = vector_normalization.iterative_normalization(
    vectors.astype(dtype)
  )
  assert normalized.vectors.dtype == dtype
  np.testing.assert_allclose(
    np.linalg.norm(normalized.vectors, axis=1), 1, atol=1e-6
  )
  np.testing.assert_allclose(normalized.vectors.mean(0), 0, atol=1e-6)
  assert np.linalg.norm(normalized.vectors.mean(0, dtype=np.float64)) <= 1e-6
  again = vector_normalization.iterative_normalization(normalized.vectors)
  np.testing.assert_allclose(again.vectors, normalized.vectors, atol=1e-6)


def test_one_round_equals_values_computed_by_hand():
  vectors = np.array([[3.0, 0.0], [0.0, 2.0]])
  normalized = vector_normalization.iterative_normalization(
    vectors, max_rounds=1
  )
  # Unit: (1, 0), (0, 1); less their mean (.5, .5): (.5, -.5), (-.5, .5).
  root = np.sqrt(0.5)
  np.testing.assert_allclose(normalized.vectors, [[root, -root], [-root, root]])
  np.testing.assert_allclose(normalized.means, [[0.5, 0.5]])


def test_zero_rounds_only_normalize_the_norms(vectors):
  normalized = vector_normalization.iterative_normalization(
    vectors, max_rounds=0
  )
  np.testing.assert_allclose(
    normalized.vectors, vectors / np.linalg.norm(vectors, axis=1)[:, None]
  )
  assert normalized.means.shape == (0, 8)


def test_apply_normalizes_other_vectors(vectors):
  normalized = vector_normalization.iterative_normalization(vectors)
  np.testing.assert_allclose(normalized.apply(vectors), normalized.vectors)
  np.testing.assert_allclose(
    normalized.apply(5 * vectors[3:5]), normalized.vectors[3:5]
  )


def test_zero_vectors_are_accepted_and_invalid_vectors_are_rejected(vectors):
  with_zero = np.concatenate([vectors, np.zeros((1, 8))])
  assert np.isfinite(
    vector_normalization.iterative_normalization(with_zero).vectors
  ).all()
  with raises_error(errors.AnalysisError, mentions=5):
    vector_normalization.iterative_normalization(np.ones((5, 3)))
  with raises_error(errors.AnalysisError, mentions=(0, 3)):
    vector_normalization.iterative_normalization(np.ones((0, 3)))
  vectors[7, 2] = np.nan
  with raises_error(errors.AnalysisError, mentions=('NaN', 7)):
    vector_normalization.iterative_normalization(vectors)
