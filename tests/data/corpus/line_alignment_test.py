"""Tests of the detection of parallel text that is not aligned."""

import pytest
from scipy import stats

from tests.data.shifted_pairs import shifted_pairs, shuffled_pairs
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


@pytest.mark.parametrize('num_pairs', [100, None])
def test_lengths_of_shuffled_pairs_are_uncorrelated(num_pairs):
  pairs = shuffled_pairs()[:num_pairs]
  lengths = [[len(text) for text in pair] for pair in pairs]
  expected = stats.spearmanr(lengths).statistic
  assert expected < 0.1
  correlation = line_alignment.find_uncorrelated_lengths(pairs)
  assert correlation == pytest.approx(expected)
  assert line_alignment.find_shift(pairs) is None


def test_lengths_of_aligned_pairs_are_correlated():
  pairs = shifted_pairs(lines=0)
  assert line_alignment.find_uncorrelated_lengths(pairs) is None


def test_placeholders_on_one_side_do_not_conceal_a_correlation():
  pairs = [
    (source, target if i % 10 else 'NS')
    for i, (source, target) in enumerate(shifted_pairs(lines=0))
  ]
  assert line_alignment.find_uncorrelated_lengths(pairs) is None


@pytest.mark.parametrize(
  'pairs',
  [
    shuffled_pairs()[:99],
    # Single words.
    [
      tuple('w' * len(text.split()[::3]) for text in pair)
      for pair in shuffled_pairs()
    ],
    # Lengths of 50 and 51 characters.
    [
      tuple('t' * (50 + len(text.split()) % 2) for text in pair)
      for pair in shuffled_pairs()
    ],
  ],
  ids=['few_pairs', 'words', 'equal_lengths'],
)
def test_lengths_that_are_not_comparable_are_ignored(pairs):
  assert line_alignment.find_uncorrelated_lengths(pairs) is None
