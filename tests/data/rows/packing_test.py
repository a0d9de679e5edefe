import numpy as np

from xlflax.data.rows import packing


def test_docstring_example():
  np.testing.assert_array_equal(
    packing.next_fit(np.array([3, 2, 4, 1]), 5), [0, 2, 4]
  )


def test_no_example_needs_no_row():
  np.testing.assert_array_equal(packing.next_fit(np.zeros(0, np.int64), 5), [0])


def test_rows_fit_and_could_not_take_one_more():
  lengths = np.random.default_rng(0).integers(1, 17, 500)
  bounds = packing.next_fit(lengths, 16)
  assert bounds[0] == 0 and bounds[-1] == 500
  for first, last in zip(bounds[:-1], bounds[1:], strict=True):
    assert 0 < lengths[first:last].sum() <= 16
    if last < 500:
      assert lengths[first : last + 1].sum() > 16
