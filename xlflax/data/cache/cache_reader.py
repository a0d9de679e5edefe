"""Reads a token cache by ranges of bytes; imports no TensorFlow and no SeqIO.

Every reason to refuse a cache is found when it is opened: it is missing or
incomplete, of another vocabulary, or of a corpus that has changed since.
"""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Collection, Iterator
from typing import Any

from xlflax.data.batching import sequence_index as row_index
from xlflax.data.cache import cache_format
from xlflax.data.cache import cache_metadata as cache_header
from xlflax.data.cache import ragged_arrays as cache_texts
from xlflax.data.dictionaries import code_switching
from xlflax.data.dictionaries.bilingual_dictionary import Dictionary
from xlflax.storage import bucket_staging, checksums, paths
from xlflax.utils import errors, validation

_SHORT = 1 << 16  # bytes of files that are always compared


@dataclasses.dataclass(frozen=True)
class CachedTask:
  """One task and split of a cache.

  Attributes:
    meta: languages, sizes, statistics.
    sides: texts of each side, on disk or in a bucket.
    shards: of the task, whose `starts_document` tells borders.
  """

  meta: cache_format.TaskMeta
  sides: tuple[row_index.Texts, ...]
  shards: cache_texts.Shards


class TokenCache:
  """A cache directory that `xlflax cache` has written.

  Raises:
    CacheError: no cache there, or of another format.
  """

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
      directory: of the cache.
      generation: state of it, from 1; None: the newest.
    """
    self.directory = bucket_staging.find_written_copy(
      paths.to_path(directory), cache_format.CACHE_FILE
    )
    path = self.directory / cache_format.CACHE_FILE
    if not path.is_file():
      raise errors.CacheError(
        'There is no token cache',
        got=f'no file {path}',
        fix=rebuild_command(self.directory),
      )
    self._header = cache_header.read_metadata(self.directory)
    num_generations = len(self._header.generations)
    self.generation = num_generations if generation is None else generation
    if num_generations and not 1 <= self.generation <= num_generations:
      raise errors.CacheError(
        'The token cache has no such generation',
        got=generation,
        expected=f'1 to {num_generations}',
        where=self.directory,
      )
    if not num_generations:
      raise errors.CacheError(
        'The token cache is incomplete',
        got='no task of it is sealed',
        expected='all shards: which row comes first, and how often a language '
        'is read, follows from the number of all examples',
        where=self.directory,
        fix='Wait while it is written, or write it again, which goes on where '
        'it stopped; after the last shard, run `xlflax cache finalize`',
      )
    self._tasks = self._header.generations[self.generation - 1].tasks
    self._meta = functools.cache(self._read_meta)
    self._is_complete = functools.cache(self._has_task)

  @property
  def mixtures(self) -> dict[str, dict[str, dict[str, float]]]:
    """mixture -> split -> task -> SeqIO mixing rate."""
    return self._header.generations[self.generation - 1].mixtures

  def check_vocabulary(self, vocabulary) -> None:
    """Raises a CacheError unless the cache was written with `vocabulary`."""
    stored = self._header.vocabulary
    if stored['hash'] != vocabulary.hash:
      raise errors.CacheError(
        'The token cache was written with another vocabulary',
        got=f'{vocabulary.spec.size} entries, hash {vocabulary.hash[:12]}',
        expected=f'{stored["size"]} entries, hash {stored["hash"][:12]}, '
        'as in the cache',
        where=self.directory,
        fix=rebuild_command(self.directory),
      )

  def rates(self, mixture: str, split: str) -> dict[str, float]:
    """The tasks of a mixture that have `split`, with their mixing rates.

    Raises:
      CacheError: the mixture or the split is not in the cache.
    """
    if mixture not in self.mixtures:
      if self._is_complete(mixture, split):
        return {mixture: 1.0}
      raise errors.CacheError(
        'The token cache has no such mixture',
        got=repr(mixture),
        expected='one of ' + ', '.join(sorted(self.mixtures)),
        where=self.directory,
        fix=rebuild_command(self.directory, mixture, split),
      )
    splits = self.mixtures[mixture]
    if split not in splits:
      raise errors.CacheError(
        f'The token cache of {mixture} has no such split',
        got=repr(split),
        expected='one of ' + ', '.join(sorted(splits)),
        where=self.directory,
        fix=rebuild_command(self.directory, mixture, split),
      )
    return splits[split]

  def open(self, mixture: str, split: str) -> dict[str, CachedTask]:
    """Opens the tasks of a mixture.

    Raises:
      CacheError: a task is not complete or its files are damaged.
    """
    tasks = self._complete_tasks(mixture, split)
    return {task: self._open_task(task, split) for task in tasks}

  def digest(self, mixture: str, split: str) -> str:
    """What tells whether another cache has the same tokens."""
    return checksums.digest_json(
      {
        task: self._tasks[cache_format.task_key(task, split)]['digest']
        for task in self._complete_tasks(mixture, split)
      }
    )

  def signature(self, mixture: str, split: str) -> str:
    """Changes when a file of the tasks is written; nothing is read for it."""
    stats = [
      [name, *_stamp(self.directory, name)]
      for name in self._files(mixture, split)
    ]
    return checksums.digest_json([self.digest(mixture, split), *stats])

  def verify(self, mixture: str, split: str) -> None:
    """Reads every file of a mixture's tasks and compares its digest.

    Raises:
      CacheError: some have changed; they are listed.
    """
    problems = []
    for task in self._complete_tasks(mixture, split):
      directory = cache_format.task_directory(self.directory, task, split)
      problems += [
        f'{task}: {text}' for text in checksums.find_problems(directory)
      ]
    if problems:
      raise errors.CacheError(
        'The token cache is damaged',
        got='; '.join(problems[:20]),
        expected='the files as they were written',
        where=self.directory,
        fix='Delete the files that have another content; '
        + rebuild_command(self.directory, mixture, split),
      )

  def _files(self, mixture: str, split: str) -> Iterator[str]:
    """The files of a mixture's tasks, below the directory."""
    for task in self._complete_tasks(mixture, split):
      meta, shards = (
        self._meta_file(task, split),
        self._meta(task, split).shards,
      )
      folder = meta.parent.relative_to(self.directory).as_posix()
      yield f'{folder}/{checksums.FILE}'
      yield f'{folder}/{meta.name}'
      for shard in shards:  # there may be very many
        yield (
          f'{folder}/{cache_format.SHARDS}/{shard.name}{cache_format.SUFFIX}'
        )

  def _complete_tasks(self, mixture: str, split: str) -> dict[str, float]:
    """The rates of a mixture's tasks, which must all be complete."""
    tasks = self.rates(mixture, split)
    missing = [t for t in tasks if not self._is_complete(t, split)]
    if missing:
      raise errors.CacheError(
        'The token cache is incomplete',
        got=f'{len(tasks) - len(missing)} of {len(tasks)} tasks of '
        f'{mixture}, split {split}; missing: {", ".join(missing[:5])}'
        + (', …' if len(missing) > 5 else ''),
        where=self.directory,
        fix='Run the same command again, it goes on where it stopped: '
        + _command(self.directory, mixture, split),
      )
    return tasks

  def check_corpus(
    self,
    corpus,
    mixture: str,
    split: str,
    languages: Collection[str] | None = None,
  ) -> None:
    """Raises a CacheError if text or dictionaries have changed since.

    Tasks that are not of a corpus directory are not checked. Files and
    languages may have come since where a newer generation has them.

    Args:
      corpus: a `corpus.Corpus`.
      mixture: its tasks of the corpus are checked.
      split: of the tasks.
      languages: that are read; None: all.
    """
    self._check_members(corpus, mixture, split, languages)
    for task in self.rates(mixture, split):
      if not task.startswith('corpus.'):
        continue
      meta = self._meta(task, split)
      current_files = [
        dataclasses.astuple(f)
        for f in corpus.group_fingerprint(*meta.languages, split=split)
      ]
      if self.generation < len(self._header.generations):
        cached_files = {name for name, *_ in meta.fingerprint['files']}
        current_files = [
          file for file in current_files if file[0] in cached_files
        ]
      changes = _changes(
        meta.fingerprint['files'], current_files
      ) + _dictionary_changes(meta, corpus)
      if changes:
        raise errors.CacheError(
          f'The text of {task} has changed since the token cache was written',
          got='; '.join(changes),
          where=corpus.directory,
          fix=rebuild_command(self.directory, mixture, split)
          + ' --overwrite, or --append for new files alone',
        )

  def _check_members(self, corpus, mixture, split, languages):
    """Refuses text of languages that the newest generation knows nothing of."""
    corpus_members = {
      'corpus.mono': [(code,) for code in corpus.languages],
      'corpus.parallel': corpus.pairs,
    }
    cached_members = {
      self._meta(t, split).languages for t in self.rates(mixture, split)
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
        'The corpus has text that the token cache does not have',
        got=', '.join(new[:5]) + (', …' if len(new) > 5 else ''),
        where=corpus.directory,
        fix=rebuild_command(self.directory, mixture, split)
        + ' --append, or name what is read by Stream.languages',
      )

  def _has_task(self, task, split):
    key = cache_format.task_key(task, split)
    return key in self._tasks and self._meta_file(task, split).is_file()

  def _meta_file(self, task, split):
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
    directory = cache_format.task_directory(self.directory, task, split)
    self._check_seal(directory, task, split)
    meta = self._meta(task, split)
    if meta.vocabulary != self._header.vocabulary['hash']:
      raise errors.CacheError(
        f'{task} was written with another vocabulary than its cache',
        where=directory,
        fix=rebuild_command(self.directory),
      )
    shards = cache_texts.Shards(directory, meta)
    sides = tuple(
      cache_texts.ShardedTexts(shards, side, index)
      for index, side in enumerate(meta.sides)
    )
    return CachedTask(meta, sides, shards)

  def _check_seal(self, directory, task, split) -> None:
    """Checks lengths of files and the content of short ones, always."""
    task_entry = self._tasks[cache_format.task_key(task, split)]
    problems = checksums.find_problems(directory, largest=_SHORT)
    if not problems and (
      checksums.digest_file(
        self._meta_file(task, split), like=task_entry['digest']
      )
      != task_entry['digest']
    ):
      problems = ['the files are those of another task or cache']
    if problems:
      raise errors.CacheError(
        'The token cache is damaged',
        got='; '.join(problems[:20]),
        where=directory,
        fix='Delete the files that have another content; missing and cut-off '
        'ones are written again. ' + rebuild_command(self.directory),
      )


def _stamp(directory: pathlib.Path, name: str) -> tuple[int, int]:
  """Size and time of a file on disk or in a bucket."""
  if paths.is_bucket(directory):
    bucket_status: Any = (directory / name).stat()
    return bucket_status.length, int(bucket_status.mtime)
  stat = os.stat(f'{directory}/{name}')
  return stat.st_size, stat.st_mtime_ns


def rebuild_command(
  directory, mixture: str = 'MIXTURE', split: str = 'train'
) -> str:
  """What to do about a cache that cannot be used."""
  return 'Write it: ' + _command(directory, mixture, split)


def _command(directory, mixture, split):
  return (
    f'xlflax cache --mixture {mixture} --split {split} '
    f'--output {directory} --vocabulary DIR [--corpus DIR]'
  )


def _changes(stored, now) -> list[str]:
  """Returns the differences of two lists of (path, size, content)."""
  before = {name: tuple(stamp) for name, *stamp in stored}
  after = {name: tuple(stamp) for name, *stamp in now}
  out = [f'{name} is new' for name in sorted(after.keys() - before.keys())]
  out += [f'{name} is gone' for name in sorted(before.keys() - after.keys())]
  for name in sorted(before.keys() & after.keys()):
    (size, *content), (new_size, *new_content) = before[name], after[name]
    if size != new_size:
      out.append(f'{name} has {new_size} bytes instead of {size}')
    elif content != new_content:
      out.append(f'{name} has another content')
  return out


def _dictionary_changes(meta: cache_format.TaskMeta, corpus) -> list[str]:
  """Whether a code-switched task was made by other dictionaries."""
  [language, *_] = meta.languages
  for name, settings in (
    step for step in meta.fingerprint['preprocessors'] if isinstance(step, list)
  ):
    if name == code_switching.STEP:
      dictionaries = [
        Dictionary.read(f.path)
        for f in corpus.dictionaries
        if language in f.languages
      ]
      if settings['dictionaries'] != code_switching.dictionary_hash(
        language, dictionaries, into=settings['languages']
      ):
        return [f'the dictionaries of {language} are others']
  return []
