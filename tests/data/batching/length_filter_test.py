import numpy as np

from xlflax.data import dataset_config
from xlflax.data.batching import length_filter as row_lengths


def _dataset(layout, length, **pairs):
  return dataset_config.DatasetConfig(
    name='s',
    mixture='m',
    layout=layout,
    length=length,
    batch_size=2,
    pairs=dataset_config.PairOptions(**pairs),
  )


def test_longer_side_is_truncated_first():
  dataset = _dataset('pairs', 10)
  first, second = row_lengths.truncated_lengths(
    [np.array([9, 9, 2, 3, 1]), np.array([2, 8, 9, 3, 1])], dataset
  )
  np.testing.assert_array_equal(first, [4, 3, 2, 3, 1])
  np.testing.assert_array_equal(second, [2, 3, 4, 3, 1])
  np.testing.assert_array_equal(
    row_lengths.sequence_lengths([first, second], dataset), [10, 10, 10, 10, 6]
  )


def test_odd_capacity_favors_the_first_side():
  first, second = row_lengths.truncated_lengths(
    [np.array([9]), np.array([9])], _dataset('pairs', 9)
  )
  assert (first[0], second[0]) == (3, 2)


def test_truncated_pairs_use_the_full_capacity():
  rng = np.random.default_rng(0)
  lengths = rng.integers(1, 20, (2, 500))
  dataset = _dataset('pairs', 15)
  truncated = np.stack(row_lengths.truncated_lengths(list(lengths), dataset))
  capacity = dataset.capacity
  np.testing.assert_array_equal(
    truncated.sum(0), np.minimum(lengths.sum(0), capacity)
  )
  assert (truncated >= 1).all() and (truncated <= lengths).all()
  assert (
    row_lengths.count_truncated(list(truncated), list(lengths))
    == (lengths.sum(0) > capacity).sum()
  )


def test_length_filters_of_ppa():
  """Requires at least 10 tokens per side and at most 128 tokens in total."""
  dataset = _dataset('pairs', 132, min_tokens=10, max_tokens=128)
  first = np.array([9, 10, 64, 65, 118, 119])
  second = np.array([50, 10, 64, 64, 10, 10])
  assert row_lengths.passes_length_filter(
    [first, second], dataset
  ).tolist() == [False, True, True, False, True, False]
