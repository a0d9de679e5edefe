"""Equal systems do not differ, unequal halves would."""

import random

from xlflax.replication import catalogue, controls
from xlflax.replication.claims import Verdict
from xlflax.replication.results import Result


def values(count: int) -> list[float]:
  draw = random.Random(0)
  return [draw.gauss(0.5, 0.1) for _ in range(count)]


def test_equal_systems_are_not_resolved():
  found = controls.equal_systems(values(10))
  assert found.total() == 20
  assert found[Verdict.NOT_RESOLVED] >= 17
  assert found == controls.equal_systems(values(10))


def test_section_has_conditions_with_four_seeds():
  def results(name, count):
    return [
      Result(
        condition=name,
        seed=seed,
        settings='',
        measures={'transfer': value},
        curve={},
        cpu_seconds=0.0,
      )
      for seed, value in enumerate(values(count))
    ]

  text = controls.section(results('a/many', 4) + results('a/few', 3))
  assert '| a/many | 4 |' in text
  assert 'a/few' not in text
  assert controls.section(results('a/few', 3)) == ''


def test_more_seeds_of_one_condition_of_each_family_and_what_it_begins_from():
  found = controls.more_seeds(catalogue.CONDITIONS, 3)
  assert {seed for _, seed in found} == {3, 4, 5, 6, 7}
  first = [one.name for one, seed in found if seed == 3]
  assert {'ecs/default', 'metaxlm/none', 'ppa/no_moco', 'veco/mlm_tlm'} < {
    *first
  }
  begins_from = {one.name: one.begins_from for one, _ in found}
  for place, name in enumerate(first):  # each after the one it begins from
    assert begins_from[name] in (None, *first[:place])
