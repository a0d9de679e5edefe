"""Permutations of 0 to n - 1 whose values can be computed individually.

In a shuffled epoch, the sequence at position i must be computed without storing
an array of all sequences. A Feistel network over Z_a x Z_b with a * b >= n is a
bijection. Values that are not between 0 and n - 1 are passed through the
network again ("cycle walking"). Source: Black and Rogaway, "Ciphers with
arbitrary finite domains" (2002), generalized Feistel.
"""

import numpy as np

from xlflax.data.sampling import hashing

_ROUNDS = 8


def permute_index(
  index: np.ndarray, size: np.ndarray, key: np.ndarray
) -> np.ndarray:
  """Applies a pseudorandom permutation, selected by a key, to each index.

  Args:
    index: Indices with 0 <= index < size, int64 [n].
    size: Number of elements in the permutation of each index, int64 [n].
    key: Key that selects the permutation of each index, uint64 [n].

  Returns:
    Permuted indices with 0 <= value < size, int64 [n].
  """
  rows = np.ceil(np.sqrt(size)).astype(np.int64)
  columns = -(-size // rows)
  values = _feistel(index, rows, columns, key)
  outside = np.flatnonzero(values >= size)
  while outside.size:
    values[outside] = _feistel(
      values[outside], rows[outside], columns[outside], key[outside]
    )
    outside = outside[values[outside] >= size[outside]]
  return values


def _feistel(values, rows, columns, key):
  """Applies one Feistel permutation of the values 0 to rows * columns - 1."""
  left_half, right_half = np.divmod(values, columns)
  for round_number in range(_ROUNDS):
    round_key = key + np.uint64(round_number)
    if round_number % 2:
      left_half = (left_half + _hash(right_half, round_key)) % rows
    else:
      right_half = (right_half + _hash(left_half, round_key)) % columns
  return left_half * columns + right_half


def _hash(values, key):
  """Returns hashes below 2**62 as int64, so that sums cannot overflow."""
  hashes = hashing.mix_bits(hashing.mix_bits(values.astype(np.uint64)) ^ key)
  return (hashes >> np.uint64(2)).astype(np.int64)


def permute_windows(
  index: np.ndarray,
  size: np.ndarray,
  key: np.ndarray,
  *,
  block: int,
  window: int,
) -> np.ndarray:
  """Permutes indices so that consecutive reads access the same few blocks.

  The elements are divided into blocks of consecutive elements. The blocks are
  permuted and grouped into windows, and the elements of each window are
  permuted. Reading the indices in a window therefore reads only the blocks of
  this window, and it reads each block only once. The block boundaries depend on
  the key.

  Args:
    index: Indices with 0 <= index < size, int64 [n].
    size: Number of permuted elements, int64 [n].
    key: Keys, uint64 [n]. Each key selects a different permutation.
    block: Number of consecutive elements in a block.
    window: Number of blocks that form a window.

  Returns:
    Permuted indices with 0 <= value < size, int64 [n].
  """
  number, inside = np.divmod(index, block * window)
  begin = index - inside
  length = np.minimum(block * window, size - begin)
  window_key = hashing.draw_words(hashing.mix_bits(key), number)
  window_position = begin + permute_index(inside, length, window_key)
  slot, offset = np.divmod(window_position, block)
  # A shorter last block stays last.
  in_full_slot = np.flatnonzero(slot < size // block)
  slot[in_full_slot] = permute_index(
    slot[in_full_slot], (size // block)[in_full_slot], key[in_full_slot]
  )
  shift = (hashing.mix_bits(~key) % size.astype(np.uint64)).astype(np.int64)
  return (slot * block + offset + shift) % size
