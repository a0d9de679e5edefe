"""Keys derived from (seed, purpose, step); nothing is drawn from globals."""

import enum

import jax


class Purpose(enum.IntEnum):
  """What a key is for; the numbers are part of a run's identity."""

  PARAMETERS = 0
  TRAINING = 1
  EVALUATION = 2


def key(seed: int, purpose: Purpose) -> jax.Array:
  """The key of one purpose under a seed; fold the step in where it varies."""
  return jax.random.fold_in(jax.random.key(seed), int(purpose))
