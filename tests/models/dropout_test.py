"""Dropout: rates, independence, gradients, sharding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlflax.models import dropout

_SHAPE = (64, 512)


def _mask(seed, rate=0.1, shape=_SHAPE):
  ones = jnp.ones(shape)
  return (
    np.asarray(dropout.apply_dropout(jax.random.key(seed), ones, rate=rate)) > 0
  )


def _correlation(a, b):
  return abs(np.corrcoef(a.ravel(), b.ravel())[0, 1])


@pytest.mark.parametrize('rate', [0.1, 0.5, 0.9])
def test_dropout_rate_and_scale(rate):
  outputs = np.asarray(
    dropout.apply_dropout(jax.random.key(1), jnp.full(_SHAPE, 3.0), rate=rate)
  )
  is_kept = outputs > 0
  deviation = np.sqrt(rate * (1 - rate) / is_kept.size)
  assert abs(is_kept.mean() - (1 - rate)) < 4 * deviation
  np.testing.assert_allclose(outputs[is_kept], 3 / (1 - rate), rtol=1e-6)


def test_disabled_module_returns_its_inputs():
  inputs = jnp.arange(6.0).reshape(2, 3)
  outputs = dropout.Dropout(0.5).apply({}, inputs, deterministic=True)
  assert outputs is inputs
  outputs = dropout.Dropout(0.0).apply({}, inputs, deterministic=False)
  assert outputs is inputs


def test_module_uses_the_dropout_rng():
  inputs = jnp.ones(_SHAPE)
  module = dropout.Dropout(0.5)
  a, b, c = (
    module.apply(
      {}, inputs, deterministic=False, rngs={'dropout': jax.random.key(seed)}
    )
    for seed in (0, 0, 1)
  )
  np.testing.assert_array_equal(a, b)
  assert (a != c).mean() > 0.4


def test_masks_of_different_keys_are_uncorrelated():
  masks = [_mask(seed, rate=0.5) for seed in range(6)]
  limit = 5 / np.sqrt(masks[0].size)
  for i, first in enumerate(masks):
    for second in masks[:i]:
      assert _correlation(first, second) < limit


@pytest.mark.parametrize(
  'axis, shift', [(0, 1), (0, 2), (1, 1), (1, 2), (1, 32), (1, 256)]
)
def test_neighbors_are_uncorrelated(axis, shift):
  mask = _mask(7, rate=0.5)
  limit = 5 / np.sqrt(mask.size)
  assert _correlation(mask, np.roll(mask, shift, axis=axis)) < limit


def test_every_row_and_column_has_the_rate():
  mask = _mask(3, rate=0.5, shape=(512, 512))
  for axis in (0, 1):
    z = (mask.mean(axis) - 0.5) / np.sqrt(0.25 / 512)
    assert np.abs(z).max() < 5 and 0.9 < z.std() < 1.1


def test_bits_are_uniform():
  bits = np.asarray(
    dropout.random_bits(jnp.asarray([5, 9], jnp.uint32), (1 << 16,))
  )
  # The bits are a bijection of the index.
  assert len(np.unique(bits)) == bits.size
  for shift in (0, 8, 16, 24):
    counts = np.bincount((bits >> shift) & 255, minlength=256)
    chi_square = ((counts - 256) ** 2 / 256).sum()
    assert chi_square < 255 + 5 * np.sqrt(2 * 255)


def test_mask_depends_only_on_key_and_index():
  key = jax.random.key(0)
  full_outputs = dropout.apply_dropout(key, jnp.ones(_SHAPE), rate=0.3)
  low = dropout.apply_dropout(key, jnp.ones(_SHAPE, jnp.bfloat16), rate=0.3)
  flat = dropout.apply_dropout(key, jnp.ones(np.prod(_SHAPE)), rate=0.3)
  np.testing.assert_array_equal(full_outputs > 0, low > 0)
  np.testing.assert_array_equal(full_outputs.ravel(), flat)
  assert low.dtype == jnp.bfloat16


def test_gradient_uses_the_same_mask():
  key = jax.random.key(2)
  inputs = jax.random.normal(jax.random.key(3), _SHAPE)
  outputs, pull = jax.vjp(
    lambda x: dropout.apply_dropout(key, x, rate=0.25), inputs
  )
  (gradient,) = pull(jnp.ones_like(outputs))
  np.testing.assert_allclose(gradient * inputs, outputs, rtol=1e-6)


def test_sharding_does_not_change_the_mask():
  mesh = jax.make_mesh((2, 4), ('a', 'b'))
  sharding = jax.sharding.NamedSharding(
    mesh, jax.sharding.PartitionSpec('a', 'b')
  )
  ones, key = jnp.ones(_SHAPE), jax.random.key(4)
  drop = jax.jit(lambda x: dropout.apply_dropout(key, x, rate=0.1))
  sharded = drop(jax.device_put(ones, sharding))
  assert len(sharded.sharding.device_set) == 8
  np.testing.assert_array_equal(sharded, drop(ones))
