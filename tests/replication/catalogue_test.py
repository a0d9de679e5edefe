"""The declarations of claims and conditions fit together."""

import pytest

from xlflax.foundation import errors
from xlflax.replication import budgets, catalogue, trainers
from xlflax.replication.conditions import Loss, Taken
from xlflax.training.initialization.vocabulary_matching import Mixing

STUDIES = pytest.mark.parametrize(
  'study', catalogue.STUDIES, ids=lambda one: one.name
)


@STUDIES
def test_names_are_unique(study):
  for many in (study.claims, study.conditions):
    names = [one.name for one in many]
    assert len(set(names)) == len(names)


@STUDIES
def test_claims_compare_conditions_that_are_measured(study):
  known = study.by_name
  for claim in study.claims:
    assert known[claim.first].measured and known[claim.second].measured
    assert claim.published and claim.says and claim.where
    first, second = claim.measures
    assert (claim.first, first) != (claim.second, second)


@STUDIES
def test_twins_stand_beside_claims(study):
  claims = {one.name: one for one in study.claims}
  twins = [one for one in study.claims if one.beside]
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
      'metaxlm/none_equal',  # for None
    )


def test_every_claim_of_a_paper_has_a_twin_in_real_languages():
  claims = catalogue.REAL.claims
  own = {one.beside for one in claims}
  assert {one.name for one in claims if one.counts} <= own


@STUDIES
def test_what_runs_begin_from_is_saved_and_stands_before_them(study):
  names = [one.name for one in study.conditions]
  known = study.by_name
  for one in study.conditions:
    if one.begins_from:
      assert known[one.begins_from].saved
      assert names.index(one.begins_from) < names.index(one.name)


@STUDIES
def test_every_paper_has_claims_and_twins(study):
  for paper in catalogue.PAPERS:
    own = study.chosen((paper,))
    assert {claim.paper for claim in own} == {paper}
    assert sum(claim.counts for claim in own) >= 4
    assert any(claim.beside for claim in own)


def test_real_runs_are_those_of_their_namesakes():
  for name in ('ecs/no_anchors', 'veco/mlm_sides', 'ppa/zero_queue'):
    one, other = (study.by_name[name] for study in catalogue.STUDIES)
    assert one.losses == other.losses and one.anchors is other.anchors
    assert other.learning_rate is None and other.steps != one.steps
  real = catalogue.REAL
  assert real.by_name['metaxlm/focus'].interpolated
  assert real.by_name['metaxlm/focus'].taken is Taken.BOTH
  # Twins of text and pairs read as many tokens, and make as many updates.
  for names in (
    ('ecs/no_anchors', 'ecs/monolingual'),
    ('veco/mlm_tlm', 'veco/mlm_sides', 'veco/wrong_pairs_long'),
    ('metaxlm/both', 'metaxlm/none_equal', 'metaxlm/focus'),
    ('ppa/ppa', 'ppa/wrong_pairs', 'ppa/zero_queue'),
  ):
    runs = [real.by_name[name] for name in names]
    assert (
      len({budgets.tokens(one, real.by_name, real.size) for one in runs}) == 1
    )
    if names[0] != 'metaxlm/both':
      assert len({one.steps for one in runs}) == 1


@STUDIES
def test_queues_hold_whole_batches(study):
  for one in study.conditions:
    for loss in {Loss.MOCO, Loss.ZERO_QUEUE}.intersection(one.losses):
      queue = trainers.objective(loss, one, None, study.size).queue
      pairs = trainers.stream(loss, one, study.size).batch_size
      assert 400 < queue.size <= 512 and queue.size % pairs == 0


def test_needed_are_those_compared_and_those_begun_from():
  claims = catalogue.MADE_UP.chosen(('metaxlm.dict',))
  assert [one.name for one in catalogue.MADE_UP.needed(claims)] == [
    'metaxlm/meta',
    'metaxlm/both',
    'metaxlm/dict',
    'metaxlm/shuffled_dict',  # of the claim's twin
  ]


def test_claims_that_need_dictionaries_are_left_out_without_them(caplog):
  study = catalogue.REAL
  names = {one.name for one in study.without_dictionaries(study.claims)}
  assert {one.name for one in study.claims} - names == {'metaxlm.wechsel'}
  assert 'metaxlm.wechsel' in caplog.text
  with pytest.raises(errors.ConfigError, match='--dictionaries'):
    study.without_dictionaries(study.chosen(('metaxlm.wechsel',)))
  wechsel = study.by_name['metaxlm/wechsel']
  assert wechsel.mixing is Mixing.TRANSLATED and wechsel.reads_dictionary


def test_unknown_claim():
  with pytest.raises(
    errors.ConfigError, match=r'ecs\.nothing.*ecs\.no_anchors'
  ):
    catalogue.MADE_UP.chosen(('ecs.nothing',))
