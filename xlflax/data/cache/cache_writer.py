"""Writes token caches: resumable after a kill, parallel over processes.

Tasks are divided into shards (`parts`); a shard appears in one rename. A
task whose shards are all there is sealed (`sealing`). Whoever writes the
shards, in whatever order, with whatever interruptions: the files are the same
byte for byte. `write_cache` does it all; `write_share` writes a share of the
shards on one of several machines, and `finish_cache` seals what they have written.
"""

import dataclasses
import itertools
import pathlib
import shutil
from collections.abc import Callable, Sequence
from typing import Any

from xlflax.data.cache import (
  cache_format,
  finalization,
  multiprocessing_runner,
  shard_writer,
  staleness,
  write_lock,
)
from xlflax.data.cache import cache_metadata as cache_header
from xlflax.data.cache import write_plan as cache_jobs
from xlflax.data.cache.staleness import Changed
from xlflax.data.plain_text import text_tasks
from xlflax.storage import checksums, paths
from xlflax.utils import validation

SHARD_SIZE = 1 << 26


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
  """What is to be in a cache.

  Attributes:
    directory: of the cache; other mixtures that are in it stay.
    mixtures: names of mixtures or tasks.
    splits: tasks that lack one are left out of it.
    vocabulary: a `base_vocabulary.Vocabulary`.
    open_tasks: opens the tasks; called once in each process.
    shard_size: bytes of text in a shard.
    changed: what becomes of tasks whose text has changed.
  """

  directory: pathlib.Path
  mixtures: Sequence[str]
  vocabulary: Any
  open_tasks: text_tasks.Open
  splits: Sequence[str] = ('train',)
  shard_size: validation.NumBytes = SHARD_SIZE
  changed: Changed = Changed.REFUSE

  def __post_init__(self):
    directory = paths.to_local_path(
      self.directory, where='directory of the cache'
    )
    object.__setattr__(self, 'directory', directory)

  def jobs(self, tasks: text_tasks.Tasks) -> list[cache_jobs.Job]:
    """One for each task and split, by these."""
    return cache_jobs.list_jobs(
      tasks,
      self.directory,
      self.mixtures,
      self.splits,
      self.vocabulary,
      shard_size=self.shard_size,
    )

  def members(self, tasks: text_tasks.Tasks) -> staleness.Members:
    """The tasks of each mixture and split, by these."""
    return {
      (mixture, split): set(tasks.names(mixture, split=split))
      for mixture in self.mixtures
      for split in self.splits
    }


# Writes units somewhere else, such as on Apache Beam.
Runner = Callable[[Plan, Sequence[cache_jobs.Unit]], None]


@validation.validate_call
def write_cache(
  plan: Plan,
  *,
  num_processes: validation.PositiveInt = 1,
  runner: Runner | None = None,
  report: multiprocessing_runner.Report = lambda progress: None,
) -> list[cache_format.TaskMeta]:
  """Writes the tasks of mixtures, or what is missing of them.

  Args:
    plan: what to write.
    num_processes: that tokenise.
    runner: writes the shards; None: processes of this machine do.
    report: called now and then.

  Returns:
    What each task of the mixtures says of itself, by task and split.

  Raises:
    CacheError: the directory holds other content, another process writes to
      it, or the disk is full.
    CorpusError: unknown mixture or malformed text (file:line).
  """
  tasks = plan.open_tasks()
  with write_lock.lock_cache(plan.directory):
    jobs = plan.jobs(tasks)
    header = _open_header(plan, tasks, jobs)
    if plan.changed is Changed.REPLACE:  # what steps do is known by names alone
      for job in jobs:
        if staleness.is_sealed(job, header):
          shutil.rmtree(job.directory)
      jobs = plan.jobs(tasks)
    missing = [job for job in jobs if not staleness.is_sealed(job, header)]
    if runner is None:
      multiprocessing_runner.write_jobs(
        missing,
        tasks,
        open_tasks=plan.open_tasks,
        vocabulary=plan.vocabulary,
        num_processes=num_processes,
        report=report,
      )
    else:
      runner(plan, [unit for job in missing for unit in job.all_units(1)])
    return _seal(header, plan, tasks, jobs)


@validation.validate_call
def write_share(
  plan: Plan,
  share: tuple[int, int],
  *,
  report: multiprocessing_runner.Report = lambda progress: None,
) -> int:
  """Writes a share of the shards, beside processes that write the others.

  Args:
    plan: the same for all of them.
    share: (i, n): the i-th share of n, from 0.
    report: called now and then.

  Returns:
    Units of the share: shards, or files that are read as a whole.

  Raises:
    CacheError: as of `write_cache`; or another process writes this share.
  """
  tasks = plan.open_tasks()
  with write_lock.lock_cache(plan.directory, share):
    jobs = plan.jobs(tasks)
    _open_header(plan, tasks, jobs, sharing=True)
    units = share_of(jobs, share)
    numbers = itertools.count(1)
    for unit in units:

      def after_shard(task=unit.job.task):
        done = next(numbers)
        report(
          multiprocessing_runner.Progress(done, max(done, len(units)), task)
        )

      shard_writer.write_unit(
        unit, tasks, plan.vocabulary, after_shard=after_shard
      )
    return len(units)


@validation.validate_call
def finish_cache(plan: Plan) -> list[cache_format.TaskMeta]:
  """Checks that all shards are there, and seals the tasks.

  Raises:
    CacheError: some are missing, or are of text that has changed since.
  """
  tasks = plan.open_tasks()
  with write_lock.lock_cache(plan.directory):
    jobs = plan.jobs(tasks)
    return _seal(_open_header(plan, tasks, jobs), plan, tasks, jobs)


def share_of(
  jobs: Sequence[cache_jobs.Job], share: tuple[int, int]
) -> list[cache_jobs.Unit]:
  """The units of the i-th share of n; equal shares wherever it is asked."""
  index, count = share
  units = [unit for job in jobs for unit in job.all_units(count)]
  return units[index::count]


def _open_header(
  plan: Plan, tasks, jobs, *, sharing: bool = False
) -> cache_header.Header:
  """Of the cache; text that has changed is refused unless allowed."""
  replace = plan.changed is Changed.REPLACE
  header = cache_header.open_for_writing(
    plan.directory, plan.vocabulary, overwrite=replace and not sharing
  )
  staleness.check_changes(jobs, plan.members(tasks), header, plan.changed)
  return header


def _seal(header: cache_header.Header, plan: Plan, tasks, jobs):
  """Seals tasks, then the cache, which is readable from then on."""
  added = plan.changed is Changed.ADD and staleness.needs_generation(
    jobs, plan.members(tasks), header
  )
  open_ = [job for job in jobs if not staleness.is_sealed(job, header)]
  for job in jobs:
    finalization.check_written_again(job)
  if added or not header.generations:
    header.generations.append(header.newest.copy())
  number = len(header.generations)
  for job in open_:
    finalization.seal_task(job, tasks, number, keep=header.older(job.key))
    path = cache_format.generation_file(job.directory, number)
    header.newest.tasks[job.key] = {
      'generation': number,
      'digest': checksums.digest_file(path),
    }
  metas = [_meta(job, header) for job in jobs]
  header.newest.mixtures.update(_rates(plan, tasks, metas, header))
  header.write(plan.directory)
  for path in plan.directory.glob('.lock-*'):
    path.unlink()
  cache_header.remove_left_behind(plan.directory)
  return metas


def _meta(job, header) -> cache_format.TaskMeta:
  number = header.newest.tasks[job.key]['generation']
  path = cache_format.generation_file(job.directory, number)
  return cache_format.TaskMeta.from_json(cache_format.read_json(path))


def _rates(
  plan: Plan, tasks, metas, header
) -> dict[str, dict[str, dict[str, float]]]:
  """The mixtures, with rates from the sizes that the tasks now have."""
  sizes = {(m.task, m.split): m.source_examples for m in metas}
  return {
    mixture: header.newest.mixtures.get(mixture, {})
    | {
      split: tasks.rates(mixture, split=split, sizes=sizes)
      for split in plan.splits
    }
    for mixture in plan.mixtures
  }
