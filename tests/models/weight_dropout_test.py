"""Dropout of attention's weights: one mixing of a row's and a column's bits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlflax.models import dropout

_SHAPE = (3, 2, 192, 256)  # rows of a batch, heads, queries, keys


def _words(seed):
  return jax.random.bits(jax.random.key(seed), (2,), jnp.uint32)


def _bits(seed):
  return np.asarray(dropout.weight_bits(_words(seed), _SHAPE))


def _standard(bits, rate):
  """The mask of `rate` with mean 0 and variance 1, [all rows, keys]."""
  kept = bits.reshape(-1, _SHAPE[-1]) >= dropout.threshold(rate)
  assert abs(kept.mean() - (1 - rate)) < 4 * np.sqrt(rate / kept.size)
  return (kept - kept.mean()) / kept.std()


def _scores(first, second=None):
  """z of the correlation of each row of `first` with each of `second`."""
  products = first @ (first if second is None else second).T
  z = products / np.sqrt(first.shape[1])
  return z[np.triu_indices_from(z, k=1)] if second is None else z.ravel()


def _independent(z):
  """Of so many z, none is large, and all together spread as normal ones.

  The spread is a test of all fours of weights in two rows and two columns,
  whose bits before the mixing cancel.
  """
  limit = np.sqrt(2 * np.log(z.size)) + 3
  return np.abs(z).max() < limit and abs(z.std() - 1) < 6 / np.sqrt(z.size)


@pytest.mark.parametrize('rate', [0.1, 0.5])
def test_rows_columns_heads_and_keys_are_independent(rate):
  first, other = (_standard(_bits(seed), rate) for seed in (0, 1))
  assert _independent(_scores(first))  # queries, heads, rows of the batch
  assert _independent(_scores(first.T))  # keys
  assert _independent(_scores(first, other))  # layers, steps
  assert _independent((first * other).sum(1) / np.sqrt(first.shape[1]))


def test_without_the_mixing_they_are_not():
  words = _words(0)
  rows = dropout.random_bits(words, (*_SHAPE[:-1], 1))
  bits = rows ^ dropout.column_bits(words, _SHAPE[-1])[None, None, None]
  assert not _independent(_scores(_standard(np.asarray(bits), 0.5)))


def test_upper_bits_are_uniform():
  bits = _bits(2).ravel()
  for shift in (16, 24):
    counts = np.bincount((bits >> shift) & 255, minlength=256)
    expected = bits.size / 256
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_square - 255) < 5 * np.sqrt(2 * 255)


def test_rate_scale_and_gradient():
  key, rate = jax.random.key(5), 0.1
  weights = jnp.full(_SHAPE, 2.0)
  dropped, pull = jax.vjp(
    lambda w: dropout.drop_weights(key, w, rate=rate), weights
  )
  kept = np.asarray(dropped) > 0
  np.testing.assert_array_equal(
    kept, np.asarray(_bits(5)) >= dropout.threshold(rate)
  )
  np.testing.assert_allclose(dropped[kept], 2 / (1 - rate), rtol=1e-6)
  (gradient,) = pull(jnp.ones_like(dropped))
  np.testing.assert_allclose(gradient * weights, dropped, rtol=1e-6)
