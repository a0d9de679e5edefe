"""Tests of selected cases of the fuzzed record campaign."""

import dataclasses

import pytest

from tests.campaigns import fuzzed_records
from tests.data import reader_samples


def test_readers_lose_no_records():
  counts = fuzzed_records.run_campaign(cases=10 * len(reader_samples.SAMPLES))
  assert counts.cases == 10 * len(reader_samples.SAMPLES)
  assert not counts.violations, '\n'.join(counts.violations)


@pytest.mark.parametrize('name', ['corpus text', 'tsv', 'squad', 'moses'])
def test_lost_record_is_a_violation(name, monkeypatch):
  sample = reader_samples.BY_NAME[name]

  def read_without_the_last(folder):
    texts, num_reported = sample.read(folder)
    return texts[:-1], num_reported

  lossy = dataclasses.replace(sample, read=read_without_the_last, bad=())
  monkeypatch.setattr(reader_samples, 'SAMPLES', (lossy,))
  counts = fuzzed_records.run_campaign(cases=20)
  num_read = sum(
    count
    for outcome, count in counts.outcomes.items()
    if outcome != fuzzed_records.REJECTED
  )
  assert len(counts.violations) == num_read > 0


def test_seed_determines_the_cases():
  first, second = (
    fuzzed_records.run_campaign(cases=len(reader_samples.SAMPLES), seed=seed)
    for seed in (3, 3)
  )
  assert first == second
