"""Copies of growing files in a bucket, whose objects cannot be appended to."""

import logging
import pathlib
import threading

# Seconds between copies to a bucket, which takes one change of an object per
# second.
_COPY_EVERY = 30.0


class Mirror:
  """A thread that copies a directory's files, whenever they have grown.

  A copy that fails is tried again with the next; training goes on.

  Args:
    source: directory on disk.
    target: directory in a bucket.
    every: seconds between copies.
  """

  def __init__(
    self,
    source: pathlib.Path,
    target: pathlib.Path,
    *,
    every: float = _COPY_EVERY,
  ):
    self._source, self._target, self._every = source, target, every
    self._copied: dict[pathlib.Path, int] = {}
    self._wake = threading.Event()
    self._closed = False
    self._thread = threading.Thread(
      target=self._run, name='xlflax mirror', daemon=True
    )
    self._thread.start()

  def hasten(self) -> None:
    """Copies now, in the background."""
    self._wake.set()

  def close(self) -> None:
    """Copies what is left and ends the thread."""
    self._closed = True
    self._wake.set()
    self._thread.join()

  def _run(self) -> None:
    while True:
      self._wake.wait(self._every)
      self._wake.clear()
      last = self._closed
      self._copy()
      if last:
        return

  def _copy(self) -> None:
    for path in sorted(self._source.rglob('*')):
      if not path.is_file() or path.stat().st_size == self._copied.get(path):
        continue
      target = self._target.joinpath(*path.relative_to(self._source).parts)
      try:
        content = path.read_bytes()
        target.write_bytes(content)
      except Exception as error:
        logging.warning(
          '%s could not be written (%s: %s).',
          target,
          type(error).__name__,
          error,
        )
        continue
      self._copied[path] = len(content)
