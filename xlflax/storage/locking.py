"""Who may write to a directory at one time."""

import contextlib
import fcntl
import pathlib
from collections.abc import Iterator

from xlflax.foundation import errors


@contextlib.contextmanager
def alone(
  directory: pathlib.Path,
  *,
  name: str,
  what: str,
  error: type[errors.XlflaxError],
  share: tuple[int, int] | None = None,
  wait: bool = False,
) -> Iterator[None]:
  """Keeps a second writer out of a directory, which is made if need be.

  Writers of different shares do not keep each other out. The system frees what
  a killed process held.

  Args:
    directory: what is written to.
    name: of the lock file; that of a share has `-i-of-n` after it.
    what: the directory is, for the error, such as 'token cache'.
    error: raised if another process writes there, or the same share.
    share: (i, n): the i-th of n, from 0; None: all of it.
    wait: for the other process, instead of an error.
  """
  directory.mkdir(parents=True, exist_ok=True)
  with contextlib.ExitStack() as stack:
    files = [(directory / name, what)]
    if share:
      index, count = share
      own = directory / f'{name}-{index}-of-{count}'
      files.append((own, f'share {index}/{count} of a {what}'))
    for path, text in files:
      # NFS grants shared locks to readers of a file, exclusive ones to writers.
      file = stack.enter_context(path.open('a+'))
      exclusive = not share or path is not files[0][0]
      kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
      try:
        fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)
      except BlockingIOError as cause:
        raise error(
          f'Another process is writing this {text}',
          where=directory,
          fix='Wait for it, or stop it first',
          status=errors.ExitStatus.FAILURE,
        ) from cause
    yield
