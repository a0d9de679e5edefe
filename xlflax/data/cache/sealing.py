"""Makes a readable task of its shards, once all of them are there."""

import dataclasses
import json
import pathlib
from collections.abc import Iterable

from xlflax import digests, errors
from xlflax.data.cache import format as cache_format
from xlflax.data.cache import jobs as cache_jobs
from xlflax.data.text_tasks import tasks as tasks_lib


def seal(
  job: cache_jobs.Job,
  tasks: tasks_lib.Tasks,
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
  found = sum(entry.examples + entry.empty for entry in entries)
  is_whole = any(part.path is None for part in job.parts)
  meta = cache_format.TaskMeta(
    task=job.task,
    split=job.split,
    languages=job.languages,
    source_examples=(is_whole and tasks.source_size(job.task, job.split))
    or found,
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
  _write_digests(job.directory, keep | {generation})
  _remove_others(job.directory)
  return meta


def _entries(job: cache_jobs.Job) -> tuple[cache_format.ShardEntry, ...]:
  """What is known of all shards, in order."""
  found, missing = [], []
  for part in job.parts:
    count = job.num_shards(part)
    if count is None:
      missing.append(part.name(0))
    for name in map(part.name, range(count or 0)):
      entry = job.entry(name)
      if entry is None:
        missing.append(name)
      else:
        found.append(entry)
  if missing:
    raise _incomplete(job, missing, len(found))
  return _with_starts(found)


def _check_libraries(
  job: cache_jobs.Job, entries: Iterable[cache_format.ShardEntry]
) -> None:
  """Raises a CacheError if new shards were tokenised by several versions."""
  shards: dict[str, list[str]] = {}
  for entry in entries:
    path = cache_format.entry_file(job.directory, entry.name)
    if path.exists():
      library = cache_format.read_json(path)['library']
      shards.setdefault(library, []).append(entry.name)
  if len(shards) > 1:
    first, *others = sorted(shards, key=lambda name: -len(shards[name]))
    raise errors.CacheError(
      f'Shards of {job.task} were tokenised by several versions of a library, '
      'which break ties differently',
      got='; '.join(
        f'{len(names)} by {name}' for name, names in shards.items()
      ),
      expected=f'one version, such as {first}',
      where=job.directory / cache_format.SHARDS,
      fix='Install one version for all workers, delete '
      + ', '.join(name for other in others for name in shards[other][:3])
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
  others = _of_other_text(job)
  if others:
    return errors.CacheError(
      f'The text of {job.task} changed while its shards were written',
      got='; '.join(others),
      expected='one state of the text for all shards: '
      + ', '.join(part.text for part in job.parts[:3]),
      where=job.directory,
      fix='Run `xlflax cache` again for every shard: those of the present '
      'text are kept, and `xlflax cache finish` deletes the others',
    )
  return errors.CacheError(
    f'Shards of {job.task} are missing or cut off',
    got=f'{found} whole, and without '
    + ', '.join(missing[:5])
    + (f' and {len(missing) - 5} more' if len(missing) > 5 else ''),
    where=job.directory / cache_format.SHARDS,
    fix='Run `xlflax cache` again with the same flags, or --shard=i/N of the '
    'array: what is there is not written again',
  )


def _of_other_text(job: cache_jobs.Job) -> list[str]:
  """Shards that are there and are not this job's, a phrase each."""
  own = tuple(part.prefix for part in job.parts)
  found = set()
  for path in (job.directory / cache_format.SHARDS).glob('*.json'):
    if path.stem.rpartition('-')[0] not in own:
      found.add(f'shards of {cache_format.read_json(path)["text"]}')
  return sorted(found)[:5]


def _generations(directory: pathlib.Path) -> dict[int, pathlib.Path]:
  return {
    int(path.stem.rpartition('-')[2]): path
    for path in directory.glob('generation-*.json')
  }


def _write_digests(directory: pathlib.Path, generations: set[int]) -> None:
  """Seals a task's directory with the digests that its shards came with."""
  files: dict[str, str] = {}
  for number, path in _generations(directory).items():
    if number not in generations:
      path.unlink()
      continue
    files[path.name] = digests.of_file(path)
    meta = cache_format.TaskMeta.from_json(cache_format.read_json(path))
    for entry in meta.shards:
      shard = cache_format.shard_file(directory, entry.name)
      files[f'{cache_format.SHARDS}/{shard.name}'] = entry.digest
  digests.write_seal(directory, files)


def _remove_others(directory: pathlib.Path) -> None:
  """Removes what the sealed task does not need."""
  known = digests.read_seal(directory).files
  for path in (directory / cache_format.SHARDS).iterdir():
    if path.relative_to(directory).as_posix() not in known:
      path.unlink()
