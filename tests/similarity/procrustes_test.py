"""Tests that the orthogonal map equals SciPy's and recovers rotations."""

import numpy as np
import pytest
import scipy.linalg
import scipy.stats

from tests.errors import raises_error
from xlflax.similarity import csls, procrustes
from xlflax.utils import errors


@pytest.fixture
def rng():
  return np.random.default_rng(0)


def test_orthogonal_map_equals_scipy(rng):
  source, target = rng.normal(size=(2, 50, 6))
  matrix = procrustes.orthogonal_map(source, target)
  expected, _ = scipy.linalg.orthogonal_procrustes(source, target)
  np.testing.assert_allclose(matrix.T, expected, atol=1e-10)
  np.testing.assert_allclose(matrix @ matrix.T, np.eye(6), atol=1e-10)
  np.testing.assert_allclose(
    procrustes.apply_map(matrix, source), source @ expected, atol=1e-10
  )


def test_orthogonal_map_minimizes_the_distance(rng):
  source, target = rng.normal(size=(2, 20, 4))
  matrix = procrustes.orthogonal_map(source, target)
  best = np.linalg.norm(procrustes.apply_map(matrix, source) - target)
  for seed in range(50):
    other = scipy.stats.ortho_group.rvs(4, random_state=seed)
    assert np.linalg.norm(procrustes.apply_map(other, source) - target) >= best


def test_orthogonal_map_equals_the_equation_of_the_paper(rng):
  """In equation 1, U S V^T = SVD(Y X^T), vectors are columns."""
  source, target = rng.normal(size=(2, 30, 5))
  x, y = source.T, target.T
  u, _, vt = np.linalg.svd(y @ x.T)
  matrix = procrustes.orthogonal_map(source, target)
  np.testing.assert_allclose(matrix, u @ vt, atol=1e-10)
  np.testing.assert_allclose(procrustes.apply_map(matrix, source).T, matrix @ x)


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_vocabulary_alignment_recovers_a_rotation(rng, dtype):
  """Normalization removes differences of norms and means."""
  target = rng.normal(size=(300, 16))
  rotation = scipy.stats.ortho_group.rvs(16, random_state=0)
  source = (target @ rotation * rng.uniform(0.5, 2, (300, 1))).astype(dtype)
  dictionary = np.stack([np.arange(100)] * 2, 1)
  alignment = procrustes.fit_vocabulary_alignment(
    source, target.astype(dtype), dictionary
  )
  mapped = alignment.map_source(source)
  assert mapped.dtype == dtype
  np.testing.assert_allclose(
    mapped, alignment.map_target(target.astype(dtype)), atol=1e-4
  )
  nearest = csls.find_nearest(
    mapped[100:], alignment.target.vectors, all_queries=mapped
  )
  gold = [{i} for i in range(100, 300)]
  assert csls.precision_at_k(nearest.indices, gold, k=1) == 1.0
  unmapped = csls.find_nearest(source[100:], target, all_queries=source)
  assert csls.precision_at_k(unmapped.indices, gold, k=1) < 0.1


def test_alignment_generalizes_to_other_sentences(rng):
  target = rng.normal(size=(200, 8)) + 3
  rotation = scipy.stats.ortho_group.rvs(8, random_state=1)
  source = target @ rotation
  alignment = procrustes.fit_alignment(source[:100], target[:100])
  np.testing.assert_allclose(
    alignment.map_source(source[100:]),
    alignment.map_target(target[100:]),
    atol=1e-6,
  )


def test_map_of_few_rows_is_orthogonal(rng):
  source, target = rng.normal(size=(2, 3, 6))
  matrix = procrustes.orthogonal_map(source, target)
  np.testing.assert_allclose(matrix @ matrix.T, np.eye(6), atol=1e-10)


def test_invalid_vectors_are_rejected(rng):
  source, target = rng.normal(size=(2, 9, 4))
  with raises_error(errors.AnalysisError, mentions=(9, 8)):
    procrustes.orthogonal_map(source, target[:8])
  with raises_error(errors.AnalysisError, mentions=(4, 3)):
    procrustes.fit_alignment(source, target[:, :3])
  with pytest.raises(errors.AnalysisError):
    procrustes.fit_vocabulary_alignment(source, target, [])
  target[5] = np.nan
  with raises_error(errors.AnalysisError, mentions=('NaN', 5)):
    procrustes.orthogonal_map(source, target)
