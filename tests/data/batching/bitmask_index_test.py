"""The n-th kept of many."""

import numpy as np
import pytest

from xlflax.data.batching import bitmask_index


def _built(masks):
  builder = bitmask_index.Builder()
  for mask in masks:
    builder.add(mask)
  assert builder.num_elements == sum(mask.size for mask in masks)
  return builder.build()


def test_as_documented():
  mask = np.isin(np.arange(9), [2, 5, 6])
  assert _built([mask]).positions(np.array([0, 2])).tolist() == [2, 6]


@pytest.mark.parametrize('share', [0.01, 0.5, 0.99, 1])
def test_equals_the_places_in_an_array(share):
  rng = np.random.default_rng(0)
  masks = [rng.random(n) < share for n in (0, 3, 64, 61, 1000, 7)]
  expected = np.flatnonzero(np.concatenate(masks))
  bitmask_index = _built(masks)
  assert bitmask_index.size == expected.size
  order = rng.permutation(expected.size)
  np.testing.assert_array_equal(bitmask_index.positions(order), expected[order])


def test_none_is_kept():
  assert _built([np.zeros(70, bool)]).size == 0
