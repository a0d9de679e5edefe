"""Copying of token caches to a local disk for training.

Each file is compared with its digest while it is copied. Existing files are
kept. To resume an interrupted copy, run it again. If the cache has a new
generation, only the new files are copied. This module does not import
TensorFlow or SeqIO.
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
  """Progress of copying a cache to a local directory.

  Attributes:
    done_bytes: Number of bytes that exist in the copy so far.
    total_bytes: Total number of bytes in the copy.
    copied_files: Number of files copied so far, excluding files that already
      existed.
  """

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
  """Copies tasks from a cache to a local directory.

  The file `cache.json`, which makes the directory a cache, is written last.

  Args:
    cache: Cache to copy from, on disk or in a bucket.
    directory: Local directory. It is created if necessary.
    tasks: Pairs (task, split) to copy.
    report: Function that is called with the progress after each file.

  Returns:
    The final progress.

  Raises:
    CacheError: If the disk is too small, or if a file does not match its
      digest.
  """
  directory = paths.to_local_path(directory, where='xlflax cache copy')
  directory.mkdir(parents=True, exist_ok=True)
  files = _read_digests(cache, tasks)
  sizes = {
    name: int(digest.partition('-')[0]) for name, digest in files.items()
  }
  missing = [
    name
    for name, digest in files.items()
    if not _is_complete(directory / name, digest)
  ]
  missing_bytes = sum(sizes[name] for name in missing)
  _check_free_space(directory, missing_bytes)
  total_bytes = sum(sizes.values())
  done_bytes = total_bytes - missing_bytes
  staged = Staged(done_bytes, total_bytes, 0)
  for count, name in enumerate(missing, start=1):
    _copy_file(cache.directory / name, directory / name, files[name])
    done_bytes += sizes[name]
    staged = Staged(done_bytes, total_bytes, count)
    report(staged)
  header = (cache.directory / cache_format.CACHE_FILE).read_bytes()
  paths.write_atomically(directory / cache_format.CACHE_FILE, header)
  return staged


def _read_digests(
  cache: cache_reader.TokenCache, tasks: Sequence[tuple[str, str]]
) -> dict[str, str]:
  """Returns the digests of all task files, by path relative to the cache."""
  digests = {}
  for task, split in tasks:
    source = cache_format.task_directory(cache.directory, task, split)
    folder = source.relative_to(cache.directory).as_posix()
    for name, digest in checksums.read_seal(source).files.items():
      digests[f'{folder}/{name}'] = digest
    digests[f'{folder}/{checksums.FILE}'] = checksums.digest_content(
      (source / checksums.FILE).read_bytes()
    )
  return digests


def _is_complete(path: pathlib.Path, digest: str) -> bool:
  """Returns whether a file exists and matches its digest.

  Shards never change, so only the file sizes are compared.
  """
  if str(paths.file_size(path)) != digest.partition('-')[0]:
    return False
  return (
    path.suffix == cache_format.SUFFIX
    or checksums.digest_content(path.read_bytes(), like=digest) == digest
  )


def _check_free_space(directory: pathlib.Path, required: int) -> None:
  """Raises a CacheError if the disk has less than the required free bytes."""
  free = shutil.disk_usage(directory).free
  if required > free:
    raise errors.CacheError(
      f'The copy of the token cache requires {required:,} bytes, but only '
      f'{free:,} bytes are free on the disk',
      where=directory,
      fix='Choose a different destination, or read the original cache.',
    )


def _copy_file(source: pathlib.Path, target: pathlib.Path, digest: str) -> None:
  """Copies a file atomically after verifying its digest."""
  content = source.read_bytes()
  if checksums.digest_content(content, like=digest) != digest:
    raise errors.CacheError(
      'A file of the token cache does not match its digest',
      where=str(source),
      fix='Run `xlflax cache verify`, and write the damaged files again.',
    )
  paths.write_atomically(target, content)
