"""One writer of a token cache at a time; what a full disk is told as."""

import contextlib
import pathlib
from collections.abc import Iterator

from xlflax.storage import file_lock
from xlflax.utils import errors


@contextlib.contextmanager
def lock_cache(
  directory: pathlib.Path, share: tuple[int, int] | None = None
) -> Iterator[None]:
  """See `file_lock.lock_directory`; with `disk_errors`."""
  with (
    disk_errors(directory),
    file_lock.lock_directory(
      directory,
      name='.lock',
      what='token cache',
      error=errors.CacheError,
      share=share,
    ),
  ):
    yield


@contextlib.contextmanager
def disk_errors(directory: pathlib.Path):
  """What the operating system refuses becomes a CacheError."""
  try:
    yield
  except OSError as error:
    raise errors.CacheError(
      f'The token cache cannot be written ({error.strerror or error})',
      where=error.filename or directory,
      fix='Free some space or choose another --output; the same command '
      'goes on where it stopped',
      status=errors.of_os_error(error).status,
    ) from error
