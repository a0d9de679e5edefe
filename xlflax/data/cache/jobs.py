"""What a cache writer has to do: one job per task and split, cut into units.

A unit is a run of consecutive shards that one process writes in one pass
over the task. Needs TensorFlow (through the task registry).
"""

import dataclasses
import functools
import hashlib
import itertools
import json
import pathlib
import shutil
from collections.abc import Callable, Sequence

import numpy as np

from xlflax import errors
from xlflax.data.cache import format as cache_format
from xlflax.data.cache import shards as cache_shards
from xlflax.data.seqio_tasks import examples as task_examples
from xlflax.data.seqio_tasks import registry as task_registry

_END_FILE = 'end.json'
_BLOCK = 1024

# Units for each process and task, so that processes end at about one time.
_UNITS_PER_PROCESS = 3


@dataclasses.dataclass(frozen=True)
class Job:
  """One task and split to be written.

  Attributes:
    cache: directory of the cache.
    task: SeqIO name.
    split: of the task.
    languages: of its sides.
    source_examples: size of the source; None if unknown.
    vocabulary: hash.
    fingerprint: of the source, as JSON text.
    shard_size: examples in a shard.
    dtype: of token ids.
  """

  cache: pathlib.Path
  task: str
  split: str
  languages: tuple[str, ...]
  source_examples: int | None
  vocabulary: str
  fingerprint: str
  shard_size: int
  dtype: str

  @property
  def directory(self) -> pathlib.Path:
    """Where the complete task lies."""
    return cache_format.task_directory(self.cache, self.task, self.split)

  @property
  def complete(self) -> bool:
    """Whether the task is written."""
    return (self.directory / cache_format.META_FILE).is_file()

  @functools.cached_property
  def work(self) -> pathlib.Path:
    """Of the shards; its name holds all that they depend on."""
    key = json.dumps(
      [
        cache_format.FORMAT,
        self.vocabulary,
        self.fingerprint,
        self.shard_size,
        self.languages,
      ]
    )
    return (
      cache_format.work_directory(self.cache, self.task, self.split)
      / hashlib.sha256(key.encode()).hexdigest()[:16]
    )

  @property
  def expected_shards(self) -> int:
    """At least one; for a source of unknown size, one."""
    return max(1, -(-(self.source_examples or 1) // self.shard_size))

  @property
  def end(self) -> int | None:
    """Number of shards, once the task was read to its end."""
    path = self.work / _END_FILE
    if not path.exists():
      return None
    return cache_format.read_json(path)['shards']

  def shards(self) -> set[int]:
    """Numbers of the finished shards."""
    if not self.work.is_dir():
      return set()
    return {int(path.stem) for path in self.work.glob('[0-9]*.npz')}

  def meta(self) -> cache_format.TaskMeta:
    """What the complete task says of itself."""
    return cache_format.TaskMeta.from_json(
      cache_format.read_json(self.directory / cache_format.META_FILE)
    )

  def units(self, num_processes: int) -> list['Unit']:
    """The runs of missing shards; the last one reads to the task's end."""
    end, done = self.end, self.shards()
    last = self.expected_shards if end is None else end
    missing = [k for k in range(last) if k not in done]
    if end is None and (not missing or missing[-1] != last - 1):
      missing.append(last)  # Everything expected is there; is there more?
    longest = -(-len(missing) // (num_processes * _UNITS_PER_PROCESS))
    units = [Unit(self, run[0], run[-1] + 1) for run in _runs(missing, longest)]
    if end is None:
      units[-1] = dataclasses.replace(units[-1], last=None)
    return units

  def finish(self, vocabulary) -> None:
    """Merges the shards and deletes them."""
    end = self.end
    assert end is not None  # the last unit was written
    paths = [cache_shards.shard_path(self.work, k) for k in range(end)]
    counts = cache_shards.count(paths)
    if not counts.examples:
      raise errors.CorpusError(
        'A task has no text',
        got=f'{counts.empty} examples, all empty',
        where=f'task {self.task}, split {self.split}',
        fix='Give it text, or take it out of the mixture',
      )
    statistics = tuple(
      cache_format.SideStatistics(language, counts.examples, int(t), int(u))
      for language, t, u in zip(
        self.languages, counts.tokens, counts.unknown, strict=True
      )
    )
    meta = cache_format.TaskMeta(
      task=self.task,
      split=self.split,
      languages=self.languages,
      examples=counts.examples,
      empty=counts.empty,
      source_examples=self.source_examples or counts.examples + counts.empty,
      statistics=statistics,
      vocabulary=self.vocabulary,
      fingerprint=json.loads(self.fingerprint),
      shard_size=self.shard_size,
    )
    cache_shards.merge(
      paths,
      counts,
      self.directory,
      meta,
      cache_format.token_dtype(vocabulary.spec.size),
    )
    shutil.rmtree(self.work.parent)
    _remove_empty(self.work.parent.parent)


@dataclasses.dataclass(frozen=True)
class Unit:
  """Shards first .. last - 1 of a job; last None: to the task's end."""

  job: Job
  first: int
  last: int | None


def expand(
  mixtures: Sequence[str], splits: Sequence[str]
) -> dict[str, dict[str, dict[str, float]]]:
  """mixture -> split -> task -> mixing rate."""
  return {
    mixture: {
      split: task_registry.expand(mixture, split=split) for split in splits
    }
    for mixture in mixtures
  }


def list_jobs(
  cache: pathlib.Path, mixtures, vocabulary, *, shard_size: int, overwrite: bool
) -> list[Job]:
  """The jobs of all tasks, complete ones included, by split and task.

  Raises:
    CacheError: a complete task is of a source that has changed since, and
      `overwrite` is not set; with it, the task is deleted.
  """
  jobs = [
    _make_job(cache, task, split, vocabulary, shard_size)
    for split, task in sorted(_needed(mixtures))
  ]
  for job in jobs:
    if job.complete and _is_stale(job):
      if not overwrite:
        raise errors.CacheError(
          f'The source of {job.task} has changed since it was cached',
          where=job.directory,
          fix='Replace it by --overwrite',
        )
      shutil.rmtree(job.directory)
    _remove_stale_work(job)
  return jobs


def _needed(mixtures) -> set[tuple[str, str]]:
  """(split, task) of all mixtures, each once."""
  return {
    (split, task)
    for by_split in mixtures.values()
    for split, tasks in by_split.items()
    for task in tasks
  }


def write_unit(
  unit: Unit,
  vocabulary,
  *,
  num_threads: int = 1,
  stopped: Callable[[], bool] = lambda: False,
  after_shard: Callable[[], None] = lambda: None,
) -> None:
  """Writes the shards of a unit.

  Args:
    unit: what to write.
    vocabulary: a `vocabulary.Vocabulary`.
    num_threads: threads that tokenise.
    stopped: asked before each shard whether to leave the rest.
    after_shard: called after each.
  """
  job = unit.job
  job.work.mkdir(parents=True, exist_ok=True)
  size = _block_size(job.shard_size)
  batches = task_examples.read(
    job.task,
    vocabulary,
    split=job.split,
    size=size,
    start=unit.first * job.shard_size,
    num_threads=num_threads,
  )
  numbers = (
    itertools.count(unit.first)
    if unit.last is None
    else range(unit.first, unit.last)
  )
  for number in numbers:
    if stopped():
      return
    read = cache_shards.write_shard(
      cache_shards.shard_path(job.work, number),
      itertools.islice(batches, job.shard_size // size),
      num_sides=len(job.languages),
      dtype=np.dtype(job.dtype),
      spec=vocabulary.spec,
    )
    if unit.last is None and read < job.shard_size:
      cache_format.write_json(
        job.work / _END_FILE,
        {'format': cache_format.FORMAT, 'shards': number + 1},
      )
    after_shard()
    if unit.last is None and read < job.shard_size:
      return


def _make_job(cache, task, split, vocabulary, shard_size) -> Job:
  languages = task_registry.task_languages(task)
  for language in languages:
    vocabulary.language_id(language)  # Raises for an unknown one.
  return Job(
    cache=cache,
    task=task,
    split=split,
    languages=languages,
    source_examples=task_examples.source_size(task, split),
    vocabulary=vocabulary.hash,
    fingerprint=json.dumps(task_examples.fingerprint(task, split)),
    shard_size=shard_size,
    dtype=cache_format.token_dtype(vocabulary.spec.size).name,
  )


def _is_stale(job: Job) -> bool:
  meta = job.meta()
  return (
    meta.vocabulary != job.vocabulary
    or meta.languages != job.languages
    or meta.fingerprint != json.loads(job.fingerprint)
  )


def _remove_stale_work(job: Job) -> None:
  """Shards of another state of the source, and half-written files."""
  parent = job.work.parent
  if parent.is_dir():
    for path in parent.iterdir():
      if path != job.work or job.complete:
        shutil.rmtree(path)
    if job.complete:
      parent.rmdir()
      _remove_empty(parent.parent)
  if job.work.is_dir():
    for path in job.work.glob('.*'):
      path.unlink()


def _runs(numbers: list[int], longest: int) -> list[list[int]]:
  """Consecutive numbers together, at most `longest` of them.

  `_runs([0, 1, 2, 5], 2)` is `[[0, 1], [2], [5]]`.
  """
  out: list[list[int]] = []
  for number in numbers:
    if out and out[-1][-1] == number - 1 and len(out[-1]) < longest:
      out[-1].append(number)
    else:
      out.append([number])
  return out


def _block_size(shard_size: int) -> int:
  """The largest divisor of a shard that is at most `_BLOCK`."""
  return next(
    size
    for size in range(min(_BLOCK, shard_size), 0, -1)
    if shard_size % size == 0
  )


def _remove_empty(directory: pathlib.Path) -> None:
  if not any(directory.iterdir()):
    directory.rmdir()
