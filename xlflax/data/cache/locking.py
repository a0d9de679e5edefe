"""Who may write to a token cache at one time; what a full disk is told as."""

import contextlib
import fcntl
import pathlib

from xlflax import errors


@contextlib.contextmanager
def locked(directory: pathlib.Path, share: tuple[int, int] | None = None):
  """Keeps a second writer out; freed by the system when this one ends.

  Writers of different shares do not keep each other out.
  """
  with disk_errors(directory), contextlib.ExitStack() as stack:
    directory.mkdir(parents=True, exist_ok=True)
    _lock(stack, directory, '.lock', 'token cache', exclusive=not share)
    if share:
      index, count = share
      name = f'.lock-{index}-of-{count}'
      _lock(stack, directory, name, f'share {index}/{count} of a token cache')
    yield


def _lock(stack, directory, name: str, what: str, exclusive=True) -> None:
  file = stack.enter_context((directory / name).open('a+'))
  kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
  try:
    fcntl.flock(file, kind | fcntl.LOCK_NB)
  except BlockingIOError as error:
    raise errors.CacheError(
      f'Another process is writing this {what}',
      where=directory,
      fix='Wait for it, or stop it first',
      status=errors.ExitStatus.FAILURE,
    ) from error


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
