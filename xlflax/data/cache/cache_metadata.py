"""cache.json: which vocabulary a cache is of, and its generations.

A generation says which tasks the mixtures have, with their rates, and which
state of each task it reads. Text that is added makes another one, and the
generations before it stay as they were.
"""

import contextlib
import dataclasses
import os
import pathlib
import shutil
from typing import Any

from xlflax.data.cache import cache_format, json_schema
from xlflax.utils import errors

_BEGUN = '.begun-'  # directories of a process each, with a header to be linked


@dataclasses.dataclass
class Generation:
  """One state of a cache.

  Attributes:
    mixtures: mixture -> split -> task -> SeqIO mixing rate.
    tasks: `task_key` -> number of its generation file, and that one's digest.
  """

  mixtures: dict[str, dict[str, dict[str, float]]]
  tasks: dict[str, dict[str, Any]]

  def copy(self) -> 'Generation':
    """Another one with the same tasks and mixtures."""
    return Generation(dict(self.mixtures), dict(self.tasks))


@dataclasses.dataclass
class Header:
  """The content of cache.json.

  Attributes:
    vocabulary: 'hash', 'size' and 'languages'.
    generations: oldest first; the first is number 1.
  """

  vocabulary: dict[str, Any]
  generations: list[Generation]

  @classmethod
  def of(cls, vocabulary) -> 'Header':
    """That of a new cache, of a `base_vocabulary.Vocabulary`."""
    return cls(
      {
        'hash': vocabulary.hash,
        'size': vocabulary.spec.size,
        'languages': list(vocabulary.spec.languages),
      },
      [],
    )

  @property
  def newest(self) -> Generation:
    """The last generation; an empty one where there is none."""
    return self.generations[-1] if self.generations else Generation({}, {})

  def older(self, key: str) -> set[int]:
    """Generation files of a task that generations but the newest read."""
    return {
      generation.tasks[key]['generation']
      for generation in self.generations[:-1]
      if key in generation.tasks
    }

  def write(self, directory: pathlib.Path) -> None:
    """Replaces cache.json."""
    cache_format.write_json(
      directory / cache_format.CACHE_FILE, self._to_json()
    )

  def _to_json(self) -> dict:
    return {'format': cache_format.FORMAT, **dataclasses.asdict(self)}


def read_metadata(directory: pathlib.Path) -> Header:
  """The content of cache.json.

  Raises:
    CacheError: it is damaged or of another format.
  """
  data = cache_format.read_json(directory / cache_format.CACHE_FILE)
  json_schema.check_header_json(data)
  return Header(
    data['vocabulary'],
    [
      Generation(entry['mixtures'], entry['tasks'])
      for entry in data['generations']
    ],
  )


def open_for_writing(
  directory: pathlib.Path, vocabulary, *, overwrite: bool
) -> Header:
  """The header of a cache, which is made if there is none.

  Several processes may call it at once, without `overwrite`.

  Raises:
    CacheError: the cache is of another vocabulary; with `overwrite` it is
      deleted instead.
  """
  path = directory / cache_format.CACHE_FILE
  if not path.exists():
    _create(directory, Header.of(vocabulary))
  header = read_metadata(directory)
  if header.vocabulary['hash'] == vocabulary.hash:
    return header
  if overwrite:
    path.unlink()
    shutil.rmtree(directory / 'tasks', ignore_errors=True)
    _create(directory, Header.of(vocabulary))
    return read_metadata(directory)
  raise errors.CacheError(
    'The cache directory was written with another vocabulary',
    got=f'hash {vocabulary.hash[:12]}',
    expected=f'hash {header.vocabulary["hash"][:12]}',
    where=directory,
    fix='Choose another --output, or replace the cache by --overwrite (a share '
    'does not: delete the directory before the first of them)',
  )


def remove_left_behind(directory: pathlib.Path) -> None:
  """Removes what killed processes left; no other may be writing."""
  for path in directory.glob(f'{_BEGUN}*'):
    shutil.rmtree(path)


def _create(directory: pathlib.Path, header: Header) -> None:
  """Writes cache.json unless another process has just done so."""
  temporary_dir = directory / f'{_BEGUN}{os.uname().nodename}-{os.getpid()}'
  temporary_dir.mkdir(exist_ok=True)
  header.write(temporary_dir)
  with contextlib.suppress(FileExistsError):
    os.link(
      temporary_dir / cache_format.CACHE_FILE,
      directory / cache_format.CACHE_FILE,
    )
  (temporary_dir / cache_format.CACHE_FILE).unlink()
  temporary_dir.rmdir()
