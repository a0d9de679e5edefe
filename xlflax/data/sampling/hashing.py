"""Keys and 64-bit mixing: all the randomness of streams, without a state.

Batches must be the same under every version of numpy, so nothing here uses
`numpy.random`: a draw is `mix_bits(key + counter)`.
"""

import hashlib

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_MASK = (1 << 64) - 1


def make_key(*parts: int | str) -> int:
  """A 64-bit key from numbers and names, the same on every machine.

  `make_key(3, 'order', 'corpus.mono.en')` and
  `make_key(3, 'order', 'corpus.mono.de')` are unrelated.
  """
  text = '\x1f'.join(f'{type(part).__name__}:{part}' for part in parts)
  digest = hashlib.sha256(text.encode('utf-8')).digest()
  return int.from_bytes(digest[:8], 'little')


def mix_bits(values: np.ndarray) -> np.ndarray:
  """The SplitMix64 finaliser: a bijection of 64-bit words that looks random.

  Source: Steele, Lea and Flood, "Fast splittable pseudorandom number
  generators" (2014).

  Args:
    values: uint64 array of at least one dimension.

  Returns:
    uint64 array of the same shape.
  """
  values = values + _GOLDEN
  values = (values ^ (values >> np.uint64(30))) * _FIRST
  values = (values ^ (values >> np.uint64(27))) * _SECOND
  return values ^ (values >> np.uint64(31))


def draw_words(key, counters: np.ndarray) -> np.ndarray:
  """Random 64-bit words [n]: number `counters[i]` of the sequence `key`.

  Args:
    key: a 64-bit key, or a uint64 array [n] with one for each counter.
    counters: non-negative integers [n].
  """
  if isinstance(key, int):
    key = np.full(1, key & _MASK, np.uint64)
  return mix_bits(mix_bits(counters.astype(np.uint64)) + key)


def shuffled_indices(key: int, count: int) -> np.ndarray:
  """A permutation of 0 .. count - 1, int64 [count], fixed by `key`."""
  return np.argsort(draw_words(key, np.arange(count)), kind='stable')
