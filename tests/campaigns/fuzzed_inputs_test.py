"""A few cases of the campaign of inputs."""

import pytest

from tests.campaigns import fuzzed_inputs


def test_every_input_is_read_or_refused():
  found = fuzzed_inputs.campaign(cases=4 * len(fuzzed_inputs.TARGETS), seed=1)
  assert not found.wrong, '\n'.join(found.wrong)


@pytest.mark.slow
def test_many_inputs():
  found = fuzzed_inputs.campaign(cases=2000, seed=2)
  assert not found.wrong, '\n'.join(found.wrong)
  print(found.summary())
