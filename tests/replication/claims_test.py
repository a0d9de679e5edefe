"""Verdicts follow from intervals alone."""

import math

import numpy as np
import pytest

from xlflax.evaluation.metrics.bootstrap import Significance
from xlflax.replication import claims
from xlflax.replication.claims import Claim, Order, Verdict


def interval(low: float, high: float) -> Significance:
  return Significance(
    first=0.0,
    second=0.0,
    difference=(low + high) / 2,
    low=low,
    high=high,
    p_value=0.5,
    samples=0,
  )


@pytest.mark.parametrize(
  ('order', 'low', 'high', 'verdict'),
  [
    (Order.BELOW, 0.01, 0.2, Verdict.REPRODUCED),
    (Order.BELOW, -0.01, 0.2, Verdict.NOT_RESOLVED),
    (Order.BELOW, -0.2, -0.01, Verdict.CONTRADICTED),
    (Order.SAME, -0.04, 0.04, Verdict.REPRODUCED),
    (Order.SAME, -0.04, 0.06, Verdict.NOT_RESOLVED),
    (Order.SAME, 0.06, 0.08, Verdict.CONTRADICTED),
    (Order.SAME, -0.08, -0.06, Verdict.CONTRADICTED),
    (Order.NOT_ABOVE, -0.04, 0.2, Verdict.REPRODUCED),
    (Order.NOT_ABOVE, -0.06, 0.2, Verdict.NOT_RESOLVED),
    (Order.NOT_ABOVE, -0.2, -0.06, Verdict.CONTRADICTED),
  ],
)
def test_rule(order, low, high, verdict):
  assert claims.judge(interval(low, high), order, margin=0.05) is verdict


def claim(**fields) -> Claim:
  settings = dict(
    name='a.b',
    paper='A',
    where='table 1',
    says='x is below y',
    published='1; 2',
    first='x',
    second='y',
    measure='score',
  )
  return Claim(**(settings | fields))


def test_only_seeds_of_both_count():
  scores = {
    'x': {seed: {'score': 0.1 + 0.01 * seed} for seed in range(5)},
    'y': {seed: {'score': 0.5 + 0.01 * seed**2} for seed in (1, 2, 4, 7)},
  }
  found = claims.find(claim(), scores)
  assert found.seeds == (1, 2, 4)
  assert found.verdict is Verdict.REPRODUCED
  assert found.found.first == pytest.approx((0.11 + 0.12 + 0.14) / 3)


def test_too_few_seeds_are_no_verdict():
  scores = {name: {0: {'score': 1.0}, 1: {'score': 2.0}} for name in 'xy'}
  found = claims.find(claim(), scores)
  assert (found.verdict, found.found) == (Verdict.NOT_RUN, None)
  assert claims.find(claim(), {}).verdict is Verdict.NOT_RUN


def found_of(verdict: Verdict, difference: float = 0.1) -> claims.Finding:
  return claims.Finding(
    claim=claim(),
    verdict=verdict,
    seeds=(0, 1, 2),
    found=interval(0, 2 * difference),
  )


@pytest.mark.parametrize(
  ('own', 'twins', 'told'),
  [
    ('REPRODUCED', (), 'NO_TWIN'),
    ('REPRODUCED', ('REPRODUCED', 'REPRODUCED'), 'REPRODUCED'),
    ('REPRODUCED', ('REPRODUCED', 'NOT_RESOLVED'), 'AS_ITS_TWIN'),
    ('REPRODUCED', ('CONTRADICTED',), 'AS_ITS_TWIN'),
    ('CONTRADICTED', ('REPRODUCED',), 'CONTRADICTED'),
    ('NOT_RESOLVED', (), 'NOT_RESOLVED'),
  ],
)
def test_no_order_is_reproduced_without_its_twins(own, twins, told):
  found = claims.beside_twins(
    found_of(Verdict[own]), [found_of(Verdict[twin]) for twin in twins]
  )
  assert found is Verdict[told]


def test_a_twin_that_was_not_run_is_none():
  twin = claims.find(claim(), {})
  one = found_of(Verdict.REPRODUCED)
  assert claims.beside_twins(one, [twin]) is Verdict.NO_TWIN


def test_seeds_that_would_resolve_a_difference():
  """Nearly the sample size of a z-test: (1.96 + 0.84)² (sd / d)²."""
  gains = [0.1 * x for x in (-3, -1, 0, 2, 4, 1, -2, 3, 1, 0)]
  scores = {
    'x': {seed: {'score': 0.0} for seed in range(10)},
    'y': {seed: {'score': gain} for seed, gain in enumerate(gains)},
  }
  one = claims.find(claim(), scores)
  ratio = np.std(gains, ddof=1) / np.mean(gains)
  assert claims.seeds_to_resolve(one) == math.ceil(7.8489 * ratio**2)
  assert claims.seeds_to_resolve(found_of(Verdict.NOT_RESOLVED, 0.0)) is None


def test_two_measures_of_one_condition():
  scores = {
    'x': {
      seed: {'low': 0.1 * seed, 'high': 1 + 0.11 * seed} for seed in (0, 1, 2)
    }
  }
  found = claims.find(claim(second='x', measure='low|high'), scores)
  assert found.found.difference == pytest.approx(1.01)


def test_conditions_each_once():
  assert claims.conditions_of([claim(), claim(first='z')]) == ('x', 'y', 'z')
