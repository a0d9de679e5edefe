"""Tokens of conditions, as their streams read them."""

import pytest

from xlflax.replication import budgets, catalogue
from xlflax.replication.conditions import Condition, Loss, Size, Taken

SIZE = Size(length=16, batch=32)


def condition(*losses: Loss, **fields) -> Condition:
  return Condition(name='a/b', title='b', steps=10, losses=losses, **fields)


@pytest.mark.parametrize(
  ('losses', 'tokens'),
  [
    ((Loss.MLM,), 32 * 16),
    ((Loss.TLM,), 16 * 32),
    ((Loss.CA_MLM,), 16 * 2 * 16),
    ((Loss.MOCO, Loss.CA_MLM_PAIRS), 16 * 2 * 16),  # the same pairs
    ((Loss.MLM, Loss.CA_MLM_PAIRS, Loss.TLM), 3 * 512),
  ],
)
def test_a_step(losses, tokens):
  assert budgets.tokens(condition(*losses), {}, SIZE) == 10 * tokens


def test_what_a_run_begins_from_counts_and_a_teacher_does_not():
  first = Condition(name='a/a', title='a', steps=3)
  known = {'a/a': first}
  begun = condition(Loss.MLM, begins_from='a/a')
  taught = condition(Loss.MLM, begins_from='a/a', taken=Taken.TEACHER)
  untrained = condition(Loss.MLM, begins_from='a/a', untrained=True)
  found = [
    budgets.tokens(one, known, SIZE) for one in (begun, taught, untrained)
  ]
  assert found == [13 * 512, 10 * 512, 3 * 512]


@pytest.mark.parametrize(
  'twin',
  [
    'ecs.sep_emb_same_start',
    'metaxlm.both_tokens',
    'metaxlm.shuffled',
    'ppa.tlm_tokens',
    'ppa.zero_queue_retrieval',
    'veco.monolingual_adjacent',
    'veco.pairs_tokens',
    'veco.pairs_wrong',
  ],
)
def test_twins_read_as_many_tokens(twin):
  known = {one.name: one for one in catalogue.MADE_UP.conditions}
  (claim,) = catalogue.MADE_UP.chosen((twin,))
  first, second = (
    budgets.tokens(known[name], known, Size())
    for name in (claim.first, claim.second)
  )
  # PPA's MLM reads the sides that MoCo reads; TLM's rows are others.
  assert first == second or twin == 'ppa.tlm_tokens'
