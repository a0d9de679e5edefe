"""Cross-entropy over logits, and InfoNCE."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from xlflax.objectives import losses

cross_entropy = jax.jit(losses.cross_entropy)
info_nce = jax.jit(losses.info_nce, static_argnames='temperature')


def test_cross_entropy_computed_by_hand():
  result = cross_entropy(
    jnp.log(jnp.array([[1.0, 2.0, 5.0], [6.0, 1.0, 1.0]])), jnp.array([1, 0])
  )
  np.testing.assert_allclose(
    result.loss, [math.log(4.0), math.log(8 / 6)], rtol=1e-6
  )
  np.testing.assert_array_equal(result.correct, [0.0, 1.0])


def test_cross_entropy_supports_leading_axes():
  logits = jax.random.normal(jax.random.key(0), (2, 3, 7))
  labels = jnp.array([[0, 6, 2], [3, 3, 5]])
  all_losses = cross_entropy(logits, labels)
  flat = cross_entropy(logits.reshape(6, 7), labels.reshape(6))
  np.testing.assert_allclose(all_losses.loss.reshape(6), flat.loss, rtol=1e-6)
  np.testing.assert_array_equal(all_losses.correct.reshape(6), flat.correct)


def test_cross_entropy_gradient_is_softmax_minus_one_hot():
  logits = jnp.array([[1.0, -2.0, 0.5, 0.5]])
  gradient = jax.grad(lambda x: cross_entropy(x, jnp.array([2])).loss[0])(
    logits
  )
  want = np.exp(logits) / np.exp(logits).sum() - np.eye(4)[2]
  np.testing.assert_allclose(gradient, want, atol=1e-6)


def test_cross_entropy_of_huge_bfloat16_logits_is_finite():
  logits = jnp.array([[3e4, -3e4], [-3e4, -3e4]], jnp.bfloat16)
  value, gradient = jax.value_and_grad(
    lambda x: cross_entropy(x, jnp.array([1, 0])).loss.sum()
  )(logits)
  assert value.dtype == jnp.float32
  np.testing.assert_allclose(value, 6e4 + math.log(2), rtol=1e-2)
  assert np.isfinite(gradient.astype(jnp.float32)).all()


def test_l2_normalize():
  vectors = jnp.array([[3.0, 4.0], [0.0, 0.0]])
  np.testing.assert_allclose(
    losses.l2_normalize(vectors), [[0.6, 0.8], [0.0, 0.0]], rtol=1e-6
  )
  gradient = jax.grad(lambda v: losses.l2_normalize(v).sum())(vectors)
  assert np.isfinite(gradient).all()


def _oracle(queries, keys, temperature, weights, excluded):
  """Computes InfoNCE in float64 with loops."""
  size = len(queries)
  loss, correct = np.zeros(size), np.zeros(size)
  for i in range(size):
    if weights[i] == 0:
      continue
    valid_terms = [
      j
      for j in range(size)
      if j == i or (weights[j] > 0 and not excluded[i, j])
    ]
    scores = {j: queries[i] @ keys[j] / temperature for j in valid_terms}
    loss[i] = np.log(sum(np.exp(s) for s in scores.values())) - scores[i]
    correct[i] = scores[i] >= max(scores.values())
  return loss, correct


@pytest.fixture
def case():
  rng = np.random.default_rng(0)
  queries, keys = rng.normal(size=(2, 6, 3))
  excluded = rng.random((6, 6)) < 0.3
  return queries, keys, np.array([1.0, 1.0, 0.0, 1.0, 1.0, 1.0]), excluded


def test_info_nce_computed_by_hand():
  result = info_nce(
    jnp.array([[1.0, 0.0], [1.0, 0.0]]),
    jnp.array([[1.0, 0.0], [0.0, 1.0]]),
    temperature=0.5,
  )
  right, wrong = math.exp(2), 1.0
  np.testing.assert_allclose(
    result.loss,
    [-math.log(right / (right + wrong)), -math.log(wrong / (right + wrong))],
    rtol=1e-5,
  )
  np.testing.assert_array_equal(result.correct, [1.0, 0.0])


@pytest.mark.parametrize('function', [losses.info_nce, info_nce])
def test_info_nce_matches_numpy(case, function):
  queries, keys, weights, excluded = case
  call = functools.partial(function, temperature=0.7)
  result = call(
    jnp.asarray(queries),
    jnp.asarray(keys),
    weights=jnp.asarray(weights),
    excluded=jnp.asarray(excluded),
  )
  loss, correct = _oracle(queries, keys, 0.7, weights, excluded)
  np.testing.assert_allclose(result.loss, loss, rtol=1e-4, atol=1e-5)
  np.testing.assert_array_equal(result.correct, correct)


def test_info_nce_weights_equal_a_subset(case):
  queries, keys, weights, _ = map(jnp.asarray, case)
  valid_rows = np.flatnonzero(weights)
  masked = info_nce(queries, keys, temperature=0.1, weights=weights)
  subset = info_nce(queries[valid_rows], keys[valid_rows], temperature=0.1)
  np.testing.assert_allclose(masked.loss[valid_rows], subset.loss, rtol=1e-5)
  assert masked.loss[2] == 0 and masked.correct[2] == 0


def test_info_nce_is_permutation_equivariant(case):
  queries, keys, weights, excluded = map(jnp.asarray, case)
  order = jnp.array([3, 1, 5, 0, 2, 4])
  plain = info_nce(
    queries, keys, temperature=0.1, weights=weights, excluded=excluded
  )
  moved = info_nce(
    queries[order],
    keys[order],
    temperature=0.1,
    weights=weights[order],
    excluded=excluded[order][:, order],
  )
  np.testing.assert_allclose(
    plain.loss[order], moved.loss, rtol=1e-5, atol=1e-6
  )


def test_info_nce_gradient_equals_finite_differences(case):
  queries, keys, weights, excluded = map(jnp.asarray, case)
  check_grads(
    lambda q, k: info_nce(
      q, k, temperature=0.7, weights=weights, excluded=excluded
    ).loss.sum(),
    (queries, keys),
    order=1,
    modes=['rev'],
    rtol=2e-2,
    atol=2e-2,
  )


@pytest.mark.parametrize('weights', [[0.0, 0.0], [1.0, 0.0]])
def test_info_nce_of_zero_or_one_pair_is_zero(weights):
  def total(q):
    result = info_nce(
      q, jnp.zeros((2, 3)), temperature=0.05, weights=jnp.array(weights)
    )
    return result.loss.sum()

  value, gradient = jax.value_and_grad(total)(jnp.zeros((2, 3)))
  assert value == 0
  np.testing.assert_array_equal(gradient, 0)
