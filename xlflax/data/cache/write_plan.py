"""What a cache writer has to do: one job per task and split, cut into units.

A unit is a run of consecutive shards of one part that one process writes.
"""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Sequence

from xlflax.data import tokenized_examples
from xlflax.data.cache import cache_format
from xlflax.data.cache import shard_plan as cache_parts
from xlflax.data.plain_text import text_tasks

# Units for each process and part, so that processes end at about one time.
_UNITS_PER_PROCESS = 3


@dataclasses.dataclass(frozen=True)
class Job:
  """One task and split to be written.

  Attributes:
    cache: directory of the cache.
    task: SeqIO name.
    split: of the task.
    languages: of its sides.
    vocabulary: hash.
    fingerprint: of the source, as JSON text.
    shard_size: S of `parts`.
    dtype: of token ids.
    parts: of its text, in order.
  """

  cache: pathlib.Path
  task: str
  split: str
  languages: tuple[str, ...]
  vocabulary: str
  fingerprint: str
  shard_size: int
  dtype: str
  parts: tuple[cache_parts.Part, ...]

  @property
  def key(self) -> str:
    """What cache.json calls it."""
    return cache_format.task_key(self.task, self.split)

  @property
  def directory(self) -> pathlib.Path:
    """Where the task lies."""
    return cache_format.task_directory(self.cache, self.task, self.split)

  @property
  def sides(self) -> tuple[str, ...]:
    """The features that hold the sides."""
    return tokenized_examples.SIDES[len(self.languages)]

  @functools.cached_property
  def sealed(self) -> dict[str, cache_format.ShardEntry]:
    """Shards of the task's generations, by name."""
    entries = [
      entry
      for path in sorted(self.directory.glob('generation-*.json'))
      for entry in cache_format.TaskMeta.from_json(
        cache_format.read_json(path)
      ).shards
    ]
    return {entry.name: entry for entry in entries}

  def noted(self) -> set[str]:
    """Names of the shards that were written, whatever became of them."""
    entry_files = (self.directory / cache_format.SHARDS).glob('*.json')
    return {path.stem for path in entry_files} | self.sealed.keys()

  def written(self) -> set[str]:
    """Names of the shards that are there."""
    return {name for name in self.noted() if self.entry(name)}

  def entry(self, name: str) -> cache_format.ShardEntry | None:
    """What is known of a shard; None if it is missing or cut off."""
    shard_entry = self.sealed.get(name)
    path = cache_format.entry_file(self.directory, name)
    if path.exists():
      shard_entry = cache_format.ShardEntry.from_json(
        cache_format.read_json(path)['entry']
      )
    if shard_entry is None:
      return None
    shard = cache_format.shard_file(self.directory, name)
    size = shard_entry.digest.partition('-')[0]
    is_there = shard.is_file() and str(shard.stat().st_size) == size
    return shard_entry if is_there else None

  def num_shards(self, part: cache_parts.Part) -> int | None:
    """Of a part; None where it has not been read to its end."""
    if part.shards is not None:
      return part.shards
    if self.sealed:
      numbers = [name for name in self.sealed if _is_of(name, part)]
      if numbers:
        return len(numbers)
    path = self._end_file(part)
    return cache_format.read_json(path)['shards'] if path.exists() else None

  def expected_shards(
    self, part: cache_parts.Part, tasks: text_tasks.Tasks
  ) -> int:
    """Of a part, at least one; a guess where only reading tells."""
    if part.shards is not None:
      return part.shards
    source_size = (
      tasks.source_size(self.task, self.split) if part.path is None else None
    )
    return -(
      -(source_size or 1) // cache_parts.examples_in_shard(self.shard_size)
    )

  def units(self, tasks: text_tasks.Tasks, num_processes: int) -> list['Unit']:
    """Runs of missing shards; a part of unknown size is read to its end."""
    written_shards = self.written()
    return [
      unit
      for part in self.parts
      for unit in self._part_units(part, tasks, num_processes, written_shards)
    ]

  def all_units(self, num_processes: int) -> list['Unit']:
    """As `units`, whatever has been written: equal for every process."""
    return [
      unit
      for part in self.parts
      for unit in (
        [Unit(self, part, 0, None)]
        if part.shards is None
        else self._runs(part, list(range(part.shards)), num_processes)
      )
    ]

  def end_part(self, part: cache_parts.Part, shards: int) -> None:
    """Notes that a part was read to its end."""
    cache_format.write_json(
      self._end_file(part), {'format': cache_format.FORMAT, 'shards': shards}
    )

  def _end_file(self, part: cache_parts.Part) -> pathlib.Path:
    return self.directory / cache_format.SHARDS / f'{part.prefix}.end'

  def _part_units(
    self, part, tasks: text_tasks.Tasks, num_processes: int, written: set[str]
  ) -> list['Unit']:
    end = self.num_shards(part)
    last = self.expected_shards(part, tasks) if end is None else end
    missing = [k for k in range(last) if part.name(k) not in written]
    if end is None and part.path is not None:  # only read from its beginning
      return [Unit(self, part, missing[0] if missing else last, None)]
    if end is None and (not missing or missing[-1] != last - 1):
      missing.append(last)  # everything expected is there; is there more?
    units = self._runs(part, missing, num_processes)
    if end is None:
      units[-1] = dataclasses.replace(units[-1], last=None)
    return units

  def _runs(self, part, numbers: list[int], num_processes: int):
    longest = -(-len(numbers) // (num_processes * _UNITS_PER_PROCESS))
    if part.num_bytes is not None:
      longest = 1  # nothing is passed over to reach a shard
    return [
      Unit(self, part, run[0], run[-1] + 1) for run in _runs(numbers, longest)
    ]


@dataclasses.dataclass(frozen=True)
class Unit:
  """Shards first .. last - 1 of a part; last None: to its end."""

  job: Job
  part: cache_parts.Part
  first: int
  last: int | None


def list_jobs(
  tasks: text_tasks.Tasks,
  cache: pathlib.Path,
  mixtures: Sequence[str],
  splits: Sequence[str],
  vocabulary,
  *,
  shard_size: int,
) -> list[Job]:
  """The jobs of all tasks of mixtures, by split and task.

  Raises:
    CorpusError: no such mixture, or none of its tasks has a split.
  """
  needed = {
    (split, task)
    for mixture in mixtures
    for split in splits
    for task in tasks.names(mixture, split=split)
  }
  return [
    _make_job(tasks, cache, task, split, vocabulary, shard_size)
    for split, task in sorted(needed)
  ]


def _make_job(tasks, cache, task, split, vocabulary, shard_size) -> Job:
  languages = tasks.languages(task)
  for language in languages:
    vocabulary.language_id(language)  # Raises for an unknown one.
  fingerprint = tasks.fingerprint(task, split)
  return Job(
    cache=cache,
    task=task,
    split=split,
    languages=languages,
    vocabulary=vocabulary.hash,
    fingerprint=json.dumps(fingerprint),
    shard_size=shard_size,
    dtype=cache_format.token_dtype(vocabulary.spec.size).name,
    parts=cache_parts.split_into_shards(
      tasks,
      task,
      split,
      fingerprint=fingerprint,
      vocabulary=vocabulary.hash,
      languages=languages,
      size=shard_size,
    ),
  )


def _is_of(name: str, part: cache_parts.Part) -> bool:
  return name.rpartition('-')[0] == part.prefix


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
