"""Asynchronous metric writer, which does not block training."""

import contextlib
import logging
import queue
import threading
import time

from xlflax.training.metric_writers import metric_writer

_MAX_PENDING_REPORTS = 1000  # Further reports are dropped.
_CLOSE_TIMEOUT_SECONDS = 60.0


class Background:
  """Metric writer that passes metrics to another writer in a background thread.

  A failure of the writer is logged as a warning. Training continues.

  Args:
    writer: Writer that may be slow or fail.
    name: Name of the writer, for messages.
    close_within: Maximum time in seconds for writing the pending reports when
      the writer is closed.
  """

  def __init__(
    self,
    writer: metric_writer.MetricWriter,
    name: str,
    *,
    close_within: float = _CLOSE_TIMEOUT_SECONDS,
  ):
    self._writer, self._name = writer, name
    self._close_within = close_within
    self._queue: queue.Queue = queue.Queue(_MAX_PENDING_REPORTS)
    self._num_lost = 0
    self._thread = threading.Thread(
      target=self._run, name=f'xlflax {name}', daemon=True
    )
    self._thread.start()

  def write(self, step: int, metrics: metric_writer.Metrics) -> None:
    """Adds a step's metrics to the queue of the background thread."""
    try:
      self._queue.put_nowait((step, metrics))
    except queue.Full:
      self._num_lost += 1

  def close(self) -> None:
    """Waits until all metrics are written or the timeout is exceeded."""
    deadline = time.monotonic() + self._close_within
    with contextlib.suppress(queue.Full):
      self._queue.put(None, timeout=self._close_within)
    self._thread.join(max(deadline - time.monotonic(), 0))
    if self._thread.is_alive():
      logging.warning(
        '%s does not respond. The last metrics are only in metrics.jsonl.',
        self._name,
      )
    elif self._num_lost:
      logging.warning(
        '%d reports could not be written to %s. They are in metrics.jsonl.',
        self._num_lost,
        self._name,
      )

  def _run(self) -> None:
    while (item := self._queue.get()) is not None:
      try:
        self._writer.write(*item)
      except Exception as error:
        self._num_lost += 1
        if self._num_lost == 1:
          self._warn(error)
    try:
      self._writer.close()
    except Exception as error:
      self._warn(error)

  def _warn(self, error: Exception) -> None:
    logging.warning(
      'Writing metrics to %s failed (%s: %s). Training continues.',
      self._name,
      type(error).__name__,
      error,
    )
