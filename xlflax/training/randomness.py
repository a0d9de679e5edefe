"""Random keys derived from a seed, a purpose and a step."""

import enum
from typing import Any

import jax
import numpy as np


class Purpose(enum.IntEnum):
  """Purpose of a random key.

  Random keys are derived from the integer values. Do not change these values,
  because resumed runs would then use different random numbers.
  """

  PARAMETERS = 0
  TRAINING = 1
  EVALUATION = 2


def purpose_key(seed: int | jax.Array, purpose: Purpose) -> jax.Array:
  """Returns the run's random key for a purpose, such as training.

  Callers can fold the number of a step into the key. The key is
  `fold_in(key(seed), purpose)`. For JAX's default generator, it is computed on
  the host, because JAX would compile three programs for these two words.

  Args:
    seed: Random seed of the run.
    purpose: Purpose for which the key is used.
  """
  generator = jax.config.jax_default_prng_impl  # type: ignore[attr-defined]
  if generator != 'threefry2x32' or isinstance(seed, jax.Array):
    return jax.random.fold_in(jax.random.key(seed), int(purpose))
  key_words = _threefry((0, seed & _WORD_MASK), (0, int(purpose)))
  # JAX would compile a program to convert this array to a device array.
  data: Any = np.asarray(key_words, np.uint32)
  return jax.random.wrap_key_data(data, impl='threefry2x32')


_WORD_MASK = 0xFFFFFFFF
# Rotations of each group of four rounds (Salmon et al. 2011, table 2, for
# 2 x 32 bits).
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def _threefry(key: tuple[int, int], block: tuple[int, int]) -> tuple[int, int]:
  """Encrypts a block with 20-round Threefry-2x32 (Salmon et al. 2011, 4.3)."""
  schedule = (*key, key[0] ^ key[1] ^ _PARITY)
  x, y = ((b + k) & _WORD_MASK for b, k in zip(block, key, strict=True))
  for group in range(1, 6):
    for rotation in _ROTATIONS[(group - 1) % 2]:
      x = (x + y) & _WORD_MASK
      y = ((y << rotation | y >> (32 - rotation)) & _WORD_MASK) ^ x
    x = (x + schedule[group % 3]) & _WORD_MASK
    y = (y + schedule[(group + 1) % 3] + group) & _WORD_MASK
  return x, y
