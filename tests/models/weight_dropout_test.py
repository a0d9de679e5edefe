"""Dropout of attention weights with products of row and column bits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlflax.models import dropout

_SHAPE = (3, 2, 192, 256)  # batch, heads, queries, keys


def _words(seed):
  return jax.random.bits(jax.random.key(seed), (2,), jnp.uint32)


def _keep_mask(seed, rate):
  return np.asarray(
    dropout.attention_keep_mask(_words(seed), _SHAPE, rate=rate)
  )


def _standardize(is_kept, rate):
  """Returns the mask with mean 0 and variance 1, [all rows, keys]."""
  is_kept = is_kept.reshape(-1, _SHAPE[-1])
  assert abs(is_kept.mean() - (1 - rate)) < 4 * np.sqrt(rate / is_kept.size)
  return (is_kept - is_kept.mean()) / is_kept.std()


def _scores(first, second=None):
  """Returns z-scores of the correlations of all rows."""
  products = first @ (first if second is None else second).T
  z = products / np.sqrt(first.shape[1])
  return z[np.triu_indices_from(z, k=1)] if second is None else z.ravel()


def _are_independent(z):
  """Returns whether z-scores are those of independent rows.

  The standard deviation tests all quadruples of weights in two rows and columns.
  """
  limit = np.sqrt(2 * np.log(z.size)) + 3
  return np.abs(z).max() < limit and abs(z.std() - 1) < 6 / np.sqrt(z.size)


@pytest.mark.parametrize('rate', [0.1, 0.5])
def test_rows_columns_heads_and_keys_are_independent(rate):
  first, other = (_standardize(_keep_mask(seed, rate), rate) for seed in (0, 1))
  assert _are_independent(_scores(first))  # queries, heads, batch
  assert _are_independent(_scores(first.T))  # keys
  assert _are_independent(_scores(first, other))  # layers, steps
  assert _are_independent((first * other).sum(1) / np.sqrt(first.shape[1]))


@pytest.mark.parametrize('rate', [0.1, 0.5])
def test_triples_and_neighbors_are_independent(rate):
  """Tests triples of rows, of columns, and of one weight in three steps.

  The structure of the product would cause dependent triples, in which the sum
  of the bits of two rows equals those of a third.
  """
  masks = [_standardize(_keep_mask(seed, rate), rate) for seed in (3, 4, 5)]
  skew = (1 - 2 * rate) / np.sqrt(rate * (1 - rate))
  limit = 6 + 2 * skew  # Products of three skewed variables are skewed.
  for mask in (masks[0], masks[0].T):
    size = np.sqrt(mask.shape[1])
    for step in (1, 2, 64):
      triples = mask * np.roll(mask, step, 0) * np.roll(mask, 3 * step, 0)
      z = triples.sum(1) / size
      assert np.abs(z).max() < limit
      assert abs(z.mean()) < 5 / np.sqrt(z.size)
  z = (masks[0] * masks[1] * masks[2]).sum(1) / np.sqrt(_SHAPE[-1])
  assert np.abs(z).max() < limit
  assert abs(z.mean()) < 5 / np.sqrt(z.size)


@pytest.mark.parametrize('rate', [0.1, 0.5])
def test_sums_have_the_variance_of_independent_weights(rate):
  """Sums over rows, columns and 32 x 32 blocks have binomial variances."""
  masks = np.stack(
    [_standardize(_keep_mask(seed, rate), rate) for seed in range(8)]
  )
  blocks = masks.reshape(8, -1, 32, _SHAPE[-1] // 32, 32).sum((2, 4)) / 32
  for z in (masks.sum(2) / 16, masks.sum(1) / np.sqrt(masks.shape[1]), blocks):
    assert abs(z.var() - 1) < 6 * np.sqrt(2 / z.size)


def test_xor_and_sum_of_bits_are_not_independent():
  random_words = _words(0)
  index = np.arange(np.prod(_SHAPE[:-1]), dtype=np.uint32)
  rows = np.asarray(dropout.row_bits(random_words, index))
  columns = np.asarray(dropout.column_bits(random_words, _SHAPE[-1]))
  for pair in (np.bitwise_xor, np.add):
    is_kept = pair(rows[:, None], columns[None, :]) >= 0
    assert not _are_independent(_scores(_standardize(is_kept, 0.5)))


def test_dropped_fraction_equals_the_rate():
  rates = np.linspace(0.05, 0.95, 19)
  dropped = np.array([1 - _keep_mask(2, float(rate)).mean() for rate in rates])
  spread = np.sqrt(rates * (1 - rates) / np.prod(_SHAPE))
  assert np.all(np.abs(dropped - rates) < 5 * spread)


def test_dropped_weights_are_scaled_and_have_the_same_gradient():
  key, rate = jax.random.key(5), 0.1
  weights = jnp.full(_SHAPE, 2.0)
  dropped, pull = jax.vjp(
    lambda w: dropout.drop_weights(key, w, rate=rate), weights
  )
  is_kept = np.asarray(dropped) > 0
  np.testing.assert_array_equal(is_kept, _keep_mask(5, rate))
  np.testing.assert_allclose(dropped[is_kept], 2 / (1 - rate), rtol=1e-6)
  (gradient,) = pull(jnp.ones_like(dropped))
  np.testing.assert_allclose(gradient * weights, dropped, rtol=1e-6)
