"""How long each process takes for a step, and which one holds up the others.

The devices of a job wait for each other, so that the steps of all processes
take equally long. What tells a slow process from the others is the time that
it does not spend waiting for devices: for its batches, its disk, its CPU.
"""

import contextlib
import dataclasses
import logging
import socket
import time
from collections.abc import Callable, Iterator

import jax
import numpy as np

_NAME = 64  # bytes of a host's name
_FACTOR = 1.5  # of the others' time, and
_SHARE = 0.1  # of a step more than they take, and
_LEAST = 0.02  # seconds of a step: then a process is a straggler


@dataclasses.dataclass(frozen=True, kw_only=True)
class Times:
  """Mean seconds of a step, by process; float arrays `[processes]`.

  Attributes:
    step: from the beginning of a step to that of the next.
    own: what of it the process did not wait for devices.
    loading: what of that it waited for batches.
  """

  step: np.ndarray
  own: np.ndarray
  loading: np.ndarray

  def metrics(self) -> dict[str, float]:
    """Median and slowest over the processes, and which is the slowest."""
    return {
      'step_seconds_median': float(np.median(self.step)),
      'step_seconds_slowest': float(self.step.max()),
      'own_seconds_median': float(np.median(self.own)),
      'own_seconds_slowest': float(self.own.max()),
      'loading_seconds_slowest': float(self.loading.max()),
      'slowest_process': int(self.own.argmax()),
    }

  def stragglers(self) -> list[int]:
    """Processes that the others wait for, the slowest first."""
    slow_processes = []
    for process in np.argsort(-self.own):
      median_of_others = (
        np.median(np.delete(self.own, process)) if len(self.own) > 1 else np.inf
      )
      late = self.own[process] - median_of_others
      min_delay = max(_LEAST, _SHARE * np.median(self.step))
      if self.own[process] > _FACTOR * median_of_others and late > min_delay:
        slow_processes.append(int(process))
    return slow_processes


class StepTimes:
  """A clock of this process's steps.

  Args:
    clock: seconds, rising.
  """

  def __init__(self, clock: Callable[[], float] = time.perf_counter):
    self._clock = clock
    self._hosts: list[str] | None = None
    self._late: set[int] = set()  # at the last report
    self._named: set[int] = set()
    self.restart(0)

  def restart(self, step: int) -> None:
    """Leaves out what happened until now (compilation, evaluation)."""
    self._step, self._since = step, self._clock()
    self._waited = self._loaded = 0.0

  @contextlib.contextmanager
  def waiting(self) -> Iterator[None]:
    """Context in which the process waits for devices."""
    start = self._clock()
    yield
    self._waited += self._clock() - start

  @contextlib.contextmanager
  def loading(self) -> Iterator[None]:
    """Context in which the process waits for a batch."""
    start = self._clock()
    yield
    self._loaded += self._clock() - start

  def take(self, step: int) -> Times | None:
    """The times since the last call; all processes call it at one step.

    Args:
      step: finished steps.

    Returns:
      The times of all processes; None where no step was taken.
    """
    steps, seconds = step - self._step, self._clock() - self._since
    waited, loaded = self._waited, self._loaded
    self.restart(step)
    if steps <= 0:
      return None
    process_times = (
      np.array([seconds, seconds - waited, loaded], np.float32) / steps
    )
    return Times(
      **dict(
        zip(('step', 'own', 'loading'), _gathered(process_times).T, strict=True)
      )
    )

  def report(self, times: Times) -> None:
    """Warns of a straggler of two reports in a row, once until it is none."""
    if self._hosts is None:
      self._hosts = gather_host_names()
    stragglers = times.stragglers()
    before, self._late = self._late, set(stragglers)
    self._named &= before | self._late
    new = [p for p in stragglers if p in before - self._named]
    self._named |= set(new)
    for process in new:
      logging.warning(
        'Process %d on %s holds up the others: %.3f s of a step of its own, '
        '%.3f s of it waiting for batches; the median is %.3f s, a step '
        'takes %.3f s.',
        process,
        self._hosts[process],
        times.own[process],
        times.loading[process],
        np.median(times.own),
        np.median(times.step),
      )


def _gathered(values: np.ndarray) -> np.ndarray:
  """`[n]` of each process -> `[processes, n]`, on all of them."""
  if jax.process_count() == 1:
    return values[None]
  from jax.experimental import multihost_utils

  return np.asarray(multihost_utils.process_allgather(values))


def gather_host_names() -> list[str]:
  """Names of all processes' hosts; all processes call it together."""
  name = socket.gethostname().encode()[:_NAME].ljust(_NAME, b'\0')
  rows = _gathered(np.frombuffer(name, np.uint8))
  return [row.tobytes().rstrip(b'\0').decode(errors='replace') for row in rows]
