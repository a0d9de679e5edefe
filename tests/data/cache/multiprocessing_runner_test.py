"""Tests of writing caches with several processes."""

import os

import pytest

from tests.data.cache import writing
from xlflax.data.plain_text.corpus_directory_tasks import CorpusTasks
from xlflax.utils import errors


class _OpensOnce:
  """Callable that opens tasks in this process only."""

  def __init__(self, corpus):
    self._corpus, self._process = corpus, os.getpid()

  def __call__(self):
    if os.getpid() == self._process:
      return CorpusTasks(self._corpus)
    raise errors.CorpusError('The corpus directory does not exist')


def test_errors_at_worker_startup_are_raised(
  tmp_path, toy_corpus, toy_vocabulary
):
  with pytest.raises(errors.CorpusError):
    writing.write(
      tmp_path,
      toy_corpus,
      toy_vocabulary,
      num_processes=2,
      open_tasks=_OpensOnce(str(toy_corpus.directory)),
    )
