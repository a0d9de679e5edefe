"""Functions that generate pseudorandom 64-bit integers without state.

`numpy.random` is not used, because batches must be identical for all NumPy
versions. Instead, a random 64-bit word is `mix_bits(key + counter)`.
"""

import hashlib

import numpy as np

# Constants of SplitMix64.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_MASK = (1 << 64) - 1


def make_key(*parts: int | str) -> int:
  """Hashes numbers and names to a 64-bit key, identically on all machines.

  For example, the results of `make_key(3, 'order', 'corpus.mono.en')` and
  `make_key(3, 'order', 'corpus.mono.de')` are unrelated.
  """
  text = '\x1f'.join(f'{type(part).__name__}:{part}' for part in parts)
  digest = hashlib.sha256(text.encode('utf-8')).digest()
  return int.from_bytes(digest[:8], 'little')


def mix_bits(values: np.ndarray) -> np.ndarray:
  """Maps each 64-bit integer to a pseudorandom one (SplitMix64 finalizer).

  The mapping is a bijection. Source: Steele, Lea and Flood, "Fast splittable
  pseudorandom number generators" (2014).

  Args:
    values: Integers to map, uint64 array of at least one dimension.

  Returns:
    Array of the same shape as `values`, uint64.
  """
  values = values + _GOLDEN
  values = (values ^ (values >> np.uint64(30))) * _FIRST
  values = (values ^ (values >> np.uint64(27))) * _SECOND
  return values ^ (values >> np.uint64(31))


def draw_words(key, counters: np.ndarray) -> np.ndarray:
  """Returns the 64-bit integers at given positions in a pseudorandom sequence.

  Each key defines a different sequence.

  Args:
    key: 64-bit key that selects the random sequence, or one key for each
      counter, uint64 [n].
    counters: Non-negative positions in the random sequence, [n].

  Returns:
    The integers, uint64 [n].
  """
  if isinstance(key, int):
    key = np.full(1, key & _MASK, np.uint64)
  return mix_bits(mix_bits(counters.astype(np.uint64)) + key)


def shuffled_indices(key: int, count: int) -> np.ndarray:
  """Returns a pseudorandom permutation of 0 to count - 1, selected by a key.

  The result is an int64 array of shape [count].
  """
  return np.argsort(draw_words(key, np.arange(count)), kind='stable')
