"""Tests of selected cases of the exchange campaign."""

import pytest

from tests.campaigns import exchanges, two_runs

# Kinds that each command reads. Exchanging any other kind has no effect.
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


@pytest.mark.slow
def test_exchange_of_read_artifacts_is_detected(tmp_path):
  cases = [((kind,), reader) for reader in _READ for kind in _READ[reader]]
  cases += [
    (('config.gin',), 'report'),
    # Resuming always warns about truncated text, which is not a detection.
    (("an export's weights",), 'train (resume)'),
    (('model.json', 'checkpoint'), 'encode, analyze'),
    (('model.json', 'objectives.json (labels)'), 'encode, analyze'),
  ]
  totals, outcomes = exchanges.run_campaign(tmp_path, cases)
  assert not totals.violations, '\n'.join(totals.violations)
  unread = [
    case for case, outcome in outcomes.items() if outcome != exchanges.NOTICED
  ]
  assert unread == [
    (('config.gin',), 'report'),
    (("an export's weights",), 'train (resume)'),
  ]
  assert '| config.gin |' in exchanges.format_table(outcomes)


def test_campaign_combines_all_kinds_and_readers():
  kinds, readers = len(exchanges.KINDS), len(two_runs.READERS)
  assert len(list(exchanges.single_exchanges())) == kinds * readers
  pairs = list(exchanges.paired_exchanges())
  nested = 3  # checkpoints contain their items
  assert len(pairs) == (kinds * (kinds - 1) // 2 - nested) * readers


@pytest.mark.slow
def test_exchanges_of_all_kinds(tmp_path):
  totals, outcomes = exchanges.run_campaign(
    tmp_path, exchanges.single_exchanges()
  )
  assert not totals.violations, '\n'.join(totals.violations)
  noticed_kinds = {
    kinds[0]
    for (kinds, reader), outcome in outcomes.items()
    if outcome == exchanges.NOTICED and reader != 'verify'
  }
  assert set(exchanges.KINDS) - noticed_kinds == {
    'config.gin'
  }  # not read by any command
  print(totals.summary())
  print(exchanges.format_table(outcomes))
