"""Keys derived from (seed, purpose, step); nothing is drawn from globals."""

import enum
from typing import Any

import jax
import numpy as np


class Purpose(enum.IntEnum):
  """What a key is for; the numbers are part of a run's identity."""

  PARAMETERS = 0
  TRAINING = 1
  EVALUATION = 2


def purpose_key(seed: int | jax.Array, purpose: Purpose) -> jax.Array:
  """The key of one purpose under a seed; fold the step in where it varies.

  It is `fold_in(key(seed), purpose)`, reckoned on the host for JAX's default
  generator, as JAX would compile three programs for these two words.
  """
  generator = jax.config.jax_default_prng_impl  # type: ignore[attr-defined]
  if generator != 'threefry2x32' or isinstance(seed, jax.Array):
    return jax.random.fold_in(jax.random.key(seed), int(purpose))
  key_words = _threefry((0, seed & _WORD), (0, int(purpose)))
  # JAX would compile a program to make this array its own.
  data: Any = np.asarray(key_words, np.uint32)
  return jax.random.wrap_key_data(data, impl='threefry2x32')


_WORD = 0xFFFFFFFF
# Of each group of four rounds (Salmon et al. 2011, table 2, for 2 x 32 bits).
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def _threefry(key: tuple[int, int], block: tuple[int, int]) -> tuple[int, int]:
  """One block of Threefry-2x32 with 20 rounds (Salmon et al. 2011, 4.3)."""
  schedule = (*key, key[0] ^ key[1] ^ _PARITY)
  x, y = ((b + k) & _WORD for b, k in zip(block, key, strict=True))
  for group in range(1, 6):
    for rotation in _ROTATIONS[(group - 1) % 2]:
      x = (x + y) & _WORD
      y = ((y << rotation | y >> (32 - rotation)) & _WORD) ^ x
    x = (x + schedule[group % 3]) & _WORD
    y = (y + schedule[(group + 1) % 3] + group) & _WORD
  return x, y
