"""Tests of keys derived from seed and purpose."""

import jax
import numpy as np
import pytest

from xlflax.training import randomness


def test_keys_differ_by_seed_and_purpose():
  keys = [
    np.asarray(jax.random.key_data(randomness.purpose_key(seed, purpose)))
    for seed in (0, 1)
    for purpose in randomness.Purpose
  ]
  assert len({k.tobytes() for k in keys}) == 6
  np.testing.assert_array_equal(
    keys[0],
    jax.random.key_data(
      randomness.purpose_key(0, randomness.Purpose.PARAMETERS)
    ),
  )


@pytest.mark.parametrize('seed', [0, 7, 2**31 - 1, -5])
def test_purpose_key_equals_fold_in(seed):
  for purpose in randomness.Purpose:
    np.testing.assert_array_equal(
      jax.random.key_data(randomness.purpose_key(seed, purpose)),
      jax.random.key_data(
        jax.random.fold_in(jax.random.key(seed), int(purpose))
      ),
    )


def test_purpose_key_uses_the_default_prng():
  with jax.default_prng_impl('rbg'):
    key = randomness.purpose_key(3, randomness.Purpose.TRAINING)
  assert jax.random.key_data(key).shape == (4,)


def test_seeds_may_be_traced():
  keys = jax.vmap(
    lambda s: randomness.purpose_key(s, randomness.Purpose.TRAINING)
  )(np.arange(3))
  for seed in range(3):
    alone = randomness.purpose_key(seed, randomness.Purpose.TRAINING)
    np.testing.assert_array_equal(
      jax.random.key_data(keys[seed]), jax.random.key_data(alone)
    )
