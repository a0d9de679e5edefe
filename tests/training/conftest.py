"""Fixtures of the training tests, in addition to `tests.training.tiny`."""

import pytest


@pytest.fixture
def warnings_logged(caplog):
  """Returns a function that lists the warnings logged so far."""
  caplog.set_level('WARNING')
  return lambda: [
    r.getMessage() for r in caplog.records if r.levelname == 'WARNING'
  ]
