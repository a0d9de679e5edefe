"""Checks of a job's directories before the job is rendered."""

import logging
import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence

from xlflax.launch import job_base
from xlflax.storage import paths
from xlflax.utils import errors

# Directories that are local to each node of a cluster.
_NODE_LOCAL = ('/tmp', '/var/tmp', '/dev/shm')
# Flags of directories that all processes of a job write to.
_OUTPUT_FLAGS = ('--model_dir', '--output', '--sample_dir')
_INPUT_FLAGS = ('--corpus', '--cache', '--vocabulary')


def check_shared_outputs(
  command: Sequence[str],
  mounts: Iterable[str],
  *,
  fix: str,
  can_mount: bool = True,
  read_only_mounts: Iterable[str] = (),
) -> None:
  """Checks that all nodes share the output directories and can write to them.

  The nodes must share the directories across restarts of the job.

  Args:
    command: Command that the job runs.
    mounts: Directories that all nodes share and can write to.
    fix: Advice on how to solve the problem, which ends the error message.
    can_mount: Whether the launcher can mount shared volumes. If True, the error
      message suggests mounting one.
    read_only_mounts: Directories at which read-only volumes are mounted. They
      may be subdirectories of `mounts`.

  Raises:
    ConfigError: If an output directory, such as that of `--model_dir`, is
      outside of all buckets and writable shared volumes.
  """
  mounts = list(mounts)
  all_mounts = [*mounts, *read_only_mounts]
  for flag, directory in _output_directories(command):
    if _innermost_mount(directory, all_mounts) not in mounts:
      raise errors.ConfigError(
        f'The {flag} directory must be accessible to all nodes of the job. '
        + (
          'It must be on a shared volume that is not mounted read-only, or be '
          'a bucket path gs://... or s3://...'
          if can_mount
          else 'It must be a bucket path gs://... or s3://...'
        ),
        got=directory,
        where=flag,
        fix=fix,
      )


def check_not_node_local(
  command: Sequence[str], working_directory: str
) -> None:
  """Checks that a multi-node job does not write to a local directory.

  Args:
    command: Command that the job runs.
    working_directory: Directory in which the job runs. Relative paths refer to
      it.

  Raises:
    ConfigError: If an output directory, such as that of `--model_dir`, is in a
      directory that each node has separately, such as /tmp.
  """
  for flag, directory in _node_local_outputs(command, working_directory):
    raise errors.ConfigError(
      f'The {flag} directory must be accessible to all nodes of the job. '
      'It must be on a shared file system, or be a bucket path gs://... or '
      's3://...',
      got=directory,
      where=flag,
      fix='Pass an absolute path on a shared file system, or run the command '
      'in a directory on a shared file system.',
    )


def check_input_not_node_local(flag: str, file: str) -> None:
  """Checks that the nodes of a cluster can read an input file.

  Args:
    flag: Name of the flag that specifies the file, for the error message.
    file: Absolute path of the file.

  Raises:
    ConfigError: If the file is in a directory that each node has separately,
      such as /tmp.
  """
  if _is_node_local(file):
    raise errors.ConfigError(
      f'The {flag} file must be on a file system that all nodes of the cluster '
      'share, because the job reads the file',
      got=file,
      where=flag,
      fix='Move the file to a shared file system.',
    )


def warn_of_node_local_outputs(
  command: Sequence[str], working_directory: str
) -> None:
  """Logs a warning for each output directory that may exist on only one node.

  Args:
    command: Command that the job runs.
    working_directory: Directory in which the job runs. Relative paths refer to
      it.
  """
  for flag, directory in _node_local_outputs(command, working_directory):
    logging.warning(
      'The %s directory must be accessible to all nodes of the job, but %s is '
      'probably on a local disk.',
      flag,
      directory,
    )


def warn_of_host_outputs(
  command: Sequence[str], host_directories: Mapping[str, str]
) -> None:
  """Logs a warning for each output directory that is mounted from the node.

  Args:
    command: Command that the job runs.
    host_directories: Mapping from the mount point of each mounted node
      directory to its path on the node.
  """
  for flag, directory in _output_directories(command):
    mount = _innermost_mount(directory, host_directories)
    if mount is not None:
      logging.warning(
        'The %s directory %s is in the mounted node directory %s. The node '
        'directory must be the same shared storage on every node.',
        flag,
        directory,
        host_directories[mount],
      )


def warn_of_unmounted_inputs(
  command: Sequence[str], mounts: Iterable[str], *, place: str
) -> None:
  """Logs a warning for each input that is not on a mounted volume.

  Args:
    command: Command that the job runs.
    mounts: Directories at which volumes are mounted.
    place: Location, such as 'The image', that must contain inputs that are not
      mounted. It starts a sentence of the warning.
  """
  mounts = list(mounts)
  for flag in _INPUT_FLAGS:
    value = job_base.flag_value(command, flag)
    if value and not paths.is_bucket(value) and not _is_below(value, mounts):
      logging.warning(
        '%s=%s is outside of all buckets and mounted volumes. %s must contain '
        'this path.',
        flag,
        value,
        place,
      )


def _node_local_outputs(
  command: Sequence[str], working_directory: str
) -> Iterator[tuple[str, str]]:
  """Yields the flags and absolute paths of node-local output directories."""
  for flag, value in _output_directories(command):
    directory = posixpath.normpath(posixpath.join(working_directory, value))
    if _is_node_local(directory):
      yield flag, directory


def _is_node_local(path: str) -> bool:
  """Returns whether an absolute path is in a directory such as /tmp."""
  # The parent of a symbolic link is not the parent of its target.
  return any(
    _is_below(candidate, _NODE_LOCAL)
    for candidate in (path, os.path.realpath(path))
  )


def _output_directories(command: Sequence[str]) -> Iterator[tuple[str, str]]:
  """Yields the flags and paths of output directories outside of buckets."""
  values = {flag: job_base.flag_value(command, flag) for flag in _OUTPUT_FLAGS}
  binding = job_base.flag_value(command, '--gin.MODEL_DIR')
  if binding is not None:
    values['--gin.MODEL_DIR'] = binding.strip().strip('\'"')
  for flag, value in values.items():
    if value is not None and not paths.is_bucket(value):
      yield flag, value


def _innermost_mount(directory: str, mounts: Iterable[str]) -> str | None:
  """Returns the mount that contains a directory, or None."""
  return max(
    (mount for mount in mounts if _is_below(directory, [mount])),
    key=lambda mount: len(posixpath.normpath(mount)),
    default=None,
  )


def _is_below(directory: str, parents: Iterable[str]) -> bool:
  """Returns whether a path is one of several directories or below one."""
  normalized = posixpath.normpath(directory)
  return any(
    normalized == parent or normalized.startswith(parent.rstrip('/') + '/')
    for parent in map(posixpath.normpath, parents)
  )
