"""Equal systems do not differ, unequal halves would."""

import random

from tests.replication import claims_test
from xlflax.replication.page import controls


def values(count: int) -> list[float]:
  draw = random.Random(0)
  return [draw.gauss(0.5, 0.1) for _ in range(count)]


def test_equal_systems_are_not_resolved():
  found = controls.equal_systems(values(10))
  assert found <= 3
  assert found == controls.equal_systems(values(10))


def test_unequal_halves_are_resolved():
  halves = [seed + (1e6 if seed < 3 else 0) for seed in range(6)]
  assert controls.equal_systems(halves) > 0


def test_conditions_with_four_seeds_by_the_measures_of_claims():
  scores = {
    'x': {seed: {'score': one} for seed, one in enumerate(values(10))},
    'y': {seed: {'score': one} for seed, one in enumerate(values(3))},
    'unused': {seed: {'score': one} for seed, one in enumerate(values(9))},
  }
  text = controls.sentence([claims_test.claim()], scores)
  own = controls.equal_systems(values(10))
  assert f'{own} of 20 comparisons are resolved' in text
  del scores['x']
  assert controls.sentence([claims_test.claim()], scores) == ''
