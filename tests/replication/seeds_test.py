"""`xlflax replicate --all` makes the runs that the published page has."""

import pathlib

from xlflax.replication import catalogue, results, seeds

PAGE = pathlib.Path(__file__).parents[2] / 'docs/replication'


def planned() -> list[tuple[str, int]]:
  return [
    (one.name, seed)
    for one, seed in seeds.planned(catalogue.MADE_UP.conditions)
  ]


def test_the_published_runs_are_those_of_all():
  published = results.read_all(PAGE / catalogue.MADE_UP.results)
  assert sorted(planned()) == sorted(
    (one.condition, one.seed) for one in published
  ), 'seeds.py and docs/replication/results.json differ: adapt the table'


def test_what_a_run_begins_from_has_its_seeds():
  known = {one.name: one for one in catalogue.MADE_UP.conditions}
  for one in catalogue.MADE_UP.conditions:
    if one.begins_from:
      begun = seeds.of(known[one.begins_from])
      assert set(seeds.of(one)) <= set(begun)


def test_a_seed_of_all_before_the_next():
  found = [seed for _, seed in seeds.planned(catalogue.MADE_UP.conditions)]
  assert found == sorted(found)
  assert found[0] == 0
  assert seeds.planned(()) == []
