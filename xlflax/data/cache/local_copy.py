"""Copies a token cache to a local disk, so that training reads it there.

Each file is compared with its digest on the way. What is there already stays,
so a copy that was interrupted goes on, and one of a cache that grew by a
generation takes the new files only. Neither TensorFlow nor SeqIO is imported.
"""

import dataclasses
import pathlib
import shutil
from collections.abc import Callable, Sequence

from xlflax.data.cache import cache_format, cache_reader
from xlflax.storage import checksums, paths
from xlflax.utils import errors, validation


@dataclasses.dataclass(frozen=True)
class Staged:
  """How far the copying is, in bytes and files."""

  done_bytes: int
  total_bytes: int
  copied_files: int


@validation.validate_call
def copy_tasks(
  cache: cache_reader.TokenCache,
  directory: validation.FilePath,
  tasks: Sequence[tuple[str, str]],
  *,
  report: Callable[[Staged], None] = lambda staged: None,
) -> Staged:
  """Copies tasks of a cache; `cache.json`, which makes it one, comes last.

  Args:
    cache: what to copy from, on disk or in a bucket.
    directory: a local one; made if need be.
    tasks: (task, split) of those to copy.
    report: called after each file.

  Raises:
    CacheError: the disk is too small, or a file is not as it was written.
  """
  directory = paths.to_local_path(directory, where='xlflax cache copy')
  directory.mkdir(parents=True, exist_ok=True)
  files = _files(cache, tasks)
  sizes = {
    name: int(digest.partition('-')[0]) for name, digest in files.items()
  }
  missing = [
    name
    for name, digest in files.items()
    if not _is_there(directory / name, digest)
  ]
  _check_room(directory, sum(sizes[name] for name in missing))
  total = sum(sizes.values())
  done = total - sum(sizes[name] for name in missing)
  staged = Staged(done, total, 0)
  for count, name in enumerate(missing, start=1):
    _copy(cache.directory / name, directory / name, files[name])
    done += sizes[name]
    staged = Staged(done, total, count)
    report(staged)
  header = (cache.directory / cache_format.CACHE_FILE).read_bytes()
  paths.write_atomically(directory / cache_format.CACHE_FILE, header)
  return staged


def _files(
  cache: cache_reader.TokenCache, tasks: Sequence[tuple[str, str]]
) -> dict[str, str]:
  """Path below the cache -> digest, of all files of tasks."""
  digests = {}
  for task, split in tasks:
    source = cache_format.task_directory(cache.directory, task, split)
    below = source.relative_to(cache.directory).as_posix()
    for name, digest in checksums.read_seal(source).files.items():
      digests[f'{below}/{name}'] = digest
    seal = f'{below}/{checksums.FILE}'
    digests[seal] = checksums.digest_content(
      (source / checksums.FILE).read_bytes()
    )
  return digests


def _is_there(path: pathlib.Path, digest: str) -> bool:
  """Whether a file is there; a shard, which is never changed, by its size."""
  if str(paths.file_size(path)) != digest.partition('-')[0]:
    return False
  return (
    path.suffix == cache_format.SUFFIX
    or checksums.digest_content(path.read_bytes(), like=digest) == digest
  )


def _check_room(directory: pathlib.Path, needed: int) -> None:
  free = shutil.disk_usage(directory).free
  if needed > free:
    raise errors.CacheError(
      'The token cache does not fit on the disk',
      got=f'{free:,} bytes free',
      expected=f'{needed:,}',
      where=directory,
      fix='Choose another destination, or read the cache where it lies',
    )


def _copy(source: pathlib.Path, target: pathlib.Path, digest: str) -> None:
  content = source.read_bytes()
  if checksums.digest_content(content, like=digest) != digest:
    raise errors.CacheError(
      'A file of the token cache is not as it was written',
      where=str(source),
      fix='Look with `xlflax cache verify`; write the file again',
    )
  paths.write_atomically(target, content)
