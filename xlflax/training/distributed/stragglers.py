"""Step times of all processes, and the detection of stragglers.

The devices in a job wait for each other, so steps take equally long in all
processes. A slow process is recognized by the time during which it does not
wait for devices, because it is loading batches, accessing its disk or computing
on its CPU.
"""

import contextlib
import dataclasses
import logging
import socket
import time
from collections.abc import Callable, Iterator

import jax
import numpy as np

_HOST_NAME_BYTES = 64
# A process is a straggler if its time exceeds this multiple of the others'
# time, and exceeds it by this fraction of a step and by this many seconds.
_FACTOR = 1.5
_STEP_FRACTION = 0.1
_MIN_SECONDS = 0.02


@dataclasses.dataclass(frozen=True, kw_only=True)
class Times:
  """Mean times per step in seconds, as float arrays of shape [processes].

  Attributes:
    step: Seconds from the start of a step to the start of the next one.
    own: Seconds per step in which the process does not wait for its devices.
    loading: Seconds per step in which the process waits for batches. They are a
      part of `own`.
  """

  step: np.ndarray
  own: np.ndarray
  loading: np.ndarray

  def metrics(self) -> dict[str, float]:
    """Returns medians and maxima of the step times, and the slowest process."""
    return {
      'step_seconds_median': float(np.median(self.step)),
      'step_seconds_slowest': float(self.step.max()),
      'own_seconds_median': float(np.median(self.own)),
      'own_seconds_slowest': float(self.own.max()),
      'loading_seconds_slowest': float(self.loading.max()),
      'slowest_process': int(self.own.argmax()),
    }

  def stragglers(self) -> list[int]:
    """Returns the processes that delay the others, slowest first."""
    slow_processes = []
    for process in np.argsort(-self.own):
      median_of_others = (
        np.median(np.delete(self.own, process)) if len(self.own) > 1 else np.inf
      )
      delay = self.own[process] - median_of_others
      min_delay = max(_MIN_SECONDS, _STEP_FRACTION * np.median(self.step))
      if self.own[process] > _FACTOR * median_of_others and delay > min_delay:
        slow_processes.append(int(process))
    return slow_processes


class StepTimes:
  """Clock that measures this process's step times.

  Args:
    clock: Function that returns a monotonic time in seconds.
  """

  def __init__(self, clock: Callable[[], float] = time.perf_counter):
    self._clock = clock
    self._hosts: list[str] | None = None
    self._last_stragglers: set[int] = set()  # Stragglers of the last report.
    self._reported: set[int] = set()
    self.restart(0)

  def restart(self, step: int) -> None:
    """Restarts the clock to exclude earlier compilation or evaluation."""
    self._step, self._since = step, self._clock()
    self._waited = self._loaded = 0.0

  @contextlib.contextmanager
  def waiting(self) -> Iterator[None]:
    """Context manager that counts the time inside it as waiting for devices."""
    start = self._clock()
    yield
    self._waited += self._clock() - start

  @contextlib.contextmanager
  def loading(self) -> Iterator[None]:
    """Context manager that counts the time inside it as waiting for a batch."""
    start = self._clock()
    yield
    self._loaded += self._clock() - start

  def take(self, step: int) -> Times | None:
    """Returns the step times of all processes since the last call.

    All processes must call this method at the same step.

    Args:
      step: Number of completed steps.

    Returns:
      The times of all processes, or None if no step was finished.
    """
    num_steps, seconds = step - self._step, self._clock() - self._since
    waited, loaded = self._waited, self._loaded
    self.restart(step)
    if num_steps <= 0:
      return None
    process_times = (
      np.array([seconds, seconds - waited, loaded], np.float32) / num_steps
    )
    step_times, own_times, loading_times = _gather(process_times).T
    return Times(step=step_times, own=own_times, loading=loading_times)

  def report(self, times: Times) -> None:
    """Warns about processes that were stragglers in two consecutive reports.

    A process is reported again only after it was no straggler in two
    consecutive reports.
    """
    if self._hosts is None:
      self._hosts = gather_host_names()
    stragglers = times.stragglers()
    previous, self._last_stragglers = self._last_stragglers, set(stragglers)
    self._reported &= previous | self._last_stragglers
    unreported = [
      process for process in stragglers if process in previous - self._reported
    ]
    self._reported |= set(unreported)
    for process in unreported:
      logging.warning(
        'Process %d on %s delays the others. Without waiting for devices, it '
        'spends %.3f s per step, which includes %.3f s of waiting for batches. '
        'The median over all processes is %.3f s, and a step takes %.3f s.',
        process,
        self._hosts[process],
        times.own[process],
        times.loading[process],
        np.median(times.own),
        np.median(times.step),
      )


def _gather(values: np.ndarray) -> np.ndarray:
  """Gathers an array of shape [n] from all processes.

  Returns:
    An array of shape [processes, n] in all processes.
  """
  if jax.process_count() == 1:
    return values[None]
  from jax.experimental import multihost_utils

  return np.asarray(multihost_utils.process_allgather(values))


def gather_host_names() -> list[str]:
  """Gathers the host names of all processes. Every process must call this."""
  name = socket.gethostname().encode()[:_HOST_NAME_BYTES]
  name = name.ljust(_HOST_NAME_BYTES, b'\0')
  rows = _gather(np.frombuffer(name, np.uint8))
  return [row.tobytes().rstrip(b'\0').decode(errors='replace') for row in rows]
