"""Writes the shards of a unit."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator

import numpy as np

from xlflax.data import tokenized_examples
from xlflax.data.cache import cache_format
from xlflax.data.cache import shard_plan as cache_parts
from xlflax.data.cache import shards as cache_shards
from xlflax.data.cache import write_plan as cache_jobs
from xlflax.data.plain_text import text_tasks

_BLOCK = 1024


def write_unit(
  unit: cache_jobs.Unit,
  tasks: text_tasks.Tasks,
  vocabulary,
  *,
  num_threads: int = 1,
  stopped: Callable[[], bool] = lambda: False,
  after_shard: Callable[[], None] = lambda: None,
) -> None:
  """Writes the shards of a unit; those that are there stay.

  Args:
    unit: what to write.
    tasks: those of the unit's among them.
    vocabulary: a `base_vocabulary.Vocabulary`.
    num_threads: threads that tokenise.
    stopped: asked before each shard whether to leave the rest.
    after_shard: called after each.
  """
  job, part = unit.job, unit.part
  end = job.num_shards(part)
  if end is not None and all(map(job.entry, map(part.name, range(end)))):
    return
  write = _write_spans if part.num_bytes is not None else _write_runs
  for number in write(unit, tasks, vocabulary, num_threads):
    after_shard()
    if stopped():
      return
    if number is not None:
      job.end_part(part, number)


def _write_spans(
  unit: cache_jobs.Unit, tasks: text_tasks.Tasks, vocabulary, num_threads: int
) -> Iterator[None]:
  """Writes shards that are parts of a file; yields after each."""
  job = unit.job
  assert unit.last is not None
  for number in range(unit.first, unit.last):
    if job.entry(unit.part.name(number)) is None:
      batches = _read(unit, tasks, vocabulary, number, num_threads)
      _write_shard(unit, number, batches, vocabulary)
    yield None


def _write_runs(
  unit: cache_jobs.Unit, tasks: text_tasks.Tasks, vocabulary, num_threads: int
) -> Iterator[int | None]:
  """Writes shards one after the other; yields their number at the end."""
  job = unit.job
  length = cache_parts.examples_in_shard(job.shard_size)
  first = unit.first
  while unit.last is None and job.entry(unit.part.name(first)) is not None:
    first += 1  # of a part that is read as a whole
  batches = _read(unit, tasks, vocabulary, first, num_threads)
  numbers = (
    itertools.count(first) if unit.last is None else range(first, unit.last)
  )
  for number in numbers:
    entry = _write_shard(
      unit,
      number,
      itertools.islice(batches, length // _block_size(length)),
      vocabulary,
    )
    if unit.last is None and entry.examples + entry.empty < length:
      yield number + 1
      return
    yield None


def _read(
  unit: cache_jobs.Unit,
  tasks: text_tasks.Tasks,
  vocabulary,
  number: int,
  num_threads: int,
) -> Iterator[tokenized_examples.Examples]:
  """The examples of a part from a shard on; of a span only those of it."""
  job, part = unit.job, unit.part
  length = cache_parts.examples_in_shard(job.shard_size)
  by_bytes = part.num_bytes is not None
  return tasks.read(
    job.task,
    vocabulary,
    split=job.split,
    size=_BLOCK if by_bytes else _block_size(length),
    start=0 if by_bytes else number * length,
    num_threads=num_threads,
    piece=part.piece(number, job.shard_size),
  )


def _write_shard(
  unit: cache_jobs.Unit, number: int, batches, vocabulary
) -> cache_format.ShardEntry:
  """Writes a shard, then what is known of it."""
  job = unit.job
  name = unit.part.name(number)
  entry = cache_shards.write_shard_file(
    cache_format.shard_file(job.directory, name),
    batches,
    dtype=np.dtype(job.dtype),
    spec=vocabulary.spec,
    sides=job.sides,
  )
  entry = dataclasses.replace(entry, library=vocabulary.library)
  about = {
    'format': cache_format.FORMAT,
    'text': unit.part.text,
    'vocabulary': job.vocabulary,
    'shard_size': job.shard_size,
  }
  cache_format.write_json(
    cache_format.entry_file(job.directory, name),
    {'entry': entry.to_json()} | about,
  )
  return entry


def _block_size(shard_size: int) -> int:
  """The largest divisor of a shard that is at most `_BLOCK`."""
  return next(
    size
    for size in range(min(_BLOCK, shard_size), 0, -1)
    if shard_size % size == 0
  )
