"""Checks of a job's model directory before the job is rendered."""

import posixpath
from collections.abc import Iterable, Sequence

from xlflax.launch import job_base
from xlflax.storage import paths
from xlflax.utils import errors

# Directories that are local to each node of a cluster.
_NODE_LOCAL = ('/tmp', '/var/tmp', '/dev/shm')


def check_shared_model_dir(
  command: Sequence[str], mounts: Iterable[str], *, fix: str
) -> None:
  """Checks that all nodes share the model directory, also after a restart.

  Args:
    command: Command that the job runs.
    mounts: Directories that all nodes share.
    fix: Hint for the error message.

  Raises:
    ConfigError: If `--model_dir` is neither in a bucket nor below one of the
      shared directories.
  """
  directory = job_base.flag_value(command, '--model_dir')
  if directory is None or paths.is_bucket(directory):
    return
  normalized = posixpath.normpath(directory)
  if any(
    normalized == mount or normalized.startswith(mount.rstrip('/') + '/')
    for mount in map(posixpath.normpath, mounts)
  ):
    return
  raise errors.ConfigError(
    'All nodes of the job must be able to access the model directory',
    got=directory,
    expected=(
      'a directory on a shared volume, or a bucket path gs://... or s3://...'
    ),
    where='--model_dir',
    fix=fix,
  )


def check_not_node_local(command: Sequence[str]) -> None:
  """Checks that a multi-node job does not write to a local directory.

  Raises:
    ConfigError: If `--model_dir` is in a directory such as /tmp.
  """
  directory = job_base.flag_value(command, '--model_dir')
  if directory is None or paths.is_bucket(directory):
    return
  normalized = posixpath.normpath(directory)
  for local in _NODE_LOCAL:
    if normalized == local or normalized.startswith(local + '/'):
      raise errors.ConfigError(
        'All nodes of the job must be able to access the model directory',
        got=directory,
        expected=(
          'a directory on a shared file system, or a bucket path gs://... '
          'or s3://...'
        ),
        where='--model_dir',
      )
