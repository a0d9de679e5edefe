"""Reader for token caches, which does not import TensorFlow or SeqIO.

A cache is rejected when it is opened if it is missing or incomplete, if it was
written with a different vocabulary, or if its corpus has changed since it was
written.
"""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Collection, Iterator
from typing import Any

from xlflax.data.batching import sequence_index
from xlflax.data.cache import cache_format, cache_metadata, ragged_arrays
from xlflax.data.corpus import corpus_directory
from xlflax.data.dictionaries import code_switching
from xlflax.data.dictionaries.bilingual_dictionary import Dictionary
from xlflax.storage import bucket_staging, checksums, paths
from xlflax.utils import errors, name_suggestions, validation

# Maximum size in bytes of files whose content is verified whenever a cache is
# opened.
_MAX_VERIFIED_SIZE = 1 << 16


@dataclasses.dataclass(frozen=True)
class CachedTask:
  """One split of a task, opened from a token cache.

  Attributes:
    meta: Metadata of the task: languages, sizes and statistics.
    sides: Texts of the task: one item for monolingual text, or source and
      target. They are read from the disk or bucket on demand.
    shards: Reader for the shards of the task. Its method `starts_document`
      returns the document boundaries.
  """

  meta: cache_format.TaskMeta
  sides: tuple[sequence_index.Texts, ...]
  shards: ragged_arrays.Shards


class TokenCache:
  """Cache directory written by `xlflax cache`."""

  OPENED_BY = 'xlflax.data.cache.cache_reader.TokenCache({})'

  @validation.validate_call
  def __init__(
    self,
    directory: validation.FilePath,
    *,
    generation: validation.PositiveInt | None = None,
  ):
    """Opens a cache.

    Args:
      directory: Directory of the cache.
      generation: Number of the generation to read, counted from 1. If None, the
        newest generation is read.

    Raises:
      CacheError: If the directory contains no cache, if the cache's format is
        not supported, or if the generation does not exist.
    """
    self.directory = bucket_staging.find_written_copy(
      paths.to_path(directory), cache_format.CACHE_FILE
    )
    path = self.directory / cache_format.CACHE_FILE
    if not path.is_file():
      raise errors.CacheError(
        f'The directory {self.directory} is not a token cache. It does not '
        f'contain the file {cache_format.CACHE_FILE}',
        fix=f'The directory {directory} is a corpus directory. Pass it as '
        '--corpus, and pass the directory that `xlflax cache` wrote as --cache.'
        if corpus_directory.is_corpus_directory(self.directory)
        else rebuild_command(self.directory),
      )
    self._header = cache_metadata.read_metadata(self.directory)
    num_generations = len(self._header.generations)
    self.generation = num_generations if generation is None else generation
    if num_generations and not 1 <= self.generation <= num_generations:
      raise errors.CacheError(
        'The requested generation of the token cache must be between 1 and '
        f'{num_generations}, which is the newest generation',
        got=generation,
        where=self.directory,
      )
    if not num_generations:
      raise errors.CacheError(
        'The token cache is incomplete, because none of its tasks is '
        'finalized. A task is finalized when all its shards have been '
        'written, because the order of examples and the sampling rates depend '
        'on the number of examples',
        where=self.directory,
        fix='Wait until the cache has been written, or run the same `xlflax '
        'cache` command again to resume. If you use --shard_index, run '
        '`xlflax cache finalize` after the last shard.',
      )
    self._tasks = self._header.generations[self.generation - 1].tasks
    self._meta = functools.cache(self._read_meta)
    self._is_complete = functools.cache(self._has_task)

  @property
  def mixtures(self) -> dict[str, dict[str, dict[str, float]]]:
    """SeqIO mixing rates, by mixture, split and task."""
    return self._header.generations[self.generation - 1].mixtures

  def check_vocabulary(self, vocabulary) -> None:
    """Checks that the cache was written with the given vocabulary.

    Raises:
      CacheError: If the cache was written with a different vocabulary.
    """
    stored = self._header.vocabulary
    if stored['hash'] != vocabulary.hash:
      raise errors.CacheError(
        'The token cache was written with a different vocabulary. The '
        f'vocabulary of the cache has {stored["size"]} tokens and the hash '
        f'{stored["hash"][:12]}, but the current vocabulary has '
        f'{vocabulary.spec.size} tokens and the hash {vocabulary.hash[:12]}',
        where=self.directory,
        fix='Pass the vocabulary with which the cache was written, or write '
        'another cache: '
        + _format_command(
          'DIR', min(self.mixtures, default='MIXTURE'), 'train'
        ),
      )

  def rates(self, mixture: str, split: str) -> dict[str, float]:
    """Returns the mixing rates of a mixture's tasks for the given split.

    Raises:
      CacheError: If the cache does not contain the mixture or the split.
    """
    if mixture not in self.mixtures:
      if self._is_complete(mixture, split):
        return {mixture: 1.0}
      tasks = {
        task
        for splits in self.mixtures.values()
        for task in splits.get(split, ())
        if self._is_complete(task, split)
      }
      names = [*sorted(self.mixtures), *sorted(tasks.difference(self.mixtures))]
      raise errors.CacheError(
        'The mixture or task does not exist in the token cache',
        got=repr(mixture),
        expected='one of ' + name_suggestions.format_names(names),
        where=self.directory,
        fix=name_suggestions.suggestion_or_hint(
          mixture, names, rebuild_command(self.directory, mixture, split)
        ),
      )
    splits = self.mixtures[mixture]
    if split not in splits:
      raise errors.CacheError(
        f'The mixture {mixture!r} does not have the requested split in the '
        'token cache',
        got=repr(split),
        expected='one of ' + ', '.join(sorted(splits)),
        where=self.directory,
        fix=name_suggestions.suggest_split(split, splits)
        or rebuild_command(self.directory, mixture, split),
      )
    return splits[split]

  def open(self, mixture: str, split: str) -> dict[str, CachedTask]:
    """Opens all tasks of a mixture.

    Returns:
      The tasks, by name.

    Raises:
      CacheError: If a task is incomplete, or if its files are damaged.
    """
    tasks = self._complete_tasks(mixture, split)
    return {task: self._open_task(task, split) for task in tasks}

  def digest(self, mixture: str, split: str) -> str:
    """Returns a digest of a mixture's tokens, for comparing caches."""
    return checksums.digest_json(
      {
        task: self._tasks[cache_format.task_key(task, split)]['digest']
        for task in self._complete_tasks(mixture, split)
      }
    )

  def signature(self, mixture: str, split: str) -> str:
    """Returns a signature that changes whenever a file of a mixture changes.

    The signature is computed without reading the shards.
    """
    stats = [
      [name, *_stamp(self.directory, name)]
      for name in self._files(mixture, split)
    ]
    return checksums.digest_json([self.digest(mixture, split), *stats])

  def verify(self, mixture: str, split: str) -> None:
    """Reads all files of a mixture's tasks and verifies their digests.

    Raises:
      CacheError: If files have changed. The message lists the changed files.
    """
    problems = []
    for task in self._complete_tasks(mixture, split):
      directory = cache_format.task_directory(self.directory, task, split)
      problems += [
        f'{task}: {text}' for text in checksums.find_problems(directory)
      ]
    if problems:
      raise errors.CacheError(
        'Some files of the token cache have changed since the cache was '
        'written',
        got='; '.join(problems[:20]),
        where=self.directory,
        fix='Delete the changed files. '
        + rebuild_command(self.directory, mixture, split),
      )

  def _files(self, mixture: str, split: str) -> Iterator[str]:
    """Yields the paths of a mixture's files within the cache directory."""
    for task in self._complete_tasks(mixture, split):
      meta_file = self._meta_file(task, split)
      folder = meta_file.parent.relative_to(self.directory).as_posix()
      yield f'{folder}/{checksums.FILE}'
      yield f'{folder}/{meta_file.name}'
      # There can be many shards, so their paths are formatted as strings.
      for shard in self._meta(task, split).shards:
        yield (
          f'{folder}/{cache_format.SHARDS}/{shard.name}{cache_format.SUFFIX}'
        )

  def _complete_tasks(self, mixture: str, split: str) -> dict[str, float]:
    """Checks that a mixture's tasks are all cached, and returns their rates."""
    tasks = self.rates(mixture, split)
    missing = [task for task in tasks if not self._is_complete(task, split)]
    if missing:
      raise errors.CacheError(
        f'The token cache contains only {len(tasks) - len(missing)} of '
        f'{len(tasks)} tasks of the mixture {mixture!r} for the split '
        f'{split!r}. The missing tasks are '
        f'{", ".join(missing[:5])}{", …" if len(missing) > 5 else ""}',
        where=self.directory,
        fix='Run the same command again to resume: '
        + _format_command(self.directory, mixture, split),
      )
    return tasks

  def check_corpus(
    self,
    corpus,
    mixture: str,
    split: str,
    languages: Collection[str] | None = None,
  ) -> None:
    """Checks that no text or dictionary has changed since it was cached.

    Tasks that do not read a corpus directory are not checked. If the cache has
    a newer generation, files and languages that were added to the corpus are
    ignored.

    Args:
      corpus: Corpus from which the cache was written.
      mixture: Name of the mixture whose tasks are checked.
      split: Name of the split that is checked in each task, such as 'train'.
      languages: Languages that are read. If None, all languages are read.

    Raises:
      CacheError: If text or dictionaries have changed.
    """
    self._check_members(corpus, mixture, split, languages)
    for task in self.rates(mixture, split):
      if not task.startswith('corpus.'):
        continue
      meta = self._meta(task, split)
      current_files = [
        dataclasses.astuple(file)
        for file in corpus.group_fingerprint(*meta.languages, split=split)
      ]
      if self.generation < len(self._header.generations):
        cached_files = {name for name, *_ in meta.fingerprint['files']}
        current_files = [
          file for file in current_files if file[0] in cached_files
        ]
      changes = _find_changes(meta.fingerprint['files'], current_files)
      changes += _find_dictionary_changes(meta, corpus)
      if changes:
        raise errors.CacheError(
          f'The text of the task {task} has changed since the token cache was '
          'written',
          got='; '.join(changes),
          where=corpus.directory,
          fix=rebuild_command(self.directory, mixture, split)
          + ' --overwrite, or with --append if files were only added.',
        )

  def _check_members(self, corpus, mixture, split, languages):
    """Checks that the newest generation has all languages of the corpus.

    Raises:
      CacheError: If the corpus has text in languages that the cache does not
        contain.
    """
    corpus_members = {
      'corpus.mono': [(code,) for code in corpus.languages],
      'corpus.parallel': corpus.pairs,
    }
    cached_members = {
      self._meta(task, split).languages for task in self.rates(mixture, split)
    }
    new = [
      '-'.join(member)
      for member in corpus_members.get(mixture, ())
      if member not in cached_members
      and split in corpus.splits(*member)
      and (languages is None or set(member) <= set(languages))
    ]
    if new and self.generation == len(self._header.generations):
      raise errors.CacheError(
        'The corpus has text in languages that the token cache does not '
        'contain',
        got=', '.join(new[:5]) + (', …' if len(new) > 5 else ''),
        where=corpus.directory,
        fix=rebuild_command(self.directory, mixture, split)
        + ' --append, or select languages with DatasetConfig.languages.',
      )

  def _has_task(self, task, split):
    """Returns whether a generation of the cache contains a task's split."""
    key = cache_format.task_key(task, split)
    return key in self._tasks and self._meta_file(task, split).is_file()

  def _meta_file(self, task, split):
    """Returns the path of a task's metadata file."""
    task_entry = self._tasks[cache_format.task_key(task, split)]
    return cache_format.generation_file(
      cache_format.task_directory(self.directory, task, split),
      task_entry['generation'],
    )

  def _read_meta(self, task, split):
    return cache_format.TaskMeta.from_json(
      cache_format.read_json(self._meta_file(task, split))
    )

  def _open_task(self, task, split):
    """Opens a task, and checks its files and its vocabulary."""
    directory = cache_format.task_directory(self.directory, task, split)
    self._check_seal(directory, task, split)
    meta = self._meta(task, split)
    if meta.vocabulary != self._header.vocabulary['hash']:
      raise errors.CacheError(
        f'The task {task} in the token cache was tokenized with a different '
        'vocabulary than the rest of the cache',
        where=directory,
        fix=rebuild_command(self.directory),
      )
    shards = ragged_arrays.Shards(directory, meta)
    sides = tuple(
      ragged_arrays.ShardedTexts(shards, side, index)
      for index, side in enumerate(meta.sides)
    )
    return CachedTask(meta, sides, shards)

  def _check_seal(self, directory, task, split) -> None:
    """Checks the sizes of a task's files, and the content of small files.

    Raises:
      CacheError: If a file is missing or has changed.
    """
    task_entry = self._tasks[cache_format.task_key(task, split)]
    problems = checksums.find_problems(directory, largest=_MAX_VERIFIED_SIZE)
    if not problems and (
      checksums.digest_file(
        self._meta_file(task, split), like=task_entry['digest']
      )
      != task_entry['digest']
    ):
      problems = ['the files belong to a different task or cache']
    if problems:
      raise errors.CacheError(
        'The token cache is damaged',
        got='; '.join(problems[:20]),
        where=directory,
        fix='Delete the changed files. Missing and truncated files are written '
        'again. ' + rebuild_command(self.directory),
      )


def _stamp(directory: pathlib.Path, name: str) -> tuple[int, ...]:
  """Returns the size, inode and times of a file on disk or in a bucket.

  In a bucket, the stamp contains only the size and the modification time.
  """
  if paths.is_bucket(directory):
    bucket_status: Any = (directory / name).stat()
    return bucket_status.length, int(bucket_status.mtime)
  stat = os.stat(f'{directory}/{name}')
  return stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns


def rebuild_command(
  directory, mixture: str = 'MIXTURE', split: str = 'train'
) -> str:
  """Returns an error hint with the command that writes a token cache."""
  return 'Write the cache: ' + _format_command(directory, mixture, split)


def _format_command(directory, mixture, split):
  return (
    f'xlflax cache --mixture {mixture} --split {split} '
    f'--output {directory} --vocabulary DIR [--corpus DIR]'
  )


def _find_changes(stored, current) -> list[str]:
  """Describes the differences between two lists of (path, size, content)."""
  before = {name: tuple(stamp) for name, *stamp in stored}
  after = {name: tuple(stamp) for name, *stamp in current}
  changes = [
    f'{name} was added' for name in sorted(after.keys() - before.keys())
  ]
  changes += [
    f'{name} was removed' for name in sorted(before.keys() - after.keys())
  ]
  for name in sorted(before.keys() & after.keys()):
    (size, *content), (new_size, *new_content) = before[name], after[name]
    if size != new_size:
      changes.append(f'{name} has {new_size} bytes instead of {size}')
    elif content != new_content:
      changes.append(f'{name} has different content')
  return changes


def _find_dictionary_changes(meta: cache_format.TaskMeta, corpus) -> list[str]:
  """Describes changes of the dictionaries of a code-switched task."""
  [language, *_] = meta.languages
  for name, settings in (
    step for step in meta.fingerprint['preprocessors'] if isinstance(step, list)
  ):
    if name == code_switching.STEP:
      dictionaries = [
        Dictionary.read(file.path)
        for file in corpus.dictionaries
        if language in file.languages
      ]
      if settings['dictionaries'] != code_switching.dictionary_hash(
        language, dictionaries, into=settings['languages']
      ):
        return [f'the dictionaries of {language} have changed']
  return []
