"""Who may write a prepared corpus at one time."""

import contextlib
import fcntl
import pathlib
from collections.abc import Iterator

from xlflax import errors


@contextlib.contextmanager
def alone(
  output: pathlib.Path, share: tuple[int, int] | None = None
) -> Iterator[None]:
  """Keeps a second writer out of a directory, which is made if need be.

  Writers of different shares do not keep each other out. The system frees what
  a killed process held.

  Raises:
    CorpusError: another process writes there, or the same share.
  """
  output.mkdir(parents=True, exist_ok=True)
  with contextlib.ExitStack() as stack:
    _lock(stack, output / '.prepared.lock', 'corpus', exclusive=not share)
    if share:
      index, count = share
      name = f'.prepared-{index}-of-{count}.lock'
      _lock(stack, output / name, f"corpus's share {index}/{count}")
    yield


def _lock(stack, path: pathlib.Path, what: str, *, exclusive=True) -> None:
  # NFS grants shared locks to readers of a file, exclusive ones to writers.
  file = stack.enter_context(path.open('a+'))
  kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
  try:
    fcntl.flock(file, kind | fcntl.LOCK_NB)
  except BlockingIOError as error:
    raise errors.CorpusError(
      f'Another process is preparing this {what}',
      where=str(path.parent),
      fix='wait for it, or stop it first',
      status=errors.ExitStatus.FAILURE,
    ) from error
