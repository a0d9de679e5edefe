import math

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.errors import raises_error
from xlflax.evaluation.metrics import alignment_error_rate
from xlflax.utils import errors

_links = st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 4)))


def test_scores_computed_by_hand():
  gold = [
    alignment_error_rate.GoldLinks({(0, 0), (1, 1)}, {(2, 2)}),
    alignment_error_rate.GoldLinks({(0, 1)}),
  ]
  scores = alignment_error_rate.alignment_scores(
    gold, [{(0, 0), (2, 2), (3, 3)}, {(0, 1)}]
  )
  assert scores.precision == 0.75
  assert scores.recall == pytest.approx(2 / 3)
  assert scores.error_rate == pytest.approx(1 - (2 + 3) / (4 + 3))
  assert scores.statistics.rows.tolist() == [[1, 2, 3, 2], [1, 1, 1, 1]]


@hypothesis.given(_links, _links, _links)
def test_error_rate_equals_the_definition(sure, possible, found):
  hypothesis.assume(sure and found)
  possible |= sure
  result = alignment_error_rate.alignment_scores(
    [alignment_error_rate.GoldLinks(sure, possible)], [found]
  )
  assert result.error_rate == pytest.approx(
    1 - (len(found & sure) + len(found & possible)) / (len(found) + len(sure))
  )
  assert 0 <= result.error_rate <= 1


def test_scores_without_predicted_links():
  scores = alignment_error_rate.alignment_scores(
    [alignment_error_rate.GoldLinks({(0, 0)})], [set()]
  )
  assert scores.error_rate == 1 and scores.recall == 0
  assert math.isnan(scores.precision)


@pytest.mark.parametrize(
  'first, line', [(0, '0-0 1p2 3-1'), (1, '1-1 2p3 4-2')]
)
def test_pharaoh_format(first, line):
  gold = alignment_error_rate.read_pharaoh(line, first=first)
  assert gold.sure == {(0, 0), (3, 1)}
  assert gold.possible == {(0, 0), (3, 1), (1, 2)}
  assert (
    alignment_error_rate.write_pharaoh(gold.sure, gold.possible, first=first)
    == line
  )


@hypothesis.given(_links, _links)
def test_pharaoh_round_trip(sure, possible):
  line = alignment_error_rate.write_pharaoh(sure, possible)
  assert alignment_error_rate.read_pharaoh(
    line
  ) == alignment_error_rate.GoldLinks(sure, sure | possible)


@pytest.mark.parametrize(
  'line, first', [('0-0 1:2', 0), ('0-0', 1), ('-1-2', 0)]
)
def test_malformed_links_are_rejected(line, first):
  with raises_error(errors.CorpusError, where='gold.txt:3'):
    alignment_error_rate.read_pharaoh(line, first=first, where='gold.txt:3')


def test_different_numbers_of_sentences_are_rejected():
  with raises_error(errors.CorpusError, mentions=(0, 1)):
    alignment_error_rate.alignment_scores(
      [alignment_error_rate.GoldLinks({(0, 0)})], []
    )
