"""Runner that writes shards in several processes on one machine."""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from xlflax.data.cache import shard_writer, write_plan
from xlflax.data.plain_text import text_tasks
from xlflax.utils import process_pool

# Counting shards that takes longer than this number of seconds is followed by
# a pause of `_PAUSE_FACTOR` times its duration.
_MAX_COUNT_SECONDS = 0.02
_PAUSE_FACTOR = 20


@dataclasses.dataclass(frozen=True)
class Progress:
  """Progress of writing a cache.

  Attributes:
    done: Number of shards written so far.
    total: Total number of shards. It is an estimate if the size of a source is
      unknown.
    message: Progress message that names the tasks that are being written.
  """

  done: int
  total: int
  message: str


Report = Callable[[Progress], None]


def write_jobs(
  jobs: Sequence[write_plan.Job],
  tasks: text_tasks.Tasks,
  *,
  open_tasks: text_tasks.Open,
  vocabulary,
  num_processes: int,
  report: Report,
) -> None:
  """Writes the missing shards of all jobs.

  Args:
    jobs: Jobs to write. A job consists of all shards for one split of a task.
    tasks: Tasks opened in this process, including the tasks of the jobs.
    open_tasks: Function that opens the tasks in a worker process.
    vocabulary: Vocabulary that encodes the text (`base_vocabulary.Vocabulary`).
    num_processes: Number of processes that tokenize text. If there is only a
      single `write_plan.Unit` to write, it is written by one process with this
      number of threads.
    report: Function that is called periodically with the progress.
  """
  units = [unit for job in jobs for unit in job.units(tasks, num_processes)]
  meter = _ProgressMeter(jobs, tasks, report)
  if num_processes != 1 and len(units) > 1:
    num_processes = min(num_processes, len(units))
    _write_in_workers(
      units, num_processes, meter, open_tasks=open_tasks, vocabulary=vocabulary
    )
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
  units: Sequence[write_plan.Unit],
  num_processes: int,
  meter: '_ProgressMeter',
  *,
  open_tasks: text_tasks.Open,
  vocabulary,
) -> None:
  """Writes ranges of shards (units) in worker processes."""
  stop = multiprocessing.get_context('spawn').Event()
  with process_pool.start_process_pool(
    num_processes, _start_worker, open_tasks, vocabulary, stop
  ) as pool:
    pending = {pool.submit(_write_unit_in_worker, unit) for unit in units}
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
      stop.set()  # The other workers stop after their current shard.
      _stop_events.append(stop)
      pool.shutdown(wait=False, cancel_futures=True)
      raise


# References to events that workers may still need while they start.
_stop_events: list[Any] = []
# Arguments that this worker process was started with.
_worker: dict[str, Any] = {}


def _start_worker(open_tasks: text_tasks.Open, vocabulary, stop) -> None:
  """Initializes a worker process with the data that its units share."""
  _worker.update(
    open_tasks=open_tasks, vocabulary=vocabulary, stop=stop, parent=os.getppid()
  )


@functools.cache
def _open_worker_tasks() -> text_tasks.Tasks:
  """Opens the tasks of a worker.

  A worker opens the tasks when it receives its first unit rather than when it
  starts. Errors are therefore raised in the parent process and do not break the
  pool.
  """
  return _worker['open_tasks']()


def _write_unit_in_worker(unit: write_plan.Unit) -> None:
  """Writes a range of shards (unit), unless the parent process has stopped."""

  def stopped():
    return _worker['stop'].is_set() or os.getppid() != _worker['parent']

  shard_writer.write_unit(
    unit, _open_worker_tasks(), _worker['vocabulary'], stopped=stopped
  )


class _ProgressMeter:
  """Progress meter that counts the files of the shards written so far."""

  def __init__(self, jobs, tasks, report: Report):
    self._jobs = jobs
    self._report = report
    self._next_update = 0.0
    self._total = sum(
      job.expected_shards(part, tasks) for job in jobs for part in job.parts
    )

  def update(self) -> None:
    """Reports the progress. If counting shards is slow, reports less often."""
    if time.monotonic() < self._next_update:
      return
    start = time.monotonic()
    counts = {job.task: len(job.recorded_shards()) for job in self._jobs}
    num_done = sum(counts.values())
    started_tasks = [task for task, count in counts.items() if count]
    message = ', '.join(started_tasks[-2:]) or 'reading'
    self._report(Progress(num_done, max(self._total, num_done), message))
    duration = time.monotonic() - start
    if duration > _MAX_COUNT_SECONDS:
      self._next_update = time.monotonic() + _PAUSE_FACTOR * duration
