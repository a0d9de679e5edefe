"""Finalization of cached tasks once all of their shards have been written."""

import dataclasses
import json
import logging
import pathlib
from collections.abc import Iterable

from xlflax.data import task_errors
from xlflax.data.cache import cache_format, shard_plan, write_plan
from xlflax.data.plain_text import text_tasks
from xlflax.storage import checksums
from xlflax.utils import errors, name_suggestions, plurals


def finalize_task(
  job: write_plan.Job,
  tasks: text_tasks.Tasks,
  generation: int,
  *,
  older_generations: set[int],
) -> cache_format.TaskMeta:
  """Writes a task's metadata and digests, which makes the task readable.

  Shards that are not used by any remaining generation are deleted.

  Args:
    job: Job whose shards have all been written.
    tasks: Registered tasks, including the job's task.
    generation: Number of the cache's new generation.
    older_generations: Numbers of the task's metadata files that older
      generations of the cache use. These files are kept.

  Returns:
    The metadata of the task.

  Raises:
    CacheError: If a shard is missing or truncated, or if shards differ in their
      text, vocabulary or tokenization library.
    CorpusError: If there are no examples, or if no example has a token.
  """
  entries = _read_entries(job)
  _check_libraries(job, entries)
  num_examples = sum(entry.examples + entry.empty for entry in entries)
  # A task that is not read file by file may report the size of its source.
  source_size = None
  if any(part.path is None for part in job.parts):
    source_size = tasks.source_size(job.task, job.split)
    if source_size is not None and source_size != num_examples:
      _check_source_size(job, tasks, source_size)
  meta = cache_format.TaskMeta(
    task=job.task,
    split=job.split,
    languages=job.languages,
    source_examples=source_size or num_examples,
    vocabulary=job.vocabulary,
    fingerprint=json.loads(job.fingerprint),
    shard_size=job.shard_size,
    shards=entries,
  )
  if not meta.examples and not meta.empty:
    raise task_errors.no_text_error(job.task, job.split)
  if not meta.examples:
    raise errors.CorpusError(
      f'The split {job.split!r} of the task {job.task} contains no text to '
      'cache, because all of its examples are empty. It has '
      f'{plurals.format_count(meta.empty, "example")}',
      fix='Add text to the task, or remove it from the mixture.',
    )
  path = cache_format.generation_file(job.directory, generation)
  cache_format.write_json(path, meta.to_json())
  write_digests(job.directory, older_generations | {generation})
  _remove_unused_files(job.directory)
  return meta


def _check_source_size(
  job: write_plan.Job, tasks: text_tasks.Tasks, source_size: int
) -> None:
  """Logs a warning if a source does not have the declared number of examples.

  The number of written examples may differ, because preprocessors may drop
  examples. The examples of the source itself are therefore counted.
  """
  count = tasks.count_source(job.task, job.split)
  if count is not None and count != source_size:
    logging.warning(
      '%s, and write the cache again.',
      text_tasks.describe_wrong_size(job.task, job.split, source_size, count),
    )


def check_rewritten_shards(job: write_plan.Job) -> None:
  """Checks that rewritten shards are identical to the lost shards they replace.

  If a shard's content is unchanged, its separate metadata file is removed.

  Raises:
    CacheError: If the content of a rewritten shard differs from the lost shard.
  """
  for name, finalized_entry in job.finalized.items():
    path = cache_format.entry_file(job.directory, name)
    current_entry = job.entry(name) if path.exists() else None
    if current_entry is None:
      continue
    if current_entry.digest != finalized_entry.digest:
      raise errors.CacheError(
        f'A lost shard of the task {job.task} was written again with different '
        'content. The lost shard was tokenized with '
        f'{finalized_entry.library}, and the new shard was tokenized with '
        f'{current_entry.library}',
        where=cache_format.shard_file(job.directory, name),
        fix='Delete the new shard, and write it again with the library version '
        'that tokenized the lost shard.',
      )
    path.unlink()


def _read_entries(job: write_plan.Job) -> tuple[cache_format.ShardEntry, ...]:
  """Returns the metadata of all shards of a task, in order.

  Raises:
    CacheError: If a shard is missing or truncated.
  """
  entries: list[cache_format.ShardEntry] = []
  missing: list[str] = []
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
    raise _incomplete_error(job, missing, len(entries))
  return _set_starts(entries)


def _is_last(
  entry: cache_format.ShardEntry, job: write_plan.Job, part: shard_plan.Part
) -> bool:
  """Returns whether a shard contains the last examples of its source part.

  If a source is divided by examples, empty shards can follow its last shard.
  They exist if the source has fewer examples than its reported size, or if a
  process was killed after it wrote the last shard but before it recorded the
  end of the source.
  """
  length = shard_plan.examples_in_shard(job.shard_size)
  return part.num_bytes is None and entry.examples + entry.empty < length


def _check_libraries(
  job: write_plan.Job, entries: Iterable[cache_format.ShardEntry]
) -> None:
  """Raises a CacheError if several library versions tokenized the shards."""
  names_by_library: dict[str, list[str]] = {}
  for entry in entries:
    names_by_library.setdefault(entry.library, []).append(entry.name)
  if len(names_by_library) == 1:
    return
  # Prefer the version of finalized shards, then that of most shards.
  preferred, *other_libraries = sorted(
    names_by_library,
    key=lambda library: (
      job.finalized.keys().isdisjoint(names_by_library[library]),
      -len(names_by_library[library]),
    ),
  )
  deletable = [
    name for library in other_libraries for name in names_by_library[library]
  ]
  raise errors.CacheError(
    f'All shards of the task {job.task} must be tokenized with the same '
    'library version, because different versions may encode the same text '
    'differently',
    got='; '.join(
      f'{len(names)} by {library}'
      for library, names in names_by_library.items()
    ),
    where=job.directory / cache_format.SHARDS,
    fix=f'Install the same version for all workers, such as {preferred}. '
    + f'Delete {name_suggestions.format_names(deletable)}, and write them '
    'again.',
  )


def _set_starts(
  entries: list[cache_format.ShardEntry],
) -> tuple[cache_format.ShardEntry, ...]:
  """Sets whether each shard's first example starts a document."""
  updated: list[cache_format.ShardEntry] = []
  begins = True  # The first example of a task starts a document.
  for entry in entries:
    updated.append(dataclasses.replace(entry, starts=begins))
    begins = entry.begins or (begins and not entry.examples)
  return tuple(updated)


def _incomplete_error(
  job: write_plan.Job, missing: list[str], num_complete: int
) -> errors.CacheError:
  """Returns the error for a task with missing shards, with the likely cause.

  Args:
    job: Job that writes the task.
    missing: Names of the missing shards.
    num_complete: Number of complete shards.
  """
  other_shards = _read_other_entries(job)
  sizes = {other['shard_size'] for other in other_shards} - {job.shard_size}
  if sizes:
    return errors.CacheError(
      f'All shards of the task {job.task} must be written with the same '
      '--shard_size. Some shards were written with '
      f'{" or ".join(f"--shard_size={size}" for size in sorted(sizes))}, but '
      f'this job uses --shard_size={job.shard_size}',
      where=job.directory / cache_format.SHARDS,
      fix='Pass the same --shard_size to all jobs and to `xlflax cache '
      'finalize`.',
    )
  if other_shards:
    return errors.CacheError(
      f'All shards of the task {job.task} must be written from the same text, '
      'but the text changed while the shards were written',
      got='; '.join(sorted({other['text'] for other in other_shards})[:5]),
      expected=', '.join(part.text for part in job.parts[:3]),
      where=job.directory,
      fix='Run `xlflax cache` again for every --shard_index. Shards of the '
      'current text are kept, and `xlflax cache finalize` deletes the '
      'others.',
    )
  more = f' and {len(missing) - 5} more' if len(missing) > 5 else ''
  return errors.CacheError(
    f'The task {job.task} has {num_complete} complete shards, but other '
    'shards are missing or truncated: '
    f'{", ".join(missing[:5])}{more}',
    where=job.directory / cache_format.SHARDS,
    fix='Run `xlflax cache` again with the same flags, or with '
    '--shard_index=I for the incomplete jobs. Complete shards are not '
    'written again.',
  )


def _read_other_entries(job: write_plan.Job) -> list[dict]:
  """Reads the metadata of shards that do not belong to the given job."""
  prefixes = tuple(part.prefix for part in job.parts)
  return [
    cache_format.read_json(path)
    for path in sorted((job.directory / cache_format.SHARDS).glob('*.json'))
    if path.stem.rpartition('-')[0] not in prefixes
  ]


def _list_generations(directory: pathlib.Path) -> dict[int, pathlib.Path]:
  """Returns a task's metadata files, by generation number."""
  return {
    int(path.stem.rpartition('-')[2]): path
    for path in directory.glob('generation-*.json')
  }


def write_digests(directory: pathlib.Path, generations: set[int]) -> None:
  """Writes a task's `digests.json` with the recorded digests of its shards.

  Args:
    directory: Directory of the task.
    generations: Numbers of the metadata files (`generation-<number>.json`) to
      keep. All others are removed.

  Raises:
    CacheError: If a metadata file is damaged.
  """
  files: dict[str, str] = {}
  for number, path in _list_generations(directory).items():
    if number not in generations:
      path.unlink()
      continue
    files[path.name] = checksums.digest_file(path)
    meta = cache_format.TaskMeta.from_json(cache_format.read_json(path))
    for entry in meta.shards:
      shard = cache_format.shard_file(directory, entry.name)
      files[f'{cache_format.SHARDS}/{shard.name}'] = entry.digest
  checksums.write_seal(directory, files)


def _remove_unused_files(directory: pathlib.Path) -> None:
  """Removes files in the shard directory that `digests.json` does not list."""
  listed_files = checksums.read_seal(directory).files
  for path in (directory / cache_format.SHARDS).iterdir():
    if path.relative_to(directory).as_posix() not in listed_files:
      path.unlink()
