"""Writer for a unit, which is a range of consecutive shards of a task."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator

import numpy as np

from xlflax.data import tokenized_examples
from xlflax.data.cache import cache_format, shard_plan, shards, write_plan
from xlflax.data.plain_text import text_tasks

_BLOCK_EXAMPLES = 1024


def write_unit(
  unit: write_plan.Unit,
  tasks: text_tasks.Tasks,
  vocabulary,
  *,
  num_threads: int = 1,
  stopped: Callable[[], bool] = lambda: False,
  after_shard: Callable[[], None] = lambda: None,
) -> None:
  """Writes a range of consecutive shards, and skips those that exist.

  Args:
    unit: Part of a task and the range of its shards to write.
    tasks: Registered tasks, including the task to which the shards belong.
    vocabulary: Vocabulary that encodes the text (`base_vocabulary.Vocabulary`).
    num_threads: Number of threads that tokenize text.
    stopped: Function that returns whether to skip the remaining shards. It is
      called after each shard.
    after_shard: Function that is called each time a shard has been written.
  """
  job, part = unit.job, unit.part
  end = job.num_shards(part)
  if end is not None and all(map(job.entry, map(part.name, range(end)))):
    return
  write: Callable[..., Iterator[int | None]]
  if part.num_bytes is not None:
    write = _write_byte_shards
  else:
    write = _write_example_shards
  for num_shards in write(unit, tasks, vocabulary, num_threads):
    after_shard()
    if stopped():
      return
    if num_shards is not None:
      job.end_part(part, num_shards)


def _write_byte_shards(
  unit: write_plan.Unit, tasks: text_tasks.Tasks, vocabulary, num_threads: int
) -> Iterator[None]:
  """Writes the shards of a file that is divided into ranges of bytes."""
  job = unit.job
  assert unit.last is not None
  for number in range(unit.first, unit.last):
    if job.entry(unit.part.name(number)) is None:
      batches = _read(unit, tasks, vocabulary, number, num_threads)
      _write_shard(unit, number, batches, vocabulary)
    yield None


def _write_example_shards(
  unit: write_plan.Unit, tasks: text_tasks.Tasks, vocabulary, num_threads: int
) -> Iterator[int | None]:
  """Writes the shards of a source that is divided by numbers of examples.

  Yields a value after each shard: the total number of shards if the shard is
  the last shard of its part, and otherwise None.
  """
  job = unit.job
  length = shard_plan.examples_in_shard(job.shard_size)
  first = unit.first
  # Skip existing shards of a part that is read to its end.
  while unit.last is None and job.entry(unit.part.name(first)) is not None:
    first += 1
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
  unit: write_plan.Unit,
  tasks: text_tasks.Tasks,
  vocabulary,
  number: int,
  num_threads: int,
) -> Iterator[tokenized_examples.Examples]:
  """Reads a source's tokenized examples, starting at the given shard.

  If the part is divided by bytes, only the shard's own examples are read.
  """
  job, part = unit.job, unit.part
  length = shard_plan.examples_in_shard(job.shard_size)
  by_bytes = part.num_bytes is not None
  return tasks.read(
    job.task,
    vocabulary,
    split=job.split,
    size=_BLOCK_EXAMPLES if by_bytes else _block_size(length),
    start=0 if by_bytes else number * length,
    num_threads=num_threads,
    piece=part.piece(number, job.shard_size),
  )


def _write_shard(
  unit: write_plan.Unit, number: int, batches, vocabulary
) -> cache_format.ShardEntry:
  """Writes a shard, then the file that contains the shard's metadata."""
  job = unit.job
  name = unit.part.name(number)
  entry = shards.write_shard_file(
    cache_format.shard_file(job.directory, name),
    batches,
    dtype=np.dtype(job.dtype),
    spec=vocabulary.spec,
    sides=job.sides,
  )
  entry = dataclasses.replace(entry, library=vocabulary.library)
  metadata = {
    'format': cache_format.FORMAT,
    'text': unit.part.text,
    'vocabulary': job.vocabulary,
    'shard_size': job.shard_size,
    'code': job.code,
  }
  cache_format.write_json(
    cache_format.entry_file(job.directory, name),
    {'entry': entry.to_json()} | metadata,
  )
  return entry


def _block_size(shard_size: int) -> int:
  """Returns the number of examples per block, a divisor of the shard size."""
  return next(
    size
    for size in range(min(_BLOCK_EXAMPLES, shard_size), 0, -1)
    if shard_size % size == 0
  )
