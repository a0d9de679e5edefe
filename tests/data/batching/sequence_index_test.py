"""Tests of sequences by index and by iteration."""

import numpy as np
import pytest

from xlflax.data import dataset_config, tokenized_examples
from xlflax.data.batching import sequence_index as row_index
from xlflax.data.batching import sequence_iterator as row_iterator

_EOS = 2


def _dataset(layout, length, **settings):
  pairs = {
    k: settings.pop(k) for k in ('min_tokens', 'max_tokens') if k in settings
  }
  return dataset_config.DatasetConfig(
    name='s',
    mixture='m',
    layout=layout,
    length=length,
    batch_size=2,
    pairs=dataset_config.PairOptions(**pairs),
    **settings,
  )


def _ragged(texts):
  return tokenized_examples.Ragged(
    np.array([t for text in texts for t in text], np.int32),
    np.array([len(text) for text in texts]),
  )


def _examples(*sides, starts=None):
  starts = starts or [i == 0 for i in range(len(sides[0]))]
  return tokenized_examples.Examples(
    tuple(map(_ragged, sides)), np.array(starts)
  )


class _Texts:
  """In-memory implementation of `sequence_index.Texts`."""

  def __init__(self, side):
    self._tokens = side.with_eos(_EOS, np.uint16)
    self._offsets = np.concatenate([[0], np.cumsum(side.lengths + 1)])
    self.num_tokens = self._tokens.size

  def slices(self, starts, stops):
    return [self._tokens[a:b] for a, b in zip(starts, stops, strict=True)]

  def bounds(self, index):
    return self._offsets[index], self._offsets[index + 1] - 1

  def lengths(self):
    yield from np.split(np.diff(self._offsets) - 1, [1])


def _index(examples, dataset):
  sides = list(map(_Texts, examples.sides))
  return row_index.make_index(sides, lambda: examples.starts_document, dataset)


def _to_lists(units):
  return [
    [tuple(side.tolist() for side in unit) for unit in row] for row in units
  ]


def _check_rows(examples, dataset, batch_size=3):
  """Returns rows by index after comparing them with rows by iteration."""
  index = _index(examples, dataset)
  by_index = _to_lists(index.units(np.arange(index.num_rows)))
  counts = row_iterator.Counts()
  n = len(examples)
  batches = []
  for first in range(0, n, batch_size):
    keep = np.zeros(n, bool)
    keep[first : first + batch_size] = True
    batches.append(
      tokenized_examples.Examples(
        tuple(side.select(keep) for side in examples.sides),
        examples.starts_document[keep],
      )
    )
  in_order = _to_lists(
    row_iterator.iterate_sequences(batches, dataset, eos_id=_EOS, counts=counts)
  )
  assert in_order == by_index
  assert counts == row_iterator.Counts(
    n, index.num_dropped, index.num_truncated
  )
  if dataset.layout.value not in ('blocks', 'interleaved'):
    total = sum(side.lengths.sum() for side in examples.sides)
    read = sum(len(side) for row in by_index for unit in row for side in unit)
    assert index.num_removed_tokens == total - read
  return by_index, counts


def test_blocks_join_lines_with_eos():
  lines = _examples([[10, 11], [12, 13, 14, 15], [16]])
  rows, _ = _check_rows(lines, _dataset('blocks', 6))
  assert rows == [[([10, 11, 2, 12],)], [([13, 14, 15, 2],)], [([16],)]]


def test_task_shorter_than_a_block_has_one_row():
  rows, _ = _check_rows(_examples([[10]]), _dataset('blocks', 100))
  assert rows == [[([10],)]]


def test_text_that_fills_a_block_has_no_empty_row():
  rows, _ = _check_rows(_examples([[10, 11], [12]]), _dataset('blocks', 6))
  assert rows == [[([10, 11, 2, 12],)]]


def test_sentences_are_truncated():
  rows, counts = _check_rows(
    _examples([[10, 11], [12, 13, 14]]), _dataset('sentences', 4)
  )
  assert rows == [[([10, 11],)], [([12, 13],)]]
  assert counts.truncated == 1


def test_pairs_are_filtered_and_truncated_longest_first():
  pairs = _examples(
    [[10], [11] * 9, [12] * 9, [13] * 2, [14] * 30],
    [[20] * 5, [21] * 2, [22] * 8, [23] * 2, [24] * 2],
  )
  dataset = _dataset('pairs', 10, min_tokens=2, max_tokens=20)
  rows, counts = _check_rows(pairs, dataset)
  assert rows == [
    [([11] * 4, [21] * 2)],
    [([12] * 3, [22] * 3)],
    [([13] * 2, [23] * 2)],
  ]
  assert (counts.dropped, counts.truncated) == (2, 2)


def test_pairs_are_packed():
  pairs = _examples([[10], [11] * 2, [12]], [[20], [21], [22]])
  rows, _ = _check_rows(pairs, _dataset('pairs', 13, packing='next_fit'))
  assert rows == [[([10], [20]), ([11] * 2, [21])], [([12], [22])]]


def test_dual_sides_are_truncated_independently():
  rows, counts = _check_rows(_examples([[10] * 5], [[20]]), _dataset('dual', 5))
  assert rows == [[([10] * 3, [20])]]
  assert counts.truncated == 1


def test_adjacent_segments_stay_in_their_document():
  lines = _examples(
    [[10, 11], [12, 13, 14], [15], [16, 17, 18]],
    starts=[True, False, True, True],
  )
  rows, counts = _check_rows(lines, _dataset('interleaved', 4))
  # Documents 10 11 2 12 13 14, then 15 (too short), then 16 17 18.
  assert rows == [[([10, 11], [2, 12])], [([13], [14])], [([16, 17], [18])]]
  assert counts.dropped == 1


_CASES = [
  ('blocks', {}),
  ('sentences', {}),
  ('sentences', {'packing': 'next_fit'}),
  ('interleaved', {}),
  ('interleaved', {'min_tokens': 3}),
  ('pairs', {}),
  ('pairs', {'packing': 'next_fit'}),
  ('pairs', {'min_tokens': 4, 'max_tokens': 25}),
  ('dual', {}),
  ('dual', {'min_tokens': 4, 'max_tokens': 25}),
]


@pytest.mark.parametrize('length', [6, 11, 32])
@pytest.mark.parametrize('layout, settings', _CASES)
def test_index_and_iterator_agree(layout, settings, length):
  rng = np.random.default_rng(length)

  def side():
    return [
      rng.integers(5, 99, rng.integers(1, 20)).tolist() for _ in range(200)
    ]

  sides = [side() for _ in range(2 if layout in ('pairs', 'dual') else 1)]
  starts = [True, *(rng.random(199) < 0.2).tolist()]
  examples = _examples(*sides, starts=starts)
  dataset = _dataset(layout, length, **settings)
  rows, _ = _check_rows(examples, dataset, batch_size=17)
  assert rows
  # Rows that are read individually equal the rows of the full index.
  index = _index(examples, dataset)
  indices = rng.integers(0, index.num_rows, 10)
  assert _to_lists(index.units(indices)) == [rows[i] for i in indices]


def test_next_fit_example_in_docstring():
  np.testing.assert_array_equal(
    row_index.next_fit(np.array([3, 2, 4, 1]), 5), [0, 2, 4]
  )


def test_next_fit_without_examples_has_no_rows():
  np.testing.assert_array_equal(
    row_index.next_fit(np.zeros(0, np.int64), 5), [0]
  )


def test_next_fit_rows_are_maximal():
  lengths = np.random.default_rng(0).integers(1, 17, 500)
  bounds = row_index.next_fit(lengths, 16)
  assert bounds[0] == 0 and bounds[-1] == 500
  for first, last in zip(bounds[:-1], bounds[1:], strict=True):
    assert 0 < lengths[first:last].sum() <= 16
    if last < 500:
      assert lengths[first : last + 1].sum() > 16
