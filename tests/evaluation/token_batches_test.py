import numpy as np
import pytest

from xlflax.data import dataset_config
from xlflax.evaluation import token_batches

pytest_plugins = ['tests.evaluation.fixtures']


def _dataset(length, **pairs):
  return dataset_config.DatasetConfig(
    name='s',
    mixture='',
    layout=dataset_config.ExampleLayout.PAIRS,
    length=length,
    batch_size=2,
    pairs=dataset_config.PairOptions(**pairs),
  )


def test_blocks_join_lines_and_keep_the_remainder():
  cut = token_batches.split_into_blocks(
    [[7, 8], [], [9, 9, 9]], capacity=4, separator=2
  )
  assert [row.tolist() for row in cut] == [[7, 8, 2, 9], [9, 9]]
  assert token_batches.split_into_blocks([[]], capacity=4, separator=2) == []


def test_pairs_are_filtered_and_truncated():
  first = [[5, 6, 7, 8, 9], [], [4], [1] * 9]
  second = [[3], [3], [2, 2], [2] * 9]
  pairs = token_batches.fitting_pairs(first, second, _dataset(8, max_tokens=9))
  assert [[side.tolist() for side in unit] for unit in pairs] == [
    [[5, 6, 7], [3]],
    [[4], [2, 2]],
  ]
  assert token_batches.fitting_pairs([], [], _dataset(8)) == []


def test_batches_contain_each_row_once_and_trailing_padding(vocabulary):
  dataset = dataset_config.DatasetConfig(
    name='s',
    mixture='',
    layout=dataset_config.ExampleLayout.BLOCKS,
    length=5,
    batch_size=2,
  )
  units = [(np.array([20, 21]),), (np.array([22]),), (np.array([23] * 3),)]
  first, second = token_batches.make_batches(
    units, (1,), dataset, vocabulary.spec
  )
  np.testing.assert_array_equal(
    first['token_ids'], [[1, 20, 21, 2, 0], [1, 22, 2, 0, 0]]
  )
  np.testing.assert_array_equal(
    second['token_ids'], [[1, 23, 23, 23, 2], [0] * 5]
  )
  np.testing.assert_array_equal(second['segment_ids'], [[1] * 5, [0] * 5])
  np.testing.assert_array_equal(second['language_ids'], [[1] * 5, [0] * 5])


@pytest.mark.parametrize(
  'positions, expected',
  [('reset', [0, 1, 2, 0, 1, 2]), ('continuous', [0, 1, 2, 3, 4, 5])],
)
def test_batches_of_pairs_follow_the_options(vocabulary, positions, expected):
  units = [(np.array([20]), np.array([21]))]
  (batch,) = token_batches.make_batches(
    units, (0, 1), _dataset(6, positions=positions), vocabulary.spec
  )
  assert batch['token_ids'][0].tolist() == [1, 20, 2, 2, 21, 2]
  assert batch['positions'][0].tolist() == expected
