"""Repair of token caches: damaged files are removed and written again."""

import pathlib
from collections.abc import Sequence

from xlflax.cli import cache
from xlflax.utils import errors


def rewrite_damaged_files(
  directory: pathlib.Path,
  *,
  vocabulary: str,
  corpus: str | None,
  task_module: Sequence[str],
  tfds_data_dir: str | None,
) -> list[str]:
  """Removes a cache's damaged files and writes missing files again.

  Args:
    directory: Directory of the cache.
    vocabulary: Vocabulary with which the cache was written.
    corpus: Corpus from which the cache was written.
    task_module: Modules that register the cache's tasks.
    tfds_data_dir: Directory that contains prepared TensorFlow Datasets.

  Returns:
    The paths of the removed files, relative to `directory`.

  Raises:
    CacheError: If the text or the vocabulary differs from that of the cache.
    CorpusError: If the corpus is invalid.
  """
  from xlflax.data.cache import cache_writer
  from xlflax.integrity import cache_integrity

  shard_sizes = _shard_sizes(directory) or {cache_writer.SHARD_SIZE}
  damaged = cache_integrity.damaged_files(directory)
  for path in damaged:
    path.unlink()
  for mixture, splits in _mixtures(directory, corpus).items():
    for shard_size in shard_sizes:
      options = cache.CacheOptions(
        output=str(directory),
        vocabulary=vocabulary,
        corpus=corpus,
        split=tuple(splits),
        shard_size=shard_size,
        task_module=tuple(task_module),
        tfds_data_dir=tfds_data_dir,
      )
      cache.write(options, [mixture])
  return [path.relative_to(directory).as_posix() for path in damaged]


def _mixtures(
  directory: pathlib.Path, corpus: str | None
) -> dict[str, list[str]]:
  """Returns the splits of each mixture.

  The splits are read from the cache's header. If the header is damaged, the
  corpus's mixtures are used.
  """
  from xlflax.data.cache import cache_metadata

  try:
    newest = cache_metadata.read_metadata(directory).newest
  except errors.CacheError:
    splits = sorted({path.name for path in directory.glob('tasks/*/*')})
    return {name: splits for name in cache.corpus_mixtures(corpus)}
  return {name: sorted(splits) for name, splits in newest.mixtures.items()}


def _shard_sizes(directory: pathlib.Path) -> set[int]:
  """Returns the shard sizes of the tasks in a cache."""
  from xlflax.data.cache import cache_format

  sizes = set()
  for path in directory.glob('tasks/*/*/generation-*.json'):
    try:
      sizes.add(int(cache_format.read_json(path)['shard_size']))
    except errors.CacheError:
      continue
  return sizes
