"""Permutations of 0 .. n-1 of which any one value is computed directly.

A shuffled epoch of a stream needs the row at place i without holding an
array of all rows. A Feistel network over Z_a x Z_b with a * b >= n is a
bijection; values outside 0 .. n-1 are sent through it again ("cycle
walking"). Source: Black and Rogaway, "Ciphers with arbitrary finite domains"
(2002), generalised Feistel.
"""

import numpy as np

from xlflax.data.sampling import hashing

_ROUNDS = 8


def permute_index(
  index: np.ndarray, size: np.ndarray, key: np.ndarray
) -> np.ndarray:
  """Where each index goes, in a permutation chosen by its size and key.

  Args:
    index: int64 [n], each 0 <= index < size.
    size: int64 [n], number of elements permuted.
    key: uint64 [n]; another key is another permutation.

  Returns:
    int64 [n], each 0 <= value < size.
  """
  rows = np.ceil(np.sqrt(size)).astype(np.int64)
  columns = -(-size // rows)
  out = _feistel(index, rows, columns, key)
  outside = np.flatnonzero(out >= size)
  while outside.size:
    out[outside] = _feistel(
      out[outside], rows[outside], columns[outside], key[outside]
    )
    outside = outside[out[outside] >= size[outside]]
  return out


def _feistel(values, rows, columns, key):
  """One pass over the domain rows * columns; every argument is [n]."""
  left_half, right = np.divmod(values, columns)
  for number in range(_ROUNDS):
    round_key = key + np.uint64(number)
    if number % 2:
      left_half = (left_half + _noise(right, round_key)) % rows
    else:
      right = (right + _noise(left_half, round_key)) % columns
  return left_half * columns + right


def _noise(values, key):
  """Non-negative int64 words below 2**62, so that sums cannot overflow."""
  return (
    hashing.mix_bits(hashing.mix_bits(values.astype(np.uint64)) ^ key)
    >> np.uint64(2)
  ).astype(np.int64)


def permute_windows(
  index: np.ndarray,
  size: np.ndarray,
  key: np.ndarray,
  *,
  block: int,
  window: int,
) -> np.ndarray:
  """As `permute_index`, but so that near indices go to few places.

  The elements are cut into blocks of neighbours. The blocks are permuted, and
  taken in windows of some of them; within a window all elements are permuted.
  So the indices of a window read its blocks and nothing else, each of them
  once. The cuts are at other places under another key.

  Args:
    index: int64 [n], each 0 <= index < size.
    size: int64 [n], number of elements permuted.
    key: uint64 [n]; another key is another permutation.
    block: neighbouring elements of a block.
    window: blocks in a window.

  Returns:
    int64 [n], each 0 <= value < size.
  """
  number, inside = np.divmod(index, block * window)
  begin = index - inside
  length = np.minimum(block * window, size - begin)
  window_key = hashing.draw_words(hashing.mix_bits(key), number)
  window_position = begin + permute_index(inside, length, window_key)
  slot, offset = np.divmod(window_position, block)
  in_full_slot = np.flatnonzero(
    slot < size // block
  )  # a shorter block stays last
  slot[in_full_slot] = permute_index(
    slot[in_full_slot], (size // block)[in_full_slot], key[in_full_slot]
  )
  shift = (hashing.mix_bits(~key) % size.astype(np.uint64)).astype(np.int64)
  return (slot * block + offset + shift) % size
