"""Detection of changes in the source text of a finalized cache."""

import enum
import json
import logging
from collections.abc import Mapping, Sequence

from xlflax.data.cache import cache_format, cache_metadata, write_plan
from xlflax.storage import checksums
from xlflax.utils import errors, user_modules

# (mixture, split) -> names of its tasks.
Members = Mapping[tuple[str, str], set[str]]
_MAX_LISTED = 5  # Maximum number of tasks in a warning.


class Changed(enum.Enum):
  """Action to take if the text of a cached task has changed.

  Attributes:
    ERROR: Raise an error if the text of a cached task has changed.
    REPLACE: Write all tasks from scratch, even if the cache has a different
      vocabulary.
    ADD: Write new files and new tasks as a new generation of the cache. Raise
      an error if cached files or tasks have been changed or removed.
  """

  ERROR = 'error'
  REPLACE = 'replace'
  ADD = 'add'


def check_changes(
  jobs: Sequence[write_plan.Job],
  members: Members,
  header: cache_metadata.Header,
  changed: Changed,
) -> None:
  """Checks that cached tasks are unchanged, unless `changed` permits changes.

  Args:
    jobs: Jobs that write the current text of the tasks to the cache.
    members: Mapping from (mixture, split) to the names of the current tasks.
    header: Content of the cache's `cache.json` file.
    changed: Whether to replace, extend or reject tasks whose text has changed.

  Raises:
    CacheError: If a task has changed and `changed` does not permit this change.
  """
  if changed is Changed.REPLACE:
    return
  for (mixture, split), current_tasks in members.items():
    _check_tasks(
      mixture, _cached_tasks(header, mixture, split), current_tasks, changed
    )
  for job in jobs:
    _check_text(job, find_cached_task(job, header), changed)


def describe_changed_code(
  job: write_plan.Job, header: cache_metadata.Header
) -> str | None:
  """Returns the changed source files of the user's module that defines a task.

  Args:
    job: Job that writes the task to the cache.
    header: Content of the cache's `cache.json` file.

  Returns:
    Text such as 'my_tasks.py', or None if the existing shards of the task were
    written with the current code.
  """
  if not job.code:
    return None
  meta = find_cached_task(job, header)
  recorded = [meta.fingerprint.get('code', {})] if meta else []
  for code in recorded + job.recorded_code():
    files = user_modules.describe_changed_files(code, job.code)
    if files:
      return files
  return None


def warn_of_changed_code(
  jobs: Sequence[write_plan.Job], header: cache_metadata.Header
) -> None:
  """Logs a warning for each task whose code has changed since it was cached.

  The change is not an error, because it may not affect the text.
  """
  for job in jobs:
    files = describe_changed_code(job, header)
    if files:
      logging.warning(
        'The source code of %s has changed since shards of the task %s were '
        'written. These shards are kept. To write the task with the new code, '
        'pass --overwrite or, with --shard_index, delete %s before the first '
        'job starts.',
        files,
        job.task,
        job.directory,
      )


def log_unverified_text(
  jobs: Sequence[write_plan.Job], header: cache_metadata.Header
) -> None:
  """Logs the cached tasks whose text cannot be compared.

  The text of a task without files, such as that of a
  `seqio.FunctionDataSource`, is not read again, so changes are not detected.
  """
  tasks = [
    f'{job.task} ({job.split})'
    for job in jobs
    if not json.loads(job.fingerprint)['files'] and is_finalized(job, header)
  ]
  if tasks:
    logging.info(
      'The cached text of %s is reused without a comparison, because the source '
      'of the task lists no files. If the text has changed, pass --overwrite.',
      ', '.join(tasks[:_MAX_LISTED])
      + (', …' if len(tasks) > _MAX_LISTED else ''),
    )


def needs_generation(
  jobs: Sequence[write_plan.Job],
  members: Members,
  header: cache_metadata.Header,
) -> bool:
  """Returns whether changed tasks require a new generation of the cache."""
  return any(
    job.key in header.newest.tasks and not is_finalized(job, header)
    for job in jobs
  ) or any(
    _cached_tasks(header, mixture, split) not in (set(), current_tasks)
    for (mixture, split), current_tasks in members.items()
  )


def is_finalized(job: write_plan.Job, header: cache_metadata.Header) -> bool:
  """Returns whether the newest cache generation contains all text of a task."""
  cached_prefixes = _shard_prefixes(find_cached_task(job, header))
  return cached_prefixes == _part_prefixes(job) and all(
    map(job.entry, job.finalized)
  )


def find_cached_task(
  job: write_plan.Job, header: cache_metadata.Header
) -> cache_format.TaskMeta | None:
  """Returns the metadata of a task in the newest generation.

  The result is None if the generation does not contain the task, or if the
  task's generation file is missing or damaged.
  """
  task = header.newest.tasks.get(job.key)
  if task is None:
    return None
  path = cache_format.generation_file(job.directory, task['generation'])
  if not path.exists() or checksums.digest_file(path) != task['digest']:
    return None
  return cache_format.TaskMeta.from_json(cache_format.read_json(path))


def _cached_tasks(
  header: cache_metadata.Header, mixture: str, split: str
) -> set[str]:
  return set(header.newest.mixtures.get(mixture, {}).get(split, ()))


def _part_prefixes(job: write_plan.Job) -> list[str]:
  return [part.prefix for part in job.parts]


def _shard_prefixes(meta: cache_format.TaskMeta | None) -> list[str] | None:
  """Returns the distinct prefixes of the names of a task's shards, in order."""
  if meta is None:
    return None
  names = (shard.name.rpartition('-')[0] for shard in meta.shards)
  return list(dict.fromkeys(names))


def _check_tasks(
  mixture: str, cached: set[str], current: set[str], changed: Changed
) -> None:
  """Raises a CacheError for changed tasks, unless the change is permitted."""
  added, removed = sorted(current - cached), sorted(cached - current)
  if not cached or cached == current:
    return
  if changed is Changed.ADD and not removed:
    return
  raise errors.CacheError(
    f'The tasks of the mixture {mixture} differ from the tasks in the cache',
    got='; '.join(
      f'{label}: {", ".join(names[:5])}' + (', …' if len(names) > 5 else '')
      for label, names in (('added', added), ('removed', removed))
      if names
    ),
    fix='Restore the removed text, or replace the mixture with --overwrite.'
    if removed
    else 'Write a new version of the cache with --append, or replace the '
    'mixture with --overwrite.',
  )


def _check_text(
  job: write_plan.Job, meta: cache_format.TaskMeta | None, changed: Changed
) -> None:
  """Raises a CacheError for changed text, unless the change is permitted."""
  cached_prefixes = _shard_prefixes(meta)
  current_prefixes = _part_prefixes(job)
  if meta is None or cached_prefixes is None:
    return
  if cached_prefixes == current_prefixes:
    return
  if meta.shard_size != job.shard_size:
    raise errors.CacheError(
      f'The task {job.task} was cached with --shard_size={meta.shard_size}, '
      f'but the current value is --shard_size={job.shard_size}',
      where=job.directory,
      fix='Pass the same --shard_size, or replace the cache with --overwrite.',
    )
  has_only_additions = set(cached_prefixes) <= set(current_prefixes)
  if changed is Changed.ADD and has_only_additions:
    return
  raise errors.CacheError(
    f'The source text of the task {job.task} has changed since it was cached',
    where=job.directory,
    fix=_suggest_fix(changed, has_only_additions),
  )


def _suggest_fix(changed: Changed, has_only_additions: bool) -> str:
  """Returns an error hint for a task whose cached text has changed."""
  if changed is Changed.ADD:
    return (
      'Replace the cache with --overwrite. --append requires that cached files '
      'are unchanged and that the task is read file by file.'
    )
  if has_only_additions:
    return (
      'Replace the task with --overwrite, or add its new files with --append.'
    )
  return 'Replace the task with --overwrite.'
