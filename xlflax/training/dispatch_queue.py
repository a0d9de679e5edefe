"""Limits the number of steps that are dispatched and not finished.

JAX returns from a step before the device has finished it, and on CPUs allows 32
dispatched steps. Saving and stopping wait for all of them. Few steps are
therefore dispatched ahead if a step takes long, and enough that no device idles.
"""

import collections
import time
from collections.abc import Callable
from typing import Any

import jax

_LEAST, _MOST = 2, 32
_SECONDS = 1.0  # of work ahead, where that is more than the least


class DispatchQueue:
  """Steps that were dispatched to the devices and are not finished.

  Attributes:
    finished: Last step that the devices are known to have finished.

  Args:
    on_finished: Function called with the number of a finished step.
    clock: Function that returns seconds.
  """

  def __init__(
    self,
    on_finished: Callable[[int], None],
    clock: Callable[[], float] = time.perf_counter,
  ):
    self._on_finished, self._clock = on_finished, clock
    self._steps: collections.deque[tuple[int, Any]] = collections.deque()
    self._seconds: float | None = None  # of a step
    self._since = clock()
    self.finished = 0

  @property
  def limit(self) -> int:
    """Maximum number of dispatched steps."""
    if not self._seconds:
      return _LEAST
    return max(_LEAST, min(_MOST, int(_SECONDS / self._seconds)))

  def add(self, step: int, output: Any) -> None:
    """Adds a step that was dispatched.

    Args:
      step: Number of the step.
      output: Arrays that are ready when it is finished.
    """
    if not self._steps:
      self._since = self._clock()
    self._steps.append((step, output))
    self._poll()

  def make_room(self) -> None:
    """Waits until another step may be dispatched."""
    self._poll()
    while len(self._steps) >= self.limit:
      self._wait()

  def finish(self) -> None:
    """Waits until all steps are finished."""
    while self._steps:
      self._wait()

  def _wait(self) -> None:
    jax.block_until_ready(self._steps[0][1])
    self._poll()

  def _poll(self) -> None:
    """Removes finished steps, and estimates the time of a step."""
    count = 0
    while self._steps and _is_ready(self._steps[0][1]):
      self.finished, _ = self._steps.popleft()
      count += 1
    if count:
      current_time = self._clock()
      self._seconds, self._since = (
        (current_time - self._since) / count,
        current_time,
      )
      self._on_finished(self.finished)


def _is_ready(output: Any) -> bool:
  return all(leaf.is_ready() for leaf in jax.tree.leaves(output))
