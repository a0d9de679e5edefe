"""Tests of selected cases of the mutation campaign."""

import pytest

from tests.campaigns import mutations


def test_changes_of_stored_files_are_detected(tmp_path):
  totals = mutations.run_campaign(tmp_path, cases=2 * 20, seed=1)
  assert not totals.violations
  assert totals.outcomes[mutations.NOTICED] >= 20


@pytest.mark.slow
def test_many_changes_are_detected(tmp_path):
  totals = mutations.run_campaign(tmp_path, cases=1000, seed=2)
  assert not totals.violations, '\n'.join(totals.violations)
  print(totals.summary())
