import numpy as np
import pytest

from xlflax.data.sampling import hashing, permutation


def _whole(size, key):
  return permutation.permute(
    np.arange(size), np.full(size, size), np.full(size, key, np.uint64)
  )


@pytest.mark.parametrize('size', [1, 2, 3, 4, 5, 7, 16, 17, 99, 1000, 4097])
def test_is_a_bijection(size):
  np.testing.assert_array_equal(
    np.sort(_whole(size, hashing.make_key('k', size))), np.arange(size)
  )


def test_keys_give_different_orders():
  first, second = _whole(1000, 1), _whole(1000, 2)
  # Two random permutations agree in one place on average.
  assert np.sum(first == second) < 10
  assert np.sum(first == np.arange(1000)) < 10


def test_every_value_reaches_every_place():
  """Over 3000 keys each of 6 values stands at each place about 500 times."""
  keys = hashing.draw(3, np.arange(3000))
  counts = np.zeros((6, 6))
  for place in range(6):
    out = permutation.permute(np.full(3000, place), np.full(3000, 6), keys)
    counts[place] = np.bincount(out, minlength=6)
  # Five standard deviations of a binomial(3000, 1/6).
  assert np.abs(counts - 500).max() < 5 * np.sqrt(3000 / 6 * 5 / 6)


def test_sizes_and_keys_are_taken_per_element():
  size = np.array([3, 1000, 3, 1000])
  key = np.array([1, 2, 1, 2], np.uint64)
  index = np.array([2, 999, 0, 5])
  together = permutation.permute(index, size, key)
  apart = [
    permutation.permute(index[i : i + 1], size[i : i + 1], key[i : i + 1])[0]
    for i in range(4)
  ]
  np.testing.assert_array_equal(together, apart)


def test_large_sizes_stay_inside():
  size = np.full(100, 3_000_000_017)
  out = permutation.permute(np.arange(100), size, np.full(100, 9, np.uint64))
  assert out.min() >= 0 and out.max() < 3_000_000_017
  assert np.unique(out).size == 100
