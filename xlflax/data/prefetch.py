"""Batches made ready on the devices in the background; no TensorFlow."""

import functools
import queue
import threading
from collections.abc import Mapping

import jax
import numpy as np

from xlflax.data import loader_base

Shardings = jax.sharding.Sharding | Mapping[str, jax.sharding.Sharding]


class Prefetcher:
  """Yields the device batches of a loader's steps first_step, first_step + 1, …

  A thread reads rows and copies them to the devices while the step runs. Each
  process reads the rows that its devices hold, and no others.

  An error in the thread is raised, with its traceback, by the `next` that
  would have returned the batch, and by each one after it.
  """

  def __init__(
    self,
    loader: loader_base.Loader,
    *,
    sharding: Shardings,
    first_step: int = 0,
    size: int = 2,
  ):
    """Args:
    loader: read by the thread only; stays open after `close`.
    sharding: of each array [B, T] of the batch; one for all, or by key.
    first_step: the stream's step of the first batch.
    size: batches kept ready.
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
      name=f'prefetch-{loader.stream.name}',
    )
    self._thread.start()

  def next(self) -> dict[str, jax.Array]:
    """The batch of the next step; waits for it.

    Raises:
      ValueError: the prefetcher is closed.
      Exception: whatever the loader raised.
    """
    if self._error is not None:
      raise self._error
    if self._stop.is_set():
      raise ValueError('The prefetcher is closed.')
    batch, error = self._queue.get()
    if error is not None:
      self._error = error
      raise error
    return batch

  def close(self) -> None:
    """Stops the thread and waits for its end; batches made are dropped."""
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
    except BaseException as error:  # Raised again by `next`.
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
  """The global batch of a step, as arrays over the devices.

  Args:
    loader: gives the rows.
    step: the stream's.
    sharding: of each array [B, T]; one for all, or by key.

  Returns:
    int32 [B, T] for each key; of rows on other processes' devices nothing is
    read.
  """
  spec = loader.spec
  shardings = {
    key: sharding[key] if isinstance(sharding, Mapping) else sharding
    for key in spec
  }
  held = _Rows(
    loader,
    step,
    [
      span
      for key, value in spec.items()
      for span in _spans(shardings[key], value.shape)
    ],
  )
  return {
    key: jax.make_array_from_callback(
      value.shape, shardings[key], functools.partial(held.get, key)
    )
    for key, value in spec.items()
  }


def _spans(sharding, shape) -> list[tuple[int, int]]:
  """First row and end of what each device of this process holds."""
  indices = sharding.addressable_devices_indices_map(tuple(shape))
  return [index[0].indices(shape[0])[:2] for index in indices.values()]


class _Rows:
  """The rows of a step that this process needs, each read once."""

  def __init__(self, loader, step, spans):
    self._parts = [
      (start, loader.rows(step, start, stop)) for start, stop in _union(spans)
    ]

  def get(self, key: str, index) -> np.ndarray:
    """Part of one array, where `index` is of the global array."""
    first = index[0].start or 0
    start, batch = max(
      (part for part in self._parts if part[0] <= first),
      key=lambda part: part[0],
    )
    stop = None if index[0].stop is None else index[0].stop - start
    return batch[key][(slice(first - start, stop), *index[1:])]


def _union(spans) -> list[tuple[int, int]]:
  """Spans without overlap or adjacency: (4, 8), (0, 4), (12, 16) become
  (0, 8), (12, 16)."""
  out: list[tuple[int, int]] = []
  for start, stop in sorted(set(spans)):
    if out and start <= out[-1][1]:
      out[-1] = (out[-1][0], max(stop, out[-1][1]))
    else:
      out.append((start, stop))
  return out
