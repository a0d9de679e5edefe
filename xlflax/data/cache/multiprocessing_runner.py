"""Writes shards in processes of this machine, and says how far that is."""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from xlflax.data.cache import shard_writer
from xlflax.data.cache import write_plan as cache_jobs
from xlflax.data.plain_text import text_tasks
from xlflax.utils import process_pool

_SHORT = 0.02  # seconds that counting shards may take each time
_PAUSES = 20  # times what it took, where that is more


@dataclasses.dataclass(frozen=True)
class Progress:
  """How far the writing is; `total` is an estimate for unsized sources."""

  done: int
  total: int
  message: str


Report = Callable[[Progress], None]


def write_jobs(
  jobs: Sequence[cache_jobs.Job],
  tasks: text_tasks.Tasks,
  *,
  open_tasks: text_tasks.Open,
  vocabulary,
  num_processes: int,
  report: Report,
) -> None:
  """Writes the shards of jobs that are missing.

  Args:
    jobs: what to write.
    tasks: those of the jobs among them, opened in this process.
    open_tasks: opens them in another one.
    vocabulary: a `base_vocabulary.Vocabulary`.
    num_processes: that tokenise; threads, where there is a single unit.
    report: called now and then.
  """
  units = [unit for job in jobs for unit in job.units(tasks, num_processes)]
  meter = _Meter(jobs, tasks, report)
  if num_processes != 1 and len(units) > 1:
    num_processes = min(num_processes, len(units))
    _write_in_workers(units, num_processes, meter, (open_tasks, vocabulary))
    return
  for unit in units:
    shard_writer.write_unit(
      unit,
      tasks,
      vocabulary,
      num_threads=num_processes,
      after_shard=meter.update,
    )
    meter.update()


def _write_in_workers(
  units: Sequence[cache_jobs.Unit], num_processes: int, meter, given
) -> None:
  """Writes units in processes that are started with what is `given`."""
  stop = multiprocessing.get_context('spawn').Event()
  with process_pool.start_process_pool(
    num_processes, _start_worker, *given, stop
  ) as pool:
    pending = {pool.submit(_work, unit) for unit in units}
    try:
      while pending:
        done, pending = concurrent.futures.wait(
          pending, timeout=1, return_when=concurrent.futures.FIRST_COMPLETED
        )
        meter.update()
        for future in done:
          process_pool.get_result(future)
          meter.update()
    except BaseException:
      stop.set()  # The others end after their present shard.
      _stops.append(stop)
      pool.shutdown(wait=False, cancel_futures=True)
      raise


_stops: list[Any] = []  # Kept for workers that are still starting.
_worker: dict[str, Any] = {}  # What a worker process was started with.


def _start_worker(open_tasks: text_tasks.Open, vocabulary, stop) -> None:
  _worker.update(
    open_tasks=open_tasks, vocabulary=vocabulary, stop=stop, parent=os.getppid()
  )


@functools.cache
def _worker_tasks() -> text_tasks.Tasks:
  """Opened with the first unit: the parent hears of its errors, not the pool."""
  return _worker['open_tasks']()


def _work(unit: cache_jobs.Unit) -> None:
  def stopped():
    return _worker['stop'].is_set() or os.getppid() != _worker['parent']

  shard_writer.write_unit(
    unit, _worker_tasks(), _worker['vocabulary'], stopped=stopped
  )


class _Meter:
  """Reports how many shards are done, by counting files."""

  def __init__(self, jobs, tasks, report: Report):
    self._jobs, self._report = jobs, report
    self._next = 0.0
    self._total = sum(
      job.expected_shards(part, tasks) for job in jobs for part in job.parts
    )

  def update(self) -> None:
    """Counting many shards takes time, and is not done after each of them."""
    if time.monotonic() < self._next:
      return
    start = time.monotonic()
    counts = {job.task: len(job.noted()) for job in self._jobs}
    done = sum(counts.values())
    names = [name for name, count in counts.items() if count]
    message = ', '.join(names[-2:]) or 'reading'
    self._report(Progress(done, max(self._total, done), message))
    took = time.monotonic() - start
    if took > _SHORT:
      self._next = time.monotonic() + _PAUSES * took
