"""Tests of the index over set bits of bitmasks."""

import numpy as np
import pytest

from xlflax.data.batching import bitmask_index


def _build_index(masks):
  builder = bitmask_index.Builder()
  for mask in masks:
    builder.add(mask)
  assert builder.num_elements == sum(mask.size for mask in masks)
  return builder.build()


def test_positions_example_in_docstring():
  mask = np.isin(np.arange(9), [2, 5, 6])
  assert _build_index([mask]).positions(np.array([0, 2])).tolist() == [2, 6]


@pytest.mark.parametrize('density', [0.01, 0.5, 0.99, 1])
def test_positions_equal_flatnonzero(density):
  rng = np.random.default_rng(0)
  masks = [rng.random(n) < density for n in (0, 3, 64, 61, 1000, 7)]
  expected = np.flatnonzero(np.concatenate(masks))
  bitmask_index = _build_index(masks)
  assert bitmask_index.size == expected.size
  order = rng.permutation(expected.size)
  np.testing.assert_array_equal(bitmask_index.positions(order), expected[order])


def test_mask_without_set_bits_is_empty():
  assert _build_index([np.zeros(70, bool)]).size == 0
