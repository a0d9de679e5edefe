"""Limit on the number of steps that are dispatched in advance.

JAX returns from a step before the device has finished it. On CPUs, it allows 32
dispatched steps. Saving and stopping wait for all of them. Therefore, only few
steps are dispatched ahead if a step takes long, but enough that no device
idles.
"""

import collections
import time
from collections.abc import Callable
from typing import Any

import jax

_MIN_STEPS, _MAX_STEPS = 2, 32
# Duration of the dispatched steps, unless it is less than the minimum.
_TARGET_SECONDS = 1.0


class DispatchQueue:
  """Queue of dispatched steps that the devices have not finished.

  Attributes:
    finished: Last step that the devices are known to have finished.

  Args:
    on_finished: Function called with the number of a finished step.
    clock: Function that returns the current time in seconds.
  """

  def __init__(
    self,
    on_finished: Callable[[int], None],
    clock: Callable[[], float] = time.perf_counter,
  ):
    self._on_finished, self._clock = on_finished, clock
    self._steps: collections.deque[tuple[int, Any]] = collections.deque()
    self._seconds_per_step: float | None = None
    self._last_finish_time = clock()
    self.finished = 0

  @property
  def limit(self) -> int:
    """Maximum number of dispatched steps that are not finished."""
    if not self._seconds_per_step:
      return _MIN_STEPS
    num_steps = int(_TARGET_SECONDS / self._seconds_per_step)
    return max(_MIN_STEPS, min(_MAX_STEPS, num_steps))

  def add(self, step: int, output: Any) -> None:
    """Adds a dispatched step to the queue.

    Args:
      step: Number of the dispatched step.
      output: Arrays that are ready when the step is finished.
    """
    if not self._steps:
      self._last_finish_time = self._clock()
    self._steps.append((step, output))
    self._poll()

  def make_room(self) -> None:
    """Waits until another step may be dispatched."""
    self._poll()
    while len(self._steps) >= self.limit:
      self._wait()

  def finish(self) -> None:
    """Waits until all dispatched steps are finished."""
    while self._steps:
      self._wait()

  def _wait(self) -> None:
    jax.block_until_ready(self._steps[0][1])
    self._poll()

  def _poll(self) -> None:
    """Removes finished steps and estimates the duration of a step."""
    count = 0
    while self._steps and _is_ready(self._steps[0][1]):
      self.finished, _ = self._steps.popleft()
      count += 1
    if count:
      current_time = self._clock()
      elapsed = current_time - self._last_finish_time
      self._seconds_per_step = elapsed / count
      self._last_finish_time = current_time
      self._on_finished(self.finished)


def _is_ready(output: Any) -> bool:
  """Returns whether all arrays of an output are computed."""
  return all(leaf.is_ready() for leaf in jax.tree.leaves(output))
