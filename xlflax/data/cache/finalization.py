"""Makes a readable task of its shards, once all of them are there."""

import dataclasses
import json
import pathlib
from collections.abc import Iterable

from xlflax.data.cache import cache_format
from xlflax.data.cache import shard_plan as cache_parts
from xlflax.data.cache import write_plan as cache_jobs
from xlflax.data.plain_text import text_tasks
from xlflax.storage import checksums
from xlflax.utils import errors


def seal_task(
  job: cache_jobs.Job,
  tasks: text_tasks.Tasks,
  generation: int,
  *,
  keep: set[int],
) -> cache_format.TaskMeta:
  """Writes what a task says of itself, and its digests.

  Args:
    job: all of whose shards are written.
    tasks: the job's among them.
    generation: number of the new generation.
    keep: older generations of the task; shards of neither are deleted.

  Raises:
    CacheError: a shard is missing or cut off, or is of other text or of
      another vocabulary than the rest.
    CorpusError: no example has a token.
  """
  entries = _entries(job)
  _check_libraries(job, entries)
  num_examples = sum(entry.examples + entry.empty for entry in entries)
  is_whole = any(part.path is None for part in job.parts)
  meta = cache_format.TaskMeta(
    task=job.task,
    split=job.split,
    languages=job.languages,
    source_examples=(is_whole and tasks.source_size(job.task, job.split))
    or num_examples,
    vocabulary=job.vocabulary,
    fingerprint=json.loads(job.fingerprint),
    shard_size=job.shard_size,
    shards=entries,
  )
  if not meta.examples:
    raise errors.CorpusError(
      'A task has no text',
      got=f'{meta.empty} examples, all empty',
      where=f'task {job.task}, split {job.split}',
      fix='Give it text, or take it out of the mixture',
    )
  path = cache_format.generation_file(job.directory, generation)
  cache_format.write_json(path, meta.to_json())
  write_digests(job.directory, keep | {generation})
  _remove_others(job.directory)
  return meta


def check_written_again(job: cache_jobs.Job) -> None:
  """Removes notes on sealed shards that were lost and are as they were.

  Raises:
    CacheError: such a shard is another one now.
  """
  for name, before in job.sealed.items():
    path = cache_format.entry_file(job.directory, name)
    current_entry = job.entry(name) if path.exists() else None
    if current_entry is None:
      continue
    if current_entry.digest != before.digest:
      raise errors.CacheError(
        f'A shard of {job.task} that was lost was not written as it had been',
        got=f'one by {current_entry.library}',
        expected=f'that by {before.library}',
        where=cache_format.shard_file(job.directory, name),
        fix='Delete it, and write it again with that version of the library',
      )
    path.unlink()


def _entries(job: cache_jobs.Job) -> tuple[cache_format.ShardEntry, ...]:
  """What is known of all shards, in order."""
  entries, missing = [], []
  for part in job.parts:
    count = job.num_shards(part)
    if count is None:
      missing.append(part.name(0))
    for name in map(part.name, range(count or 0)):
      entry = job.entry(name)
      if entry is None:
        missing.append(name)
        continue
      entries.append(entry)
      if _is_last(entry, job, part):
        break
  if missing:
    raise _incomplete(job, missing, len(entries))
  return _with_starts(entries)


def _is_last(
  entry: cache_format.ShardEntry, job: cache_jobs.Job, part: cache_parts.Part
) -> bool:
  """Whether the examples of a part end with a shard.

  A part that is cut by examples has shards after that one where its source
  has fewer examples than it says, or where a process was killed between its
  last shard and the note on its end; they are empty.
  """
  length = cache_parts.examples_in_shard(job.shard_size)
  return part.num_bytes is None and entry.examples + entry.empty < length


def _check_libraries(
  job: cache_jobs.Job, entries: Iterable[cache_format.ShardEntry]
) -> None:
  """Raises a CacheError if shards were tokenised by several versions."""
  shards: dict[str, list[str]] = {}
  for entry in entries:
    shards.setdefault(entry.library, []).append(entry.name)
  if len(shards) > 1:
    first, *other_versions = sorted(
      shards,
      key=lambda name: (
        job.sealed.keys().isdisjoint(shards[name]),
        -len(shards[name]),
      ),
    )
    raise errors.CacheError(
      f'Shards of {job.task} were tokenised by several versions of a library, '
      'which break ties differently',
      got='; '.join(
        f'{len(names)} by {name}' for name, names in shards.items()
      ),
      expected=f'one version, such as {first}',
      where=job.directory / cache_format.SHARDS,
      fix='Install one version for all workers, delete '
      + ', '.join(
        name for other in other_versions for name in shards[other][:3]
      )
      + ', … and write them again',
    )


def _with_starts(
  entries: list[cache_format.ShardEntry],
) -> tuple[cache_format.ShardEntry, ...]:
  """Passes beginnings of documents on to the shards that follow."""
  out, begins = [], True  # a task begins with a document
  for entry in entries:
    out.append(dataclasses.replace(entry, starts=begins))
    begins = entry.begins or (begins and not entry.examples)
  return tuple(out)


def _incomplete(
  job: cache_jobs.Job, missing: list[str], found: int
) -> errors.CacheError:
  """The error for shards that are not there, and why that may be."""
  other_shards = _others(job)
  sizes = {other['shard_size'] for other in other_shards} - {job.shard_size}
  if sizes:
    return errors.CacheError(
      f'Shards of {job.task} were written with another --shard_size',
      got=f'--shard_size={job.shard_size}',
      expected=' or '.join(f'--shard_size={size}' for size in sorted(sizes)),
      where=job.directory / cache_format.SHARDS,
      fix='Give `finish` the flags of the shares, and all shares the same',
    )
  if other_shards:
    return errors.CacheError(
      f'The text of {job.task} changed while its shards were written',
      got='; '.join(
        sorted({f'shards of {other["text"]}' for other in other_shards})[:5]
      ),
      expected='one state of the text for all shards: '
      + ', '.join(part.text for part in job.parts[:3]),
      where=job.directory,
      fix='Run `xlflax cache` again for every shard: those of the present '
      'text are kept, and `xlflax cache finalize` deletes the others',
    )
  return errors.CacheError(
    f'Shards of {job.task} are missing or cut off',
    got=f'{found} whole, and without '
    + ', '.join(missing[:5])
    + (f' and {len(missing) - 5} more' if len(missing) > 5 else ''),
    where=job.directory / cache_format.SHARDS,
    fix='Run `xlflax cache` again with the same flags, or --shard_index=I of the '
    'array: what is there is not written again',
  )


def _others(job: cache_jobs.Job) -> list[dict]:
  """What is known of shards that are there and are not this job's."""
  prefixes = tuple(part.prefix for part in job.parts)
  return [
    cache_format.read_json(path)
    for path in sorted((job.directory / cache_format.SHARDS).glob('*.json'))
    if path.stem.rpartition('-')[0] not in prefixes
  ]


def _generations(directory: pathlib.Path) -> dict[int, pathlib.Path]:
  return {
    int(path.stem.rpartition('-')[2]): path
    for path in directory.glob('generation-*.json')
  }


def write_digests(directory: pathlib.Path, generations: set[int]) -> None:
  """Seals a task's directory with the digests that its shards came with.

  Args:
    directory: of the task.
    generations: numbers of its generation files; others are removed.

  Raises:
    CacheError: one of them is damaged.
  """
  files: dict[str, str] = {}
  for number, path in _generations(directory).items():
    if number not in generations:
      path.unlink()
      continue
    files[path.name] = checksums.digest_file(path)
    meta = cache_format.TaskMeta.from_json(cache_format.read_json(path))
    for entry in meta.shards:
      shard = cache_format.shard_file(directory, entry.name)
      files[f'{cache_format.SHARDS}/{shard.name}'] = entry.digest
  checksums.write_seal(directory, files)


def _remove_others(directory: pathlib.Path) -> None:
  """Removes what the sealed task does not need."""
  sealed_files = checksums.read_seal(directory).files
  for path in (directory / cache_format.SHARDS).iterdir():
    if path.relative_to(directory).as_posix() not in sealed_files:
      path.unlink()
