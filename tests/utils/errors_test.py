"""Exit statuses of errors that a restart can and cannot resolve."""

import errno
import os
import pickle

import pytest

from xlflax.utils import errors

Exit = errors.ExitStatus


def _os_error(number):
  return OSError(number, os.strerror(number), 'a.txt')


@pytest.mark.parametrize(
  'number',
  [errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.EIO]
  + [errno.ETIMEDOUT, errno.EFBIG],
)
def test_transient_system_errors_have_the_status_failure(number):
  try:
    raise errors.CorpusError('No text') from _os_error(number)
  except errors.CorpusError as error:
    assert error.status is Exit.FAILURE
    assert pickle.loads(pickle.dumps(error)).status is Exit.FAILURE
  with pytest.raises(errors.XlflaxError, match=r'Where: b\.txt') as raised:
    error = OSError(number, os.strerror(number))
    errors.raise_if_system_error(error, 'b.txt')
  assert raised.value.status is Exit.FAILURE


@pytest.mark.parametrize('number', [errno.EACCES, errno.ENOENT, errno.EINVAL])
def test_permanent_system_errors_have_the_status_mistake(number):
  try:
    raise errors.CorpusError('No text') from _os_error(number)
  except errors.CorpusError as error:
    assert error.status is Exit.MISTAKE


def test_missing_or_malformed_files_are_not_system_errors():
  errors.raise_if_system_error(_os_error(errno.ENOENT), 'a')
  errors.raise_if_system_error(_os_error(errno.ENOTDIR), 'a')
  errors.raise_if_system_error(OSError('Not a gzipped file'), 'a')
  errors.raise_if_system_error(ValueError('no JSON'), 'a')
  with pytest.raises(errors.XlflaxError, match='Permission denied') as raised:
    errors.raise_if_system_error(_os_error(errno.EACCES), 'a')
  assert raised.value.status is Exit.MISTAKE


@pytest.mark.parametrize(
  ('parts', 'joint'),
  [
    ([], Exit.DONE),
    ([0, 0], Exit.DONE),
    ([0, 2], Exit.MISTAKE),
    ([2, 74, 0], Exit.FAILURE),
    ([74, 1], Exit.BUG),
    ([1, 75, 2], Exit.STOPPED),
  ],
)
def test_joint_status_combines_exit_statuses(parts, joint):
  assert errors.joint_status(parts) is joint
