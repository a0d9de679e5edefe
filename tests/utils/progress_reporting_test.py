"""Progress lines, logged at most every 30 seconds."""

import pytest

from xlflax.evaluation import hidden_states
from xlflax.utils import progress_reporting


class _Clock:
  """Clock that advances by ten seconds at each call."""

  def __init__(self):
    self.now = 0.0

  def monotonic(self) -> float:
    self.now += 10
    return self.now


@pytest.fixture
def lines(monkeypatch, caplog):
  monkeypatch.setattr(progress_reporting, 'time', _Clock())
  caplog.set_level('INFO')
  return lambda: [record.getMessage() for record in caplog.records]


def test_progress_is_logged_every_30_seconds(lines):
  report = progress_reporting.Progress('retrieval', total=7000)
  for _ in range(7):
    report(1000)
  assert lines() == [
    'retrieval | 3,000 of 7,000 sentences | 100/s | 1 min left',
    'retrieval | 6,000 of 7,000 sentences | 100/s | 0 min left',
  ]


def test_speed_excludes_previously_completed_items(lines):
  report = progress_reporting.Progress('words', done=10**6)
  for _ in range(3):
    report(6)
  assert lines() == ['words | 1,000,018 sentences | 0.6/s']


def test_batches_are_reported_under_the_progress_name(lines):
  def read() -> None:
    plan = hidden_states.plan_batches([5] * 70, max_length=16, batch_size=10)
    assert sum(len(indices) for indices, _, _ in plan) == 70

  read()
  assert progress_reporting.current_progress_name() is None and lines() == []
  with progress_reporting.progress_name('bleu'):
    read()
  assert progress_reporting.current_progress_name() is None
  assert [line.split(' | ')[:2] for line in lines()] == [
    ['bleu', '30 of 70 rows'],
    ['bleu', '60 of 70 rows'],
  ]


def test_total_can_be_given_during_the_loop(lines):
  with progress_reporting.Progress('cache', unit='shards') as report:
    for done in (10, 11, 12, 13):
      report.reach(done, 13)
  assert lines() == ['cache | 12 of 13 shards | 0.067/s | 0 min left']
