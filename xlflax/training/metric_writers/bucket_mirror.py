"""Periodic copying of growing files to buckets.

Objects in buckets do not support appends, so that complete files are copied.
"""

import logging
import pathlib
import threading

# A bucket accepts at most one change of an object per second.
_COPY_INTERVAL_SECONDS = 30.0


class Mirror:
  """Thread that copies a directory's files whenever they have grown.

  If a copy fails, training continues and the next copy includes the files.

  Args:
    source: Local directory whose files are copied.
    target: Directory in a bucket to which files are copied.
    every: Interval in seconds at which the files are copied.
  """

  def __init__(
    self,
    source: pathlib.Path,
    target: pathlib.Path,
    *,
    every: float = _COPY_INTERVAL_SECONDS,
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
    """Starts to copy the files now instead of at the end of the interval.

    The copy runs in the background.
    """
    self._wake.set()

  def close(self) -> None:
    """Copies files that have grown since the last copy, and ends the thread."""
    self._closed = True
    self._wake.set()
    self._thread.join()

  def _run(self) -> None:
    while True:
      self._wake.wait(self._every)
      self._wake.clear()
      is_last = self._closed
      self._copy()
      if is_last:
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
          'Writing %s failed (%s: %s).', target, type(error).__name__, error
        )
        continue
      self._copied[path] = len(content)
