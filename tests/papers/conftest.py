"""What runs of the papers' rows read."""

import pytest

from tests.end_to_end import conftest as corpora


@pytest.fixture(scope='module')
def corpus(tmp_path_factory):
  """A corpus directory of three made-up languages."""
  directory = tmp_path_factory.mktemp('corpus')
  corpora.write_corpus(directory)
  return directory
