"""Parallel writer for token caches that can be interrupted and resumed.

`write_plan` divides each task into shards, which are created atomically. A task
is finalized when all of its shards exist. The files are byte-identical
regardless of which processes write the shards, in which order, and with which
interruptions. `write_cache` writes a complete cache. If several machines write
a cache, each machine calls `write_partition` for some of the shards, and one
machine calls `finalize_cache` at the end.
"""

import dataclasses
import itertools
import pathlib
import shutil
from collections.abc import Callable, Sequence
from typing import Any

from xlflax.data.cache import (
  cache_format,
  cache_metadata,
  finalization,
  multiprocessing_runner,
  shard_writer,
  staleness,
  write_lock,
  write_plan,
)
from xlflax.data.cache.staleness import Changed
from xlflax.data.plain_text import text_tasks
from xlflax.storage import checksums, paths
from xlflax.utils import validation

SHARD_SIZE = 1 << 26


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
  """Content and options of the cache to write.

  Attributes:
    directory: Directory of the cache. If it already contains other mixtures,
      they are preserved.
    mixtures: Names of the mixtures or tasks to cache.
    splits: Names of the splits to cache. If a task does not have a split, the
      task is omitted from this split.
    vocabulary: Vocabulary that encodes the text (`base_vocabulary.Vocabulary`).
    open_tasks: Function that opens the tasks. It is called once in each
      process.
    shard_size: Amount of text in each shard, in bytes.
    changed: Whether to replace, extend or reject tasks whose text has changed
      since they were cached.
  """

  directory: pathlib.Path
  mixtures: Sequence[str]
  vocabulary: Any
  open_tasks: text_tasks.Open
  splits: Sequence[str] = ('train',)
  shard_size: validation.NumBytes = SHARD_SIZE
  changed: Changed = Changed.ERROR

  def __post_init__(self):
    directory = paths.to_local_path(
      self.directory, where='directory of the cache'
    )
    object.__setattr__(self, 'directory', directory)

  def jobs(self, tasks: text_tasks.Tasks) -> list[write_plan.Job]:
    """Returns the write jobs of the cache: one for each split of each task."""
    return write_plan.list_jobs(
      tasks,
      self.directory,
      self.mixtures,
      self.splits,
      self.vocabulary,
      shard_size=self.shard_size,
    )

  def members(self, tasks: text_tasks.Tasks) -> staleness.Members:
    """Returns the tasks of each mixture and split."""
    return {
      (mixture, split): set(tasks.names(mixture, split=split))
      for mixture in self.mixtures
      for split in self.splits
    }


# A function that writes units with other workers, such as Apache Beam.
Runner = Callable[[Plan, Sequence[write_plan.Unit]], None]


@validation.validate_call
def write_cache(
  plan: Plan,
  *,
  num_processes: validation.PositiveInt = 1,
  runner: Runner | None = None,
  report: multiprocessing_runner.Report = lambda progress: None,
) -> list[cache_format.TaskMeta]:
  """Writes the tasks of the mixtures, except those that are already cached.

  Args:
    plan: Content and options of the cache.
    num_processes: Number of processes that tokenize text.
    runner: Function that writes the shards. If None, processes on this machine
      write the shards.
    report: Function that is called periodically with the current progress.

  Returns:
    The metadata of each task of the mixtures, by task and split.

  Raises:
    CacheError: If the directory has unexpected content, if another process is
      writing to it, or if the disk is full.
    CorpusError: If a mixture is unknown, or if the text is malformed.
  """
  tasks = plan.open_tasks()
  with write_lock.lock_cache(plan.directory):
    jobs = plan.jobs(tasks)
    header = _open_header(plan, tasks, jobs)
    # Replace finalized tasks even if they seem unchanged: a fingerprint
    # contains the names of preprocessors, but not the code of all of them.
    # Shards of an interrupted replacement are kept if their code is unchanged.
    if plan.changed is Changed.REPLACE:
      for job in jobs:
        if staleness.is_finalized(
          job, header
        ) or staleness.describe_changed_code(job, header):
          shutil.rmtree(job.directory)
      jobs = plan.jobs(tasks)
    missing = [job for job in jobs if not staleness.is_finalized(job, header)]
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
    return _finalize(header, plan, tasks, jobs)


@validation.validate_call
def write_partition(
  plan: Plan,
  partition: tuple[int, int],
  *,
  report: multiprocessing_runner.Report = lambda progress: None,
) -> int:
  """Writes one partition of a cache, concurrently with other processes.

  Args:
    plan: Content and options of the cache, the same for all processes.
    partition: Pair (i, n) to write partition i of n partitions, where i is
      zero-based.
    report: Function that is called periodically with the current progress.

  Returns:
    The number of units in the partition. A unit is a range of consecutive
    shards; see `write_plan.Unit`.

  Raises:
    CacheError: If the directory has unexpected content, if another process is
      writing this partition, or if the disk is full.
    CorpusError: If a mixture is unknown, or if the text is malformed.
  """
  tasks = plan.open_tasks()
  with write_lock.lock_cache(plan.directory, partition):
    jobs = plan.jobs(tasks)
    _open_header(plan, tasks, jobs, is_partition=True)
    units = select_partition(jobs, partition)
    shard_counter = itertools.count(1)
    for unit in units:

      def after_shard(task=unit.job.task):
        num_done = next(shard_counter)
        report(
          multiprocessing_runner.Progress(
            num_done, max(num_done, len(units)), task
          )
        )

      shard_writer.write_unit(
        unit, tasks, plan.vocabulary, after_shard=after_shard
      )
    return len(units)


@validation.validate_call
def finalize_cache(plan: Plan) -> list[cache_format.TaskMeta]:
  """Finalizes the tasks once all processes have written their shards.

  Args:
    plan: Content and options of the cache, as passed to `write_partition`.

  Returns:
    The metadata of each task of the mixtures, by task and split.

  Raises:
    CacheError: If a shard is missing, or if its text has changed since it was
      written.
  """
  tasks = plan.open_tasks()
  with write_lock.lock_cache(plan.directory):
    jobs = plan.jobs(tasks)
    header = _open_header(plan, tasks, jobs)
    return _finalize(header, plan, tasks, jobs)


def select_partition(
  jobs: Sequence[write_plan.Job], partition: tuple[int, int]
) -> list[write_plan.Unit]:
  """Selects the ranges of shards that partition i of n has to write.

  Args:
    jobs: Jobs that write the tasks of the cache.
    partition: Pair (i, n) for partition i of n partitions, where i is
      zero-based.
  """
  index, count = partition
  units = [unit for job in jobs for unit in job.all_units(count)]
  return units[index::count]


def _open_header(
  plan: Plan, tasks, jobs, *, is_partition: bool = False
) -> cache_metadata.Header:
  """Returns the content of `cache.json`, and creates the cache if necessary.

  Raises:
    CacheError: If text has changed but `plan.changed` does not permit changes.
  """
  replace = plan.changed is Changed.REPLACE
  header = cache_metadata.open_for_writing(
    plan.directory, plan.vocabulary, overwrite=replace and not is_partition
  )
  staleness.check_changes(jobs, plan.members(tasks), header, plan.changed)
  if not replace or is_partition:
    staleness.warn_of_changed_code(jobs, header)
    staleness.log_unverified_text(jobs, header)
  return header


def _finalize(header: cache_metadata.Header, plan: Plan, tasks, jobs):
  """Finalizes the tasks, and writes `cache.json` to make the cache readable."""
  needs_generation = plan.changed is Changed.ADD and staleness.needs_generation(
    jobs, plan.members(tasks), header
  )
  unfinished_jobs = [
    job for job in jobs if not staleness.is_finalized(job, header)
  ]
  for job in jobs:
    finalization.check_rewritten_shards(job)
  if needs_generation or not header.generations:
    header.generations.append(header.newest.copy())
  number = len(header.generations)
  for job in unfinished_jobs:
    finalization.finalize_task(
      job, tasks, number, older_generations=header.older(job.key)
    )
    path = cache_format.generation_file(job.directory, number)
    header.newest.tasks[job.key] = {
      'generation': number,
      'digest': checksums.digest_file(path),
    }
  metas = [_read_meta(job, header) for job in jobs]
  header.newest.mixtures.update(_compute_rates(plan, tasks, metas, header))
  header.write(plan.directory)
  for path in plan.directory.glob('.lock-*'):
    path.unlink()
  cache_metadata.remove_temporary_files(plan.directory)
  return metas


def _read_meta(job, header) -> cache_format.TaskMeta:
  """Reads the metadata of a task in the newest generation."""
  number = header.newest.tasks[job.key]['generation']
  path = cache_format.generation_file(job.directory, number)
  return cache_format.TaskMeta.from_json(cache_format.read_json(path))


def _compute_rates(
  plan: Plan, tasks, metas, header
) -> dict[str, dict[str, dict[str, float]]]:
  """Computes the mixtures' sampling rates from the sizes of their tasks."""
  sizes = {(m.task, m.split): m.source_examples for m in metas}
  return {
    mixture: header.newest.mixtures.get(mixture, {})
    | {
      split: tasks.rates(mixture, split=split, sizes=sizes)
      for split in plan.splits
    }
    for mixture in plan.mixtures
  }
