"""Joining a job: what a single process needs to say, and what it may not."""

import pytest

from xlflax import errors
from xlflax.training import distributed


@pytest.mark.parametrize('given', [
    dict(coordinator='localhost:1'), dict(num_processes=2, process_id=0)])
def test_job_of_several_processes_described_in_part(given):
  with pytest.raises(errors.ConfigError) as error:
    distributed.initialize(**given)
  assert '--coordinator, --num_processes, --process_id' in str(error.value)


def test_single_process_leads():
  distributed.initialize()
  assert distributed.is_lead()
