"""What has changed between a sealed cache and its text, and what may."""

import enum
from collections.abc import Mapping, Sequence

from xlflax.data.cache import cache_format
from xlflax.data.cache import cache_metadata as cache_header
from xlflax.data.cache import write_plan as cache_jobs
from xlflax.storage import checksums
from xlflax.utils import errors

# (mixture, split) -> names of its tasks.
Members = Mapping[tuple[str, str], set[str]]


class Changed(enum.Enum):
  """What becomes of a task that is in the cache and whose text has changed.

  REFUSE: an error. REPLACE: all is written anew, a cache of another vocabulary
  too. ADD: new files and new tasks of a mixture make a new generation
  of the cache; files and tasks that have changed or are gone are an error.
  """

  REFUSE = 'refuse'
  REPLACE = 'replace'
  ADD = 'add'


def check_changes(
  jobs: Sequence[cache_jobs.Job],
  members: Members,
  header: cache_header.Header,
  changed: Changed,
) -> None:
  """Raises a CacheError for a change that `changed` does not allow."""
  if changed is Changed.REPLACE:
    return
  for (mixture, split), current_tasks in members.items():
    _check_tasks(
      mixture, _before(header, mixture, split), current_tasks, changed
    )
  for job in jobs:
    _check_text(job, find_known_task(job, header), changed)


def needs_generation(
  jobs: Sequence[cache_jobs.Job], members: Members, header: cache_header.Header
) -> bool:
  """Whether what the newest generation has would become something else."""
  return any(
    job.key in header.newest.tasks and not is_sealed(job, header)
    for job in jobs
  ) or any(
    _before(header, *name) not in (set(), current_tasks)
    for name, current_tasks in members.items()
  )


def is_sealed(job: cache_jobs.Job, header: cache_header.Header) -> bool:
  """Whether the newest generation has all of a task, and its files are there."""
  return _prefixes(find_known_task(job, header)) == _own_prefixes(job) and all(
    map(job.entry, job.sealed)
  )


def find_known_task(
  job: cache_jobs.Job, header: cache_header.Header
) -> cache_format.TaskMeta | None:
  """What the newest generation says of a task; None if it lacks it."""
  task = header.newest.tasks.get(job.key)
  if task is None:
    return None
  path = cache_format.generation_file(job.directory, task['generation'])
  if not path.exists() or checksums.digest_file(path) != task['digest']:
    return None
  return cache_format.TaskMeta.from_json(cache_format.read_json(path))


def _before(header: cache_header.Header, mixture: str, split: str) -> set[str]:
  return set(header.newest.mixtures.get(mixture, {}).get(split, ()))


def _own_prefixes(job: cache_jobs.Job) -> list[str]:
  return [part.prefix for part in job.parts]


def _prefixes(meta: cache_format.TaskMeta | None) -> list[str] | None:
  """Of the names of a task's shards, in order."""
  if meta is None:
    return None
  names = (shard.name.rpartition('-')[0] for shard in meta.shards)
  return list(dict.fromkeys(names))


def _check_tasks(
  mixture: str, before: set[str], now: set[str], changed: Changed
) -> None:
  new, gone = sorted(now - before), sorted(before - now)
  if not before or before == now or (changed is Changed.ADD and not gone):
    return
  raise errors.CacheError(
    f'{mixture} has other tasks than in the cache',
    got='; '.join(
      f'{label}: {", ".join(names[:5])}' + (', …' if len(names) > 5 else '')
      for label, names in (('new', new), ('gone', gone))
      if names
    ),
    fix='Give back the text that is gone, or replace the mixture by --overwrite'
    if gone
    else 'Make a new generation of the cache by --append, or replace the mixture '
    'by --overwrite',
  )


def _check_text(
  job: cache_jobs.Job, meta: cache_format.TaskMeta | None, changed: Changed
) -> None:
  before, own_prefixes = _prefixes(meta), _own_prefixes(job)
  if meta is None or before is None or before == own_prefixes:
    return
  if meta.shard_size != job.shard_size:
    raise errors.CacheError(
      f'{job.task} was cached in shards of another size',
      got=f'--shard_size={job.shard_size}',
      expected=f'--shard_size={meta.shard_size}',
      where=job.directory,
      fix='Give that size, or replace what is there by --overwrite',
    )
  grew = set(before) <= set(own_prefixes)
  if changed is Changed.ADD and grew:
    return
  raise errors.CacheError(
    f'The source of {job.task} has changed since it was cached',
    where=job.directory,
    fix=_fix(changed, grew),
  )


def _fix(changed: Changed, grew: bool) -> str:
  """What to do about text that has changed."""
  if changed is Changed.ADD:
    return (
      'Files that are cached must stay as they are, and a task that is not '
      'read file by file cannot grow; replace all by --overwrite'
    )
  replace = 'Replace it by --overwrite'
  return replace + ', or add its new files by --append' if grew else replace
