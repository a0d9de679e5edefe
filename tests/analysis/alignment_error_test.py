import math

import numpy as np
import pytest

from xlflax.analysis import alignment_error

_SURE = frozenset({(0, 0), (1, 2)})
_POSSIBLE = frozenset({(0, 0), (1, 2), (1, 1), (2, 3)})


@pytest.mark.parametrize('links, precision, recall, aer', [
    # 1 - (|A & S| + |A & P|) / (|A| + |S|)
    ({(0, 0), (1, 2)}, 1, 1, 0),
    ({(0, 0), (1, 2), (1, 1)}, 1, 1, 0),  # possible links cost nothing
    ({(0, 0), (1, 1)}, 1, 1 / 2, 1 - 3 / 4),
    ({(0, 0), (2, 2)}, 1 / 2, 1 / 2, 1 - 2 / 4),
    ({(1, 0)}, 0, 0, 1),
    (set(), math.nan, 0, 1),
])
def test_cases_by_hand(links, precision, recall, aer):
  found = alignment_error.count(links, _SURE, _POSSIBLE)
  np.testing.assert_allclose(
      [found.precision, found.recall, found.error_rate],
      [precision, recall, aer])


def test_only_sure_links_give_one_less_f1():
  links = {(0, 0), (1, 1), (2, 2)}
  found = alignment_error.count(links, _SURE, _SURE)
  f1 = 2 * found.precision * found.recall / (found.precision + found.recall)
  assert found.error_rate == pytest.approx(1 - f1)


def test_sure_links_are_possible_even_if_the_file_does_not_say_so():
  found = alignment_error.count(_SURE, _SURE, frozenset())
  assert found.error_rate == 0


def test_counts_of_sentences_are_summed_before_division():
  first = alignment_error.count({(0, 0)}, {(0, 0)}, {(0, 0)})
  second = alignment_error.count({(0, 1)}, {(0, 0), (1, 1), (2, 2)}, set())
  assert (first + second).error_rate == pytest.approx(1 - 2 / 6)


def test_matrices_are_counted_as_sets():
  rng = np.random.default_rng(0)
  links = rng.random((2, 3, 3, 4)) < 0.4
  counts = alignment_error.count_matrices(links, _SURE, _POSSIBLE)
  assert counts.error_rate.shape == (2, 3)
  for place in np.ndindex(2, 3):
    pairs = {(int(i), int(j)) for i, j in zip(*np.nonzero(links[place]),
                                              strict=True)}
    one = alignment_error.count(pairs, _SURE, _POSSIBLE)
    assert (counts.found[place], counts.found_sure[place],
            counts.found_possible[place], counts.sure) == (
                one.found, one.found_sure, one.found_possible, one.sure)


def test_gold_links_beyond_the_words_count_as_missed():
  links = np.ones((1, 1), bool)
  found = alignment_error.count_matrices(links, {(0, 0), (5, 0)}, set())
  assert found.error_rate == pytest.approx(1 - 2 / 3)
  assert found.recall == pytest.approx(1 / 2)


def test_without_any_link_there_is_no_error_rate():
  found = alignment_error.count(set(), set(), set())
  assert math.isnan(found.error_rate) and math.isnan(found.recall)
