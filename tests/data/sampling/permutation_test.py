import numpy as np
import pytest

from xlflax.data.sampling import hashing, permutation


def _permute(size, key):
  return permutation.permute_index(
    np.arange(size), np.full(size, size), np.full(size, key, np.uint64)
  )


@pytest.mark.parametrize('size', [1, 2, 3, 4, 5, 7, 16, 17, 99, 1000, 4097])
def test_permute_index_is_a_bijection(size):
  np.testing.assert_array_equal(
    np.sort(_permute(size, hashing.make_key('k', size))), np.arange(size)
  )


def test_keys_give_different_orders():
  first, second = _permute(1000, 1), _permute(1000, 2)
  # Two random permutations agree at one position on average.
  assert np.sum(first == second) < 10
  assert np.sum(first == np.arange(1000)) < 10


def test_values_are_uniform_over_positions():
  """With 3000 keys, each of 6 values has each position about 500 times."""
  keys = hashing.draw_words(3, np.arange(3000))
  counts = np.zeros((6, 6))
  for position in range(6):
    out = permutation.permute_index(
      np.full(3000, position), np.full(3000, 6), keys
    )
    counts[position] = np.bincount(out, minlength=6)
  # Five standard deviations of a binomial(3000, 1/6).
  assert np.abs(counts - 500).max() < 5 * np.sqrt(3000 / 6 * 5 / 6)


def test_sizes_and_keys_apply_per_element():
  size = np.array([3, 1000, 3, 1000])
  key = np.array([1, 2, 1, 2], np.uint64)
  index = np.array([2, 999, 0, 5])
  batched = permutation.permute_index(index, size, key)
  separate = [
    permutation.permute_index(
      index[i : i + 1], size[i : i + 1], key[i : i + 1]
    )[0]
    for i in range(4)
  ]
  np.testing.assert_array_equal(batched, separate)


def test_large_sizes_stay_in_range():
  size = np.full(100, 3_000_000_017)
  out = permutation.permute_index(
    np.arange(100), size, np.full(100, 9, np.uint64)
  )
  assert out.min() >= 0 and out.max() < 3_000_000_017
  assert np.unique(out).size == 100


def _windows(size, key=7, *, block=8, window=16):
  index = np.arange(size)
  return permutation.permute_windows(
    index,
    np.full(size, size),
    np.full(size, key, np.uint64),
    block=block,
    window=window,
  )


@pytest.mark.parametrize('size', [1, 7, 8, 127, 128, 129, 1000, 4099])
def test_windows_are_a_permutation(size):
  assert sorted(_windows(size).tolist()) == list(range(size))


def test_windows_read_few_blocks():
  """128 consecutive indices are in 16 blocks of 8."""
  size = 4099
  positions = _windows(size)
  for start in range(0, size - 128, 128):
    window_positions = np.sort(positions[start : start + 128])
    runs = 1 + np.count_nonzero(np.diff(window_positions) != 1)
    # The block offset and the end of the range may add one each.
    assert runs <= 18


def test_keys_change_the_window_boundaries():
  first = {tuple(np.sort(part)) for part in _windows(4096).reshape(-1, 128)}
  second = {
    tuple(np.sort(part)) for part in _windows(4096, key=8).reshape(-1, 128)
  }
  assert not first & second


def test_blocks_are_distributed_uniformly():
  """Applies a chi-square test to tenths of rows and tenths of the epoch."""
  size = 40_960
  positions = _windows(size, block=4, window=64)
  row_tenth, epoch_tenth = positions * 10 // size, np.arange(size) * 10 // size
  counts = np.zeros((10, 10))
  # Blocks of 4 rows move together.
  np.add.at(counts, (row_tenth, epoch_tenth), 1 / 4)
  expected = size / 4 / 100
  # The limit is the 0.1 % quantile for 81 degrees of freedom.
  assert ((counts - expected) ** 2 / expected).sum() < 127


def test_correlation_of_adjacent_rows_matches_the_window_size():
  """Adjacent rows are in the same window, the mean of 64 random blocks."""
  positions = _windows(65_536, block=16, window=64).astype(float)
  correlation = np.corrcoef(positions[:-1], positions[1:])[0, 1]
  assert abs(correlation - 1 / 64) < 0.015
