"""Writers that may be slow or fail, behind a thread: training never waits."""

import contextlib
import logging
import queue
import threading
import time

from xlflax.training.metric_writers import metric_writer

_WAITING = 1000  # reports; what comes beyond them is dropped
_CLOSE_WITHIN = 60.0  # seconds


class Background:
  """Passes metrics on in the background; a failure is a warning, no more.

  Args:
    writer: what may be slow.
    name: for messages.
    close_within: seconds that the last reports may take.
  """

  def __init__(
    self,
    writer: metric_writer.MetricWriter,
    name: str,
    *,
    close_within: float = _CLOSE_WITHIN,
  ):
    self._writer, self._name = writer, name
    self._close_within = close_within
    self._queue: queue.Queue = queue.Queue(_WAITING)
    self._lost = 0
    self._thread = threading.Thread(
      target=self._run, name=f'xlflax {name}', daemon=True
    )
    self._thread.start()

  def write(self, step: int, metrics: metric_writer.Metrics) -> None:
    """Hands the metrics of a step over."""
    try:
      self._queue.put_nowait((step, metrics))
    except queue.Full:
      self._lost += 1

  def close(self) -> None:
    """Waits until all is written, for a minute at most."""
    end = time.monotonic() + self._close_within
    with contextlib.suppress(queue.Full):
      self._queue.put(None, timeout=self._close_within)
    self._thread.join(max(end - time.monotonic(), 0))
    if self._thread.is_alive():
      logging.warning(
        '%s does not answer; the last metrics are in metrics.jsonl only.',
        self._name,
      )
    elif self._lost:
      logging.warning(
        '%s lacks %d reports; metrics.jsonl has them.', self._name, self._lost
      )

  def _run(self) -> None:
    while (item := self._queue.get()) is not None:
      try:
        self._writer.write(*item)
      except Exception as error:
        self._lost += 1
        if self._lost == 1:
          self._warn(error)
    try:
      self._writer.close()
    except Exception as error:
      self._warn(error)

  def _warn(self, error: Exception) -> None:
    logging.warning(
      '%s could not be written (%s: %s); training goes on.',
      self._name,
      type(error).__name__,
      error,
    )
