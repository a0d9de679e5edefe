"""The file `cache.json`, which describes a cache's vocabulary and generations.

A generation is one state of a cache. It defines the tasks and sampling rates of
all mixtures, and the state of each task. Adding text creates a new generation
and does not change older generations.
"""

import contextlib
import dataclasses
import os
import pathlib
import shutil
from typing import Any

from xlflax.data.cache import cache_format, json_schema
from xlflax.utils import errors

# Prefix of the temporary directory in which a process writes cache.json before
# it links the file to its final name.
_TEMPORARY_PREFIX = '.creating-'


@dataclasses.dataclass
class Generation:
  """Snapshot of the contents of a token cache: its tasks and mixing rates.

  Adding text to a cache creates a new generation.

  Attributes:
    mixtures: SeqIO mixing rates, as a nested mapping from mixture, split and
      task to the rate.
    tasks: Number and digest of each task's metadata file,
      `generation-<number>.json`. The keys are those of `cache_format.task_key`.
  """

  mixtures: dict[str, dict[str, dict[str, float]]]
  tasks: dict[str, dict[str, Any]]

  def copy(self) -> 'Generation':
    """Copies the generation, so that tasks can be added to the copy."""
    return Generation(dict(self.mixtures), dict(self.tasks))


@dataclasses.dataclass
class Header:
  """Content of a `cache.json` file.

  Attributes:
    vocabulary: Vocabulary's hash, size and languages, under the keys 'hash',
      'size' and 'languages'.
    generations: All generations, oldest first. The oldest generation has the
      number 1.
  """

  vocabulary: dict[str, Any]
  generations: list[Generation]

  @classmethod
  def for_vocabulary(cls, vocabulary) -> 'Header':
    """Returns the content of `cache.json` for a new cache.

    Args:
      vocabulary: Vocabulary that encodes the text
        (`base_vocabulary.Vocabulary`).
    """
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
    """The newest generation, or an empty generation if none exists."""
    return self.generations[-1] if self.generations else Generation({}, {})

  def older(self, key: str) -> set[int]:
    """Returns the numbers of the older generations of a task's metadata.

    In each generation, the metadata of the task is stored in a file named
    `generation-<number>.json`.

    Args:
      key: Key of the task and split, as returned by `cache_format.task_key`.
    """
    return {
      generation.tasks[key]['generation']
      for generation in self.generations[:-1]
      if key in generation.tasks
    }

  def write(self, directory: pathlib.Path) -> None:
    """Replaces the `cache.json` file atomically."""
    cache_format.write_json(
      directory / cache_format.CACHE_FILE, self._to_json()
    )

  def _to_json(self) -> dict:
    return {'format': cache_format.FORMAT, **dataclasses.asdict(self)}


def read_metadata(directory: pathlib.Path) -> Header:
  """Reads the `cache.json` file of a cache.

  Raises:
    CacheError: If the file is damaged or has an unknown format.
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
  """Returns the content of `cache.json`, and creates the cache if necessary.

  Several processes may call this function concurrently without `overwrite`.

  Args:
    directory: Directory of the cache.
    vocabulary: Vocabulary that encodes the text (`base_vocabulary.Vocabulary`).
    overwrite: Whether to delete an existing cache that has a different
      vocabulary.

  Raises:
    CacheError: If the cache has a different vocabulary and `overwrite` is
      False.
  """
  path = directory / cache_format.CACHE_FILE
  if not path.exists():
    _create(directory, Header.for_vocabulary(vocabulary))
  header = read_metadata(directory)
  if header.vocabulary['hash'] == vocabulary.hash:
    return header
  if overwrite:
    path.unlink()
    shutil.rmtree(directory / 'tasks', ignore_errors=True)
    _create(directory, Header.for_vocabulary(vocabulary))
    return read_metadata(directory)
  raise errors.CacheError(
    'The token cache was written with a different vocabulary. The vocabularies '
    'must have the same hash',
    got=vocabulary.hash[:12],
    expected=header.vocabulary['hash'][:12],
    where=directory,
    fix='Choose a different --output, or replace the cache with --overwrite. '
    'With --shard_index, delete the directory before you start the first '
    'job.',
  )


def remove_temporary_files(directory: pathlib.Path) -> None:
  """Removes temporary files that killed processes left in a cache.

  No other process may write to the cache at the same time.
  """
  for path in directory.glob(f'{_TEMPORARY_PREFIX}*'):
    shutil.rmtree(path)


def _create(directory: pathlib.Path, header: Header) -> None:
  """Writes cache.json, unless another process has created it concurrently."""
  temporary_dir = (
    directory / f'{_TEMPORARY_PREFIX}{os.uname().nodename}-{os.getpid()}'
  )
  temporary_dir.mkdir(exist_ok=True)
  header.write(temporary_dir)
  with contextlib.suppress(FileExistsError):
    os.link(
      temporary_dir / cache_format.CACHE_FILE,
      directory / cache_format.CACHE_FILE,
    )
  (temporary_dir / cache_format.CACHE_FILE).unlink()
  temporary_dir.rmdir()
