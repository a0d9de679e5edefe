"""Corpus of the runs of the papers' gin files."""

import pytest

from tests.end_to_end import conftest as corpora


@pytest.fixture(scope='module')
def corpus(tmp_path_factory):
  """A corpus directory of three synthetic languages."""
  directory = tmp_path_factory.mktemp('corpus')
  corpora.write_corpus(directory)
  return directory
