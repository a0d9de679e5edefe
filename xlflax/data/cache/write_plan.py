"""Plans that divide the writing of a token cache into jobs and shard ranges.

Each job writes one split of a task and is divided into units. A unit is a range
of consecutive shards in one part of a task. Each unit is written by a single
process.
"""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Sequence

from xlflax.data import tokenized_examples
from xlflax.data.cache import cache_format, shard_plan
from xlflax.data.plain_text import text_tasks

# Several units for each process and part balance the load, so that processes
# end at about the same time.
_UNITS_PER_PROCESS = 3


@dataclasses.dataclass(frozen=True)
class Job:
  """Job that writes one split of a task to a token cache.

  Attributes:
    cache: Directory of the cache.
    task: SeqIO name of the task.
    split: Name of the split, such as 'train'.
    languages: Language codes of the source and target texts.
    vocabulary: Hash of the vocabulary that encodes the text.
    fingerprint: Fingerprint of the task's source, as JSON text.
    shard_size: Amount of text in each shard, in bytes.
    dtype: Name of the dtype in which token ids are stored.
    parts: Parts of the task's text, such as its files, in order.
  """

  cache: pathlib.Path
  task: str
  split: str
  languages: tuple[str, ...]
  vocabulary: str
  fingerprint: str
  shard_size: int
  dtype: str
  parts: tuple[shard_plan.Part, ...]

  @property
  def key(self) -> str:
    """Key in `cache.json` for the task and split."""
    return cache_format.task_key(self.task, self.split)

  @property
  def directory(self) -> pathlib.Path:
    """Directory to which the task is written."""
    return cache_format.task_directory(self.cache, self.task, self.split)

  @property
  def sides(self) -> tuple[str, ...]:
    """Names of the text features: `targets`, or `inputs` and `targets`."""
    return tokenized_examples.SIDES[len(self.languages)]

  @property
  def code(self) -> dict[str, str]:
    """Hashes of the user's modules that define the task, by module name."""
    return json.loads(self.fingerprint).get('code', {})

  @functools.cached_property
  def finalized(self) -> dict[str, cache_format.ShardEntry]:
    """Metadata of the shards in all generations of the cache, by shard name."""
    entries = [
      entry
      for path in sorted(self.directory.glob('generation-*.json'))
      for entry in cache_format.TaskMeta.from_json(
        cache_format.read_json(path)
      ).shards
    ]
    return {entry.name: entry for entry in entries}

  def recorded_shards(self) -> set[str]:
    """Returns the names of all recorded shards, including lost shards."""
    entry_files = (self.directory / cache_format.SHARDS).glob('*.json')
    return {path.stem for path in entry_files} | self.finalized.keys()

  def complete_shards(self) -> set[str]:
    """Returns the names of all shards that exist and are complete."""
    return {name for name in self.recorded_shards() if self.entry(name)}

  def entry(self, name: str) -> cache_format.ShardEntry | None:
    """Returns a shard's metadata, or None if the shard is not complete."""
    shard_entry = self.finalized.get(name)
    path = cache_format.entry_file(self.directory, name)
    if path.exists():
      shard_entry = cache_format.ShardEntry.from_json(
        cache_format.read_json(path)['entry']
      )
    if shard_entry is None:
      return None
    shard = cache_format.shard_file(self.directory, name)
    size = shard_entry.digest.partition('-')[0]
    is_complete = shard.is_file() and str(shard.stat().st_size) == size
    return shard_entry if is_complete else None

  def recorded_code(self) -> list[dict[str, str]]:
    """Returns the `code` of all shards that have not been finalized."""
    return [
      cache_format.read_json(path).get('code', {})
      for part in self.parts
      for path in sorted((self.directory / cache_format.SHARDS).glob('*.json'))
      if _is_of(path.stem, part)
    ]

  def num_shards(self, part: shard_plan.Part) -> int | None:
    """Returns the number of shards in a part of a task, or None if unknown.

    The number may be unknown until the part has been read to its end.
    """
    if part.shards is not None:
      return part.shards
    if self.finalized:
      part_names = [name for name in self.finalized if _is_of(name, part)]
      if part_names:
        return len(part_names)
    path = self._end_file(part)
    return cache_format.read_json(path)['shards'] if path.exists() else None

  def expected_shards(
    self, part: shard_plan.Part, tasks: text_tasks.Tasks
  ) -> int:
    """Returns the exact or estimated number of shards in a part of a task.

    The result is at least one. If the number is unknown before the part has
    been read, it is estimated from the source's size.
    """
    if part.shards is not None:
      return part.shards
    source_size = (
      tasks.source_size(self.task, self.split) if part.path is None else None
    )
    return -(
      -(source_size or 1) // shard_plan.examples_in_shard(self.shard_size)
    )

  def units(self, tasks: text_tasks.Tasks, num_processes: int) -> list['Unit']:
    """Returns the ranges of shards (units) that have not been written yet.

    If a part's number of shards is unknown, the part is read to its end.
    """
    complete = self.complete_shards()
    return [
      unit
      for part in self.parts
      for unit in self._part_units(part, tasks, num_processes, complete)
    ]

  def all_units(self, num_processes: int) -> list['Unit']:
    """Returns all units of work, including those that are already written.

    The result is the same in every process.
    """
    return [
      unit
      for part in self.parts
      for unit in (
        [Unit(self, part, 0, None)]
        if part.shards is None
        else self._split_into_units(
          part, list(range(part.shards)), num_processes
        )
      )
    ]

  def end_part(self, part: shard_plan.Part, num_shards: int) -> None:
    """Records the number of shards in a part of a task after reading it."""
    cache_format.write_json(
      self._end_file(part),
      {'format': cache_format.FORMAT, 'shards': num_shards},
    )

  def _end_file(self, part: shard_plan.Part) -> pathlib.Path:
    return self.directory / cache_format.SHARDS / f'{part.prefix}.end'

  def _part_units(
    self, part, tasks: text_tasks.Tasks, num_processes: int, complete: set[str]
  ) -> list['Unit']:
    """Returns the units of a part that contain shards still to be written."""
    num_shards = self.num_shards(part)
    is_open_ended = num_shards is None
    if num_shards is None:
      num_shards = self.expected_shards(part, tasks)
    missing = [k for k in range(num_shards) if part.name(k) not in complete]
    # A file that is not divided by bytes must be read from its beginning, so
    # one process reads all of it.
    if is_open_ended and part.path is not None:
      return [Unit(self, part, missing[0] if missing else num_shards, None)]
    # The part may have more shards than expected.
    if is_open_ended and (not missing or missing[-1] != num_shards - 1):
      missing.append(num_shards)
    units = self._split_into_units(part, missing, num_processes)
    if is_open_ended:
      units[-1] = dataclasses.replace(units[-1], last=None)
    return units

  def _split_into_units(self, part, numbers: list[int], num_processes: int):
    """Divides shard numbers of a part into units."""
    max_length = -(-len(numbers) // (num_processes * _UNITS_PER_PROCESS))
    # If a part is divided by bytes, a unit does not need to skip text to reach
    # its first shard.
    if part.num_bytes is not None:
      max_length = 1
    return [
      Unit(self, part, run[0], run[-1] + 1)
      for run in _split_into_runs(numbers, max_length)
    ]


@dataclasses.dataclass(frozen=True)
class Unit:
  """Range of consecutive shards that one process writes.

  Attributes:
    job: Job to which this range of shards belongs.
    part: Part of the task to which the shards belong.
    first: Index, within the part, of the first shard to write.
    last: Index after the last shard to write. If None, the range extends to the
      end of the part.
  """

  job: Job
  part: shard_plan.Part
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
  """Returns the jobs that cache the mixtures, one for each task and split.

  Args:
    tasks: Registered tasks, including the tasks of the mixtures.
    cache: Directory of the cache.
    mixtures: Names of the mixtures or tasks to cache.
    splits: Names of the splits to cache.
    vocabulary: Vocabulary that encodes the text (`base_vocabulary.Vocabulary`).
    shard_size: Amount of text in each shard in bytes.

  Raises:
    CorpusError: If a mixture does not exist, or if none of its tasks has one of
      the splits.
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
  """Returns the job of one task and split."""
  languages = tasks.languages(task)
  for language in languages:
    vocabulary.language_id(language)  # Raises an error for unknown languages.
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
    parts=shard_plan.split_into_shards(
      tasks,
      task,
      split,
      fingerprint=fingerprint,
      vocabulary=vocabulary.hash,
      languages=languages,
      size=shard_size,
    ),
  )


def _is_of(name: str, part: shard_plan.Part) -> bool:
  return name.rpartition('-')[0] == part.prefix


def _split_into_runs(numbers: list[int], max_length: int) -> list[list[int]]:
  """Groups ascending numbers into runs of consecutive numbers.

  For example, `_split_into_runs([0, 1, 2, 5], 2)` is `[[0, 1], [2], [5]]`.

  Args:
    numbers: Numbers in ascending order.
    max_length: Maximum length of a run of consecutive numbers.
  """
  runs: list[list[int]] = []
  for number in numbers:
    continues_run = runs and runs[-1][-1] == number - 1
    if continues_run and len(runs[-1]) < max_length:
      runs[-1].append(number)
    else:
      runs.append([number])
  return runs
