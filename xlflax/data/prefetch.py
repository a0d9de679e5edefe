"""Background prefetching of batches to the devices."""

import functools
import queue
import threading
from collections.abc import Mapping

import jax
import numpy as np

from xlflax.data import loader_base

Shardings = jax.sharding.Sharding | Mapping[str, jax.sharding.Sharding]


class Prefetcher:
  """Iterator that loads batches onto the devices before they are needed.

  The first batch is the batch of `first_step`. A background thread reads rows
  and copies them to the devices while the training step runs. Each process
  reads only the rows that its devices hold.

  If an error occurs in the thread, the call of `next` that would have returned
  the batch raises this error with its traceback, and so does every later call.
  """

  def __init__(
    self,
    loader: loader_base.Loader,
    *,
    sharding: Shardings,
    first_step: int = 0,
    size: int = 2,
  ):
    """Starts the thread.

    Args:
      loader: Loader that only the background thread reads. It stays open after
        `close`.
      sharding: Sharding of the arrays of shape [B, T]: one sharding for all
        arrays, or a mapping from batch keys to shardings.
      first_step: Number of earlier batches of the dataset to skip.
      size: Number of batches to prefetch.
    """
    self._loader = loader
    self._sharding = sharding
    self._queue: queue.Queue = queue.Queue(maxsize=size)
    self._stop = threading.Event()
    self._error: BaseException | None = None
    self._thread = threading.Thread(
      target=self._work,
      args=(first_step,),
      daemon=True,
      name=f'prefetch-{loader.dataset.name}',
    )
    self._thread.start()

  def next(self) -> dict[str, jax.Array]:
    """Returns the batch for the next step, and waits for it if necessary.

    Raises:
      ValueError: If the prefetcher is closed.
      Exception: If the loader raised an exception.
    """
    if self._error is not None:
      raise self._error
    if self._stop.is_set():
      raise ValueError(
        'The prefetcher has been closed and returns no more batches.'
      )
    batch, error = self._queue.get()
    if error is not None:
      self._error = error
      raise error
    return batch

  def close(self) -> None:
    """Stops the background thread and drops all prefetched batches."""
    self._stop.set()
    while self._thread.is_alive():
      self._drain()
      self._thread.join(timeout=0.05)
    self._drain()

  def __iter__(self):
    return self

  def __next__(self) -> dict[str, jax.Array]:
    return self.next()

  def __enter__(self):
    return self

  def __exit__(self, *unused):
    self.close()

  def _drain(self):
    try:
      while True:
        self._queue.get_nowait()
    except queue.Empty:
      pass

  def _work(self, step: int):
    try:
      while not self._stop.is_set():
        self._put((device_batch(self._loader, step, self._sharding), None))
        step += 1
    except BaseException as error:  # Re-raised by `next`.
      self._put((None, error))

  def _put(self, item):
    while not self._stop.is_set():
      try:
        return self._queue.put(item, timeout=0.1)
      except queue.Full:
        continue


def device_batch(
  loader: loader_base.Loader, step: int, sharding: Shardings
) -> dict[str, jax.Array]:
  """Returns the global batch for a step, sharded over the devices.

  Only the rows that are placed on this process's devices are read.

  Args:
    loader: Loader that reads the dataset.
    step: Number of batches of the dataset that precede the batch.
    sharding: Sharding of the arrays of shape [B, T]: one sharding for all
      arrays, or a mapping from batch keys to shardings.

  Returns:
    An int32 array of shape [B, T] for each key.
  """
  spec = loader.spec
  shardings = {
    key: sharding[key] if isinstance(sharding, Mapping) else sharding
    for key in spec
  }
  spans = [
    span
    for key, value in spec.items()
    for span in _local_spans(shardings[key], value.shape)
  ]
  local_rows = _LocalRows(loader, step, spans)
  return {
    key: jax.make_array_from_callback(
      value.shape, shardings[key], functools.partial(local_rows.get, key)
    )
    for key, value in spec.items()
  }


def _local_spans(sharding, shape) -> list[tuple[int, int]]:
  """Returns (start, stop) of the rows of each device of this process."""
  indices = sharding.addressable_devices_indices_map(tuple(shape))
  return [index[0].indices(shape[0])[:2] for index in indices.values()]


class _LocalRows:
  """Rows of a batch that are stored on this process's devices.

  Each row is read only once.
  """

  def __init__(self, loader, step, spans):
    self._chunks = [
      (start, loader.rows(step, start, stop))
      for start, stop in _merge_spans(spans)
    ]

  def get(self, key: str, index) -> np.ndarray:
    """Returns a slice of an array in the global batch.

    Args:
      key: Batch key of the array.
      index: Slices of the global array, one for each dimension.
    """
    first = index[0].start or 0
    start, batch = max(
      (chunk for chunk in self._chunks if chunk[0] <= first),
      key=lambda chunk: chunk[0],
    )
    stop = None if index[0].stop is None else index[0].stop - start
    return batch[key][(slice(first - start, stop), *index[1:])]


def _merge_spans(spans) -> list[tuple[int, int]]:
  """Merges spans that overlap or are adjacent.

  For example, (4, 8), (0, 4), (12, 16) become (0, 8), (12, 16).
  """
  merged: list[tuple[int, int]] = []
  for start, stop in sorted(set(spans)):
    if merged and start <= merged[-1][1]:
      merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
    else:
      merged.append((start, stop))
  return merged
