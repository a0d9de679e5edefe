"""Tests of number formats of scores, perplexities and axes."""

import math
import re

import pytest

from xlflax.evaluation import score_format


@pytest.mark.parametrize(
  ('value', 'text'),
  [
    (0.0, '0.000'),
    (0.51249, '0.512'),
    (1.0, '1.000'),
    (9.9996, '10.00'),
    (-34.178, '-34.18'),
    (341.78, '341.8'),
    (999.96, '1,000'),
    (1234.4, '1,234'),
    (11343.0, '11,340'),
    (3_417_000.0, '3,417,000'),
    (None, '-'),
    (math.nan, '-'),
    (math.inf, 'inf'),
  ],
)
def test_numbers_have_at_most_four_significant_digits(value, text):
  assert score_format.format_score(value) == text


def test_numbers_of_all_magnitudes_have_the_same_notation():
  for exponent in range(-3, 15):
    for factor in (1.0, 1.13, 9.99999):
      text = score_format.format_score(factor * 10.0**exponent)
      assert re.fullmatch(r'\d{1,3}(,\d{3})*(\.\d+)?', text)
      assert len(text.replace(',', '').strip('0.').replace('.', '')) <= 4


def test_signs_and_decimals():
  assert score_format.format_score(0.5, signed=True) == '+0.500'
  assert score_format.format_score(-11343.0, signed=True) == '-11,340'
  assert score_format.format_score(0.56789, decimals=4) == '0.5679'
  assert score_format.format_score(56.789, decimals=1) == '56.8'
  assert score_format.format_score(11343.0, decimals=1) == '11,340'


def test_ticks_have_thousands_separators():
  ticks = [score_format.format_tick(value) for value in (0.1, 1, 2e4, 1e6)]
  assert ticks == ['0.1', '1', '20,000', '1,000,000']
