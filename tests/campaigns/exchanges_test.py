"""A few cases of the campaign of exchanges."""

import pytest

from tests.campaigns import exchanges, two_runs

# What each of these reads; an exchange of anything else changes nothing.
_READ = {
  'encode, analyze': {
    "the run's vocabulary",
    'checkpoint',
    'item params',
    'model.json',
    'objectives.json (labels)',
  },
  'report': {
    'checkpoint',
    'item meta',
    'model.json',
    'trainer.json',
    'metrics.jsonl',
    'results',
  },
  'caches, languages': {'model.json', 'inputs.json'},
  'train (resume)': {'checkpoint', 'corpus', 'token cache'},
}


def test_no_exchange_of_what_is_read_is_silent(tmp_path):
  cases = [((kind,), reader) for reader in _READ for kind in _READ[reader]]
  cases += [
    (('config.gin',), 'report'),
    # Resuming warns of cut text in any case: that notices nothing.
    (("an export's weights",), 'train (resume)'),
    (('model.json', 'checkpoint'), 'encode, analyze'),
    (('model.json', 'objectives.json (labels)'), 'encode, analyze'),
  ]
  found, each = exchanges.campaign(tmp_path, cases)
  assert not found.wrong, '\n'.join(found.wrong)
  unread = [case for case, out in each.items() if out != exchanges.NOTICED]
  assert unread == [
    (('config.gin',), 'report'),
    (("an export's weights",), 'train (resume)'),
  ]
  assert '| config.gin |' in exchanges.table(each)


def test_every_kind_is_tried_with_every_reader():
  kinds, readers = len(exchanges.KINDS), len(two_runs.READERS)
  assert len(list(exchanges.singles())) == kinds * readers
  pairs = list(exchanges.pairs())
  nested = 3  # a checkpoint holds its items
  assert len(pairs) == (kinds * (kinds - 1) // 2 - nested) * readers


@pytest.mark.slow
def test_all_kinds(tmp_path):
  found, each = exchanges.campaign(tmp_path, exchanges.singles())
  assert not found.wrong, '\n'.join(found.wrong)
  read = {
    kinds[0]
    for (kinds, reader), outcome in each.items()
    if outcome == exchanges.NOTICED and reader != 'verify'
  }
  assert set(exchanges.KINDS) - read == {'config.gin'}  # it is for people
  print(found.summary())
  print(exchanges.table(each))
