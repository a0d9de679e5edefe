"""Tests that CKA equals its definition by Gram matrices in float64."""

import numpy as np
import pytest
import scipy.stats

from tests.errors import raises_error
from xlflax.similarity import cka
from xlflax.utils import errors


@pytest.fixture
def states():
  """Two models of 3 and 2 layers over 40 sentences, far from the origin."""
  rng = np.random.default_rng(0)
  shared = rng.normal(size=(40, 4))
  first = [
    shared @ rng.normal(size=(4, 7)) + rng.normal(size=(40, 7)) * s + 50
    for s in (0.1, 1, 3)
  ]
  second = [
    shared @ rng.normal(size=(4, 5)) + rng.normal(size=(40, 5)) * s
    for s in (0.2, 2)
  ]
  return np.array(first), np.array(second)


def _center(gram):
  h = np.eye(len(gram)) - 1 / len(gram)
  return h @ gram @ h


def _by_gram(x, y):
  """tr(K H L H) / sqrt(tr(K H K H) tr(L H L H))."""
  k, m = _center(x @ x.T), _center(y @ y.T)
  return np.trace(k @ m) / np.sqrt(np.trace(k @ k) * np.trace(m @ m))


def _unbiased_hsic(k, m):
  """Song et al. (2012), equation 5, as a sum over i, j, q, r all different."""
  n = len(k)
  total = 0.0
  for i in range(n):
    for j in set(range(n)) - {i}:
      for q in set(range(n)) - {i, j}:
        for r in set(range(n)) - {i, j, q}:
          total += k[i, j] * (m[i, j] + m[q, r] - 2 * m[i, q])
  return total


def test_linear_cka_equals_the_gram_matrix_formula(states):
  first, second = states
  for x in first:
    for y in second:
      assert cka.linear_cka(x, y) == pytest.approx(_by_gram(x, y), rel=1e-10)


def test_linear_cka_equals_a_value_computed_by_hand():
  x = np.array([[0.0], [1.0], [2.0], [3.0]])
  y = np.array([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]])
  # Centered x: -1.5, -.5, .5, 1.5: |x|^2 = 5; y^T x = -4; |y|^2 = 4.
  assert cka.linear_cka(x, y) == pytest.approx(16 / (5 * 4))


def test_batched_updates_equal_a_single_update(states):
  first, second = states
  for estimator in cka.Estimator:
    batched = cka.LayerCKA(estimator=estimator)
    batched.update(first, second)
    parts = cka.LayerCKA(estimator=estimator)
    for start, stop in ((0, 1), (1, 13), (13, 40)):
      parts.update(first[:, start:stop], second[:, start:stop])
    assert parts.count == 40
    assert parts.result().shape == (3, 2)
    np.testing.assert_allclose(parts.result(), batched.result(), rtol=1e-10)
    expected = [
      [cka.linear_cka(x, y, estimator=estimator) for y in second] for x in first
    ]
    np.testing.assert_allclose(batched.result(), expected, rtol=1e-10)


def test_diagonal_equals_the_diagonal_of_all_layer_pairs(states):
  first = states[0]
  second = first[::-1] + 1
  all_layers = cka.LayerCKA()
  diagonal = cka.LayerCKA(layers='diagonal')
  for sums in (all_layers, diagonal):
    sums.update(first, second)
  np.testing.assert_allclose(diagonal.result(), np.diag(all_layers.result()))
  with raises_error(errors.AnalysisError, mentions=(3, 2)):
    cka.LayerCKA(layers='diagonal').update(*states)


@pytest.mark.parametrize('estimator', list(cka.Estimator))
def test_cka_is_invariant_to_rotation_scale_and_shift(states, estimator):
  x, y = states[0][0], states[1][1]
  rotation = scipy.stats.ortho_group.rvs(7, random_state=1)
  expected = cka.linear_cka(x, y, estimator=estimator)
  moved = 3.5 * x @ rotation + 100
  assert cka.linear_cka(moved, y, estimator=estimator) == pytest.approx(
    expected, abs=1e-9
  )
  assert cka.linear_cka(y, x, estimator=estimator) == pytest.approx(expected)
  assert cka.linear_cka(x, moved, estimator=estimator) == pytest.approx(1)


def test_cka_is_not_invariant_to_other_linear_maps(states):
  x, y = states[0][1], states[1][0]
  stretched = x * np.array([10, 1, 1, 1, 1, 1, 0.1])
  assert abs(cka.linear_cka(stretched, y) - cka.linear_cka(x, y)) > 0.01


def test_debiased_cka_equals_the_u_statistic(states):
  x, y = states[0][0][:9], states[1][0][:9]
  k, m = x @ x.T, y @ y.T
  expected = _unbiased_hsic(k, m) / np.sqrt(
    _unbiased_hsic(k, k) * _unbiased_hsic(m, m)
  )
  assert cka.linear_cka(x, y, estimator='debiased') == pytest.approx(
    expected, rel=1e-8
  )


def test_debiased_cka_of_noise_is_near_zero():
  rng = np.random.default_rng(3)
  x, y = rng.normal(size=(2, 30, 300))
  assert cka.linear_cka(x, y) > 0.8
  assert abs(cka.linear_cka(x, y, estimator='debiased')) < 0.1


def test_cka_of_a_constant_layer_is_nan(states):
  first, second = states
  constant = (
    np.broadcast_to(first[:1, :1], (1, 40, 7))
    * np.linspace(1, 1 + 1e-7, 40)[None, :, None]
  )  # differences within rounding errors
  sums = cka.LayerCKA()
  sums.update(np.concatenate([first[:1], constant]).astype(np.float32), second)
  result = sums.result()
  assert np.isfinite(result[0]).all() and np.isnan(result[1]).all()


def test_float32_cka_is_close_to_float64(states):
  first, second = (side.astype(np.float32) for side in states)
  single = cka.LayerCKA(dtype=np.float32)
  double = cka.LayerCKA()
  for sums in (single, double):
    sums.update(first, second)
  np.testing.assert_allclose(single.result(), double.result(), atol=1e-5)


@pytest.mark.parametrize('estimator', list(cka.Estimator))
def test_small_blocks_do_not_change_the_result(monkeypatch, states, estimator):
  """Sums are updated in the middle of the data, for batches of any size."""
  monkeypatch.setattr(cka, '_SENTENCES', (8, 8))
  first, second = states
  expected = [
    [cka.linear_cka(x, y, estimator=estimator) for y in second] for x in first
  ]
  sums = cka.LayerCKA(estimator=estimator)
  for start, stop in ((0, 3), (3, 14), (14, 38), (38, 40)):
    sums.update(first[:, start:stop], second[:, start:stop])
    if stop > 3:
      assert np.isfinite(sums.result()).all()
  np.testing.assert_allclose(sums.result(), expected, rtol=1e-9)


def test_invalid_hidden_states_are_rejected(states):
  first, second = states
  with raises_error(errors.AnalysisError, mentions=(40, 39)):
    cka.LayerCKA().update(first, second[:, :39])
  broken = first.copy()
  broken[1, 17, 3] = np.nan
  with raises_error(errors.AnalysisError, mentions=('NaN', 17)):
    cka.LayerCKA().update(broken, second)
  sums = cka.LayerCKA()
  sums.update(first, second)
  with raises_error(errors.AnalysisError, mentions=(2, 7, 5)):
    sums.update(first[:2], second)
  with raises_error(errors.AnalysisError, got=3):
    cka.linear_cka(first[0, :3], second[0, :3], estimator='debiased')
