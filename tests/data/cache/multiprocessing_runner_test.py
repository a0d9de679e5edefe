"""The processes of one machine that write a cache."""

import os

import pytest

from tests.data.cache import writing
from xlflax.data.plain_text.corpus_directory_tasks import CorpusTasks
from xlflax.utils import errors


class _OpensOnce:
  """Opens tasks in this process, and in no other."""

  def __init__(self, corpus):
    self._corpus, self._process = corpus, os.getpid()

  def __call__(self):
    if os.getpid() == self._process:
      return CorpusTasks(self._corpus)
    raise errors.CorpusError('The corpus directory does not exist')


def test_workers_tell_why_they_cannot_start(
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
