"""Shifted lines in parallel text are found."""

import pytest

from tests.data.shifted_pairs import shifted_pairs
from xlflax.data.corpus import line_alignment


@pytest.mark.parametrize('lines', [1, -3, 4, -10, 20])
def test_shifts_by_up_to_twenty_lines_are_found(lines):
  pairs = shifted_pairs(lines=lines, first=100)
  shift = line_alignment.find_shift(pairs)
  assert shift == line_alignment.Shift(100, lines)


def test_larger_shifts_must_occur_in_two_windows():
  pairs = shifted_pairs(lines=10)
  assert line_alignment.find_shift(pairs[50:100]) is None
  assert line_alignment.find_shift(pairs[50:150]) is not None


def test_lengths_that_hardly_vary_are_not_compared():
  pairs = shifted_pairs(lines=2)
  nearly_equal = [
    tuple('t' * (50 + len(text.split()) % 2) for text in pair) for pair in pairs
  ]
  assert line_alignment.find_shift(nearly_equal) is None


@pytest.mark.parametrize('lines', [0, 30])
def test_other_pairs_are_not_shifted(lines):
  assert line_alignment.find_shift(shifted_pairs(lines=lines)) is None
