"""A few cases of the campaign of mutations."""

import pytest

from tests.campaigns import mutations


def test_no_change_of_a_stored_file_is_silent(tmp_path):
  found = mutations.campaign(tmp_path, cases=2 * 20, seed=1)
  assert not found.wrong
  assert found.outcomes[mutations.NOTICED] >= 20


@pytest.mark.slow
def test_many_changes(tmp_path):
  found = mutations.campaign(tmp_path, cases=1000, seed=2)
  assert not found.wrong, '\n'.join(found.wrong)
  print(found.summary())
