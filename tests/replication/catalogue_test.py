"""The declarations of claims and conditions fit together."""

import pytest

from xlflax.foundation import errors
from xlflax.replication import catalogue


def test_names_are_unique():
  for many in (catalogue.MADE_UP.claims, catalogue.MADE_UP.conditions):
    names = [one.name for one in many]
    assert len(set(names)) == len(names)


def test_claims_compare_conditions_that_are_measured():
  known = {one.name: one for one in catalogue.MADE_UP.conditions}
  for claim in catalogue.MADE_UP.claims:
    assert known[claim.first].measured and known[claim.second].measured
    assert claim.published and claim.says and claim.where
    first, second = claim.measures
    assert (claim.first, first) != (claim.second, second)


def test_twins_stand_beside_claims():
  claims = {one.name: one for one in catalogue.MADE_UP.claims}
  twins = [one for one in catalogue.MADE_UP.claims if one.beside]
  assert twins
  for twin in twins:
    own = claims[twin.beside]
    assert own.counts and own.paper == twin.paper
    # The claim's second condition above another, or its first above nothing.
    assert twin.second in (
      own.first,
      own.second,
      'ecs/default',
      'ecs/default_long',
    )


def test_what_runs_begin_from_is_saved_and_stands_before_them():
  names = [one.name for one in catalogue.MADE_UP.conditions]
  known = {one.name: one for one in catalogue.MADE_UP.conditions}
  for one in catalogue.MADE_UP.conditions:
    if one.begins_from:
      assert known[one.begins_from].saved
      assert names.index(one.begins_from) < names.index(one.name)


def test_every_paper_has_claims_and_twins():
  for paper in catalogue.PAPERS:
    own = catalogue.MADE_UP.chosen((paper,))
    assert {claim.paper for claim in own} == {paper}
    assert any(claim.counts for claim in own)
    assert any(claim.beside for claim in own)


def test_needed_are_those_compared_and_those_begun_from():
  claims = catalogue.MADE_UP.chosen(('metaxlm.dict',))
  assert [one.name for one in catalogue.MADE_UP.needed(claims)] == [
    'metaxlm/meta',
    'metaxlm/both',
    'metaxlm/dict',
    'metaxlm/shuffled_dict',  # of the claim's twin
  ]


def test_unknown_claim():
  with pytest.raises(
    errors.ConfigError, match=r'ecs\.nothing.*ecs\.no_anchors'
  ):
    catalogue.MADE_UP.chosen(('ecs.nothing',))
