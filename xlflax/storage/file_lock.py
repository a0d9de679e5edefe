"""File locks that prevent concurrent writes to a directory."""

import contextlib
import fcntl
import pathlib
from collections.abc import Iterator

from xlflax.utils import errors


@contextlib.contextmanager
def lock_directory(
  directory: pathlib.Path,
  *,
  name: str,
  what: str,
  error: type[errors.XlflaxError],
  share: tuple[int, int] | None = None,
  wait: bool = False,
) -> Iterator[None]:
  """Context in which no other process writes to a directory.

  The directory is created if necessary. Different shards can be written at the
  same time. The operating system releases the lock of a killed process.

  Args:
    directory: Directory to lock.
    name: Name of the lock file. The lock file of a shard has the suffix
      `-i-of-n`.
    what: Type of the directory for the error message, such as 'token cache'.
    error: Class of the error to raise if a different process is writing to the
      directory or shard.
    share: Pair (i, n) to lock only the i-th of n shards, where i starts at 0.
      If None, the complete directory is locked.
    wait: Whether to wait until the other process finishes instead of raising an
      error.
  """
  directory.mkdir(parents=True, exist_ok=True)
  with contextlib.ExitStack() as stack:
    files = [(directory / name, what)]
    if share:
      index, count = share
      shard_file = directory / f'{name}-{index}-of-{count}'
      files.append((shard_file, f'shard {index}/{count} of a {what}'))
    for path, text in files:
      # On NFS, shared locks require a file opened for reading, and exclusive
      # locks a file opened for writing.
      file = stack.enter_context(path.open('a+'))
      exclusive = not share or path is not files[0][0]
      operation = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
      try:
        fcntl.flock(file, operation if wait else operation | fcntl.LOCK_NB)
      except BlockingIOError as cause:
        raise error(
          f'Another process is writing this {text}',
          where=directory,
          fix='Wait until that process finishes, or stop it.',
          status=errors.ExitStatus.FAILURE,
        ) from cause
    yield
