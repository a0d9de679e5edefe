"""Tests of locks, which give a directory or a shard a single writer."""

import contextlib

import pytest

from tests.errors import raises_error
from xlflax.storage import file_lock
from xlflax.utils import errors


def _alone(directory, share=None):
  return file_lock.lock_directory(
    directory, name='.lock', what='table', error=errors.CorpusError, share=share
  )


@pytest.mark.parametrize(
  'held, requested',
  [(None, None), (None, (0, 2)), ((0, 2), None), ((1, 2), (1, 2))],
)
def test_concurrent_writer_is_rejected(tmp_path, held, requested):
  directory = tmp_path / 'made'
  with _alone(directory, held):
    with raises_error(
      errors.CorpusError, where=directory, status=errors.ExitStatus.FAILURE
    ):
      with _alone(directory, requested):
        pass
  with _alone(directory, requested):  # the lock is free again
    pass


def test_different_shards_are_locked_concurrently(tmp_path):
  with contextlib.ExitStack() as stack:
    for share in ((0, 3), (1, 3), (2, 3)):
      stack.enter_context(_alone(tmp_path, share))
