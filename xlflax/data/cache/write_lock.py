"""Lock that prevents concurrent writes to a token cache.

Errors of the operating system are converted to a CacheError.
"""

import contextlib
import pathlib
from collections.abc import Iterator

from xlflax.storage import file_lock
from xlflax.utils import errors


@contextlib.contextmanager
def lock_cache(
  directory: pathlib.Path, partition: tuple[int, int] | None = None
) -> Iterator[None]:
  """Context manager that prevents other processes from writing to a cache.

  Args:
    directory: Directory of the cache.
    partition: Pair (i, n) to lock only partition i of n partitions, where i is
      zero-based. If None, the complete cache is locked.

  Raises:
    CacheError: If another process is writing to the cache or partition, or if
      writing fails.
  """
  with (
    converting_disk_errors(directory),
    file_lock.lock_directory(
      directory,
      name='.lock',
      what='token cache',
      error=errors.CacheError,
      share=partition,
    ),
  ):
    yield


@contextlib.contextmanager
def converting_disk_errors(directory: pathlib.Path):
  """Context manager that converts operating system errors to a CacheError."""
  try:
    yield
  except OSError as error:
    raise errors.CacheError(
      f'The token cache cannot be written ({error.strerror or error})',
      where=error.filename or directory,
      fix='Check the free disk space and the permissions, and run the same '
      'command again to resume, or choose a different --output.',
      status=errors.convert_os_error(error).status,
    ) from error
