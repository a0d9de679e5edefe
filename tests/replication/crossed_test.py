"""Intervals over seeds and languages."""

import math

import numpy as np
import pytest
from scipy import stats

from tests.replication import claims_test
from xlflax.replication import claims, crossed
from xlflax.replication.claims import Verdict

FIRST = np.zeros((3, 2))
SECOND = np.array([[0.30, 0.10], [0.34, 0.12], [0.26, 0.11]])


def test_the_squared_error_is_that_of_both_means():
  seeds, languages = SECOND.mean(1), SECOND.mean(0)
  want = seeds.var(ddof=1) / 3, languages.var(ddof=1) / 2
  np.testing.assert_allclose(crossed.errors(FIRST, SECOND), want)
  found = crossed.compare(FIRST, SECOND)
  freedom = sum(want) ** 2 / (want[0] ** 2 / 2 + want[1] ** 2 / 1)
  reach = math.sqrt(sum(want)) * stats.t.ppf(0.975, freedom)
  assert found.difference == pytest.approx(SECOND.mean())
  assert found.high - found.low == pytest.approx(2 * reach)
  score = SECOND.mean() / math.sqrt(sum(want))
  assert found.p_value == pytest.approx(2 * stats.t.sf(score, freedom))


def test_intervals_hold_the_true_difference():
  """Nineteen times of twenty or more, where both spread."""
  rng = np.random.default_rng(0)
  held = 0
  for _ in range(400):
    change = (
      rng.normal(size=(3, 1))
      + rng.normal(size=3)
      + 0.5 * rng.normal(size=(3, 3))
    )
    found = crossed.compare(np.zeros((3, 3)), 1.0 + change)
    held += found.low < 1.0 < found.high
  assert held >= 370


def test_equal_runs_do_not_differ():
  found = crossed.compare(SECOND, SECOND)
  assert (found.low, found.high, found.p_value) == (0, 0, 1)


def scores(languages: float) -> dict:
  """Languages that differ by a number, seeds that hardly do."""
  return {
    'x': dict.fromkeys(
      range(3), {'score': 0.0, 'score:fr': 0.0, 'score:ru': 0.0}
    ),
    'y': {
      seed: {
        'score': 0.2,
        'score:fr': 0.2 + languages + 0.01 * seed**2,
        'score:ru': 0.2 - languages,
      }
      for seed in range(3)
    },
  }


def test_a_claim_over_languages():
  found = claims.find(claims_test.claim(), scores(0.01))
  assert found.verdict is Verdict.REPRODUCED
  assert set(found.languages) == {'fr', 'ru'}
  assert found.found.difference == pytest.approx(
    np.mean(list(found.languages.values()))
  )


def test_seeds_do_not_help_where_languages_differ():
  found = claims.find(claims_test.claim(), scores(0.3))
  assert found.verdict is Verdict.NOT_RESOLVED
  assert claims.seeds_to_resolve(found) is None
  near = claims.find(claims_test.claim(), scores(0.01))
  assert claims.seeds_to_resolve(near) == claims.FEWEST_SEEDS
