"""What lies at some paths, told by its content and not by its place."""

import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from xlflax.storage import digests, paths


def of_paths(value: Any) -> str | None:
  """What lies at some paths, wherever they lie; None where one is missing.

  Names of files and of parts count, folders that lead to them do not.

  Args:
    value: a path, or lists and mappings of such. Of a folder, all files in it
      count.
  """
  try:
    found = _contents(value)
  except OSError:
    return None
  return digests.of_content(json.dumps(found)).rpartition(':')[2][:32]


def _contents(value: Any) -> Any:
  """The same with names and digests of files in the place of paths."""
  if isinstance(value, Mapping):
    return [[key, _contents(part)] for key, part in value.items()]
  if isinstance(value, (list, tuple)):
    return [_contents(part) for part in value]
  path = paths.of(value)
  if path.is_dir():
    return [_contents(part) for part in sorted(paths.children(path))]
  return [path.name, _digest_now(path)]


def _digest_now(path: pathlib.Path) -> str:
  if paths.is_bucket(path):
    return digests.of_file(path)
  stat = path.stat()
  version = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
  return _remembered(path.absolute(), version)


@functools.lru_cache(maxsize=1024)
def _remembered(path: pathlib.Path, version: tuple[int, ...]) -> str:
  del version  # A changed file is another key.
  return digests.of_file(path)
