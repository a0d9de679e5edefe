"""Content hashes of files, which do not depend on the files' location."""

import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from xlflax.storage import checksums, paths


def hash_paths(value: Any) -> str | None:
  """Computes a hash of files' contents, or returns None if a file is missing.

  The hash includes the names of files and the keys of mappings. It does not
  include the names of parent directories.

  Args:
    value: A path, or nested lists and mappings of paths. For a directory, all
      of its files are included.
  """
  try:
    contents = _names_and_digests(value)
  except OSError:
    return None
  return checksums.digest_content(json.dumps(contents)).rpartition(':')[2][:32]


def _names_and_digests(value: Any) -> Any:
  """Replaces each path by the names and digests of its files."""
  if isinstance(value, Mapping):
    return [[key, _names_and_digests(part)] for key, part in value.items()]
  if isinstance(value, (list, tuple)):
    return [_names_and_digests(part) for part in value]
  path = paths.to_path(value)
  if path.is_dir():
    return [
      _names_and_digests(part) for part in sorted(paths.list_directory(path))
    ]
  return [path.name, _digest_file(path)]


def _digest_file(path: pathlib.Path) -> str:
  if paths.is_bucket(path):
    return checksums.digest_file(path)
  stat = path.stat()
  version = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
  return _cached_digest(path.absolute(), version)


@functools.lru_cache(maxsize=1024)
def _cached_digest(path: pathlib.Path, version: tuple[int, ...]) -> str:
  del version  # A changed file has another cache key.
  return checksums.digest_file(path)
