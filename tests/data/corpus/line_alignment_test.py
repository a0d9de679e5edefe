"""Tests of the detection of shifted lines in parallel text."""

import pytest

from tests.data.shifted_pairs import shifted_pairs
from xlflax.data.corpus import line_alignment


@pytest.mark.parametrize('lines', [1, -3, 4, -10, 20])
def test_shifts_of_up_to_twenty_lines_are_found(lines):
  pairs = shifted_pairs(lines=lines, first=100)
  shift = line_alignment.find_shift(pairs)
  assert shift == line_alignment.Shift(100, lines)


def test_larger_shifts_must_occur_in_two_windows():
  pairs = shifted_pairs(lines=10)
  assert line_alignment.find_shift(pairs[50:100]) is None
  assert line_alignment.find_shift(pairs[50:150]) is not None


def test_lines_of_similar_lengths_have_no_shift():
  pairs = shifted_pairs(lines=2)
  nearly_equal = [
    tuple('t' * (50 + len(text.split()) % 2) for text in pair) for pair in pairs
  ]
  assert line_alignment.find_shift(nearly_equal) is None


@pytest.mark.parametrize('lines', [0, 30])
def test_aligned_and_unrelated_lines_have_no_shift(lines):
  assert line_alignment.find_shift(shifted_pairs(lines=lines)) is None
