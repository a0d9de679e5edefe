"""Keys derived from seed and purpose."""

import jax
import numpy as np

from xlflax.training import randomness


def test_keys_differ_by_seed_and_purpose():
  keys = [
    np.asarray(jax.random.key_data(randomness.key(seed, purpose)))
    for seed in (0, 1)
    for purpose in randomness.Purpose
  ]
  assert len({k.tobytes() for k in keys}) == 6
  np.testing.assert_array_equal(
    keys[0],
    jax.random.key_data(randomness.key(0, randomness.Purpose.PARAMETERS)),
  )
