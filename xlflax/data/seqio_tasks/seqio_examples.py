"""Tokenised examples of SeqIO tasks as `tokenized_examples.Examples`. Needs TensorFlow."""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from xlflax.data import tokenized_examples
from xlflax.data.plain_text.text_tasks import FilePiece
from xlflax.data.seqio_tasks import data_sources, task_registry
from xlflax.data.seqio_tasks import seqio_reader as task_reader
from xlflax.storage import checksums
from xlflax.utils import errors


def read_task_examples(
  task: str,
  vocabulary,
  *,
  split: str,
  start: int = 0,
  size: int = 1024,
  num_threads: int = 1,
  piece: FilePiece | None = None,
) -> Iterator[tokenized_examples.Examples]:
  """Yields the examples of a task in the source's order.

  Where a task tells no `starts_document`, each example is a document.

  Args:
    task: its SeqIO name; its languages are registered.
    vocabulary: that of the run.
    split: of the task.
    start: examples passed over at the beginning.
    size: examples yielded at once; the last ones may be fewer.
    num_threads: threads that tokenise.
    piece: see `seqio_reader.read_blocks`.

  Raises:
    CorpusError: unknown task, split or languages, malformed text
      (file:line), or examples that lack a side.
    VocabularyError: the task was registered with another vocabulary.
  """
  names = tokenized_examples.SIDES[len(task_registry.task_languages(task))]
  for block in task_reader.read_blocks(
    task,
    vocabulary,
    split=split,
    size=size,
    num_threads=num_threads,
    start=start,
    piece=piece,
  ):
    yield _convert(block, names, task)


def source_size(task: str, split: str) -> int | None:
  """Examples of a task's source; None where it does not tell."""
  number = task_registry.get_task(task, split=split).num_input_examples(split)
  if number is None or number == float('inf'):
    return None
  return int(number)


def task_fingerprint(task: str, split: str) -> dict:
  """What identifies the text of a task, as JSON data.

  Before: the task 'corpus.mono.en' over one file; after:
  `{'source': 'TextSource', 'files': [['mono/en.txt', 120, 1700000000]],
  'preprocessors': ['mark_documents', 'name_monolingual', 'tokenize']}`: path,
  bytes and time of modification of each file that can be looked at. A step
  that has a method `task_fingerprint` (JSON data) is a list of its name and that; a
  `functools.partial` of its function and arguments. Otherwise a step is known
  by its name alone: after it has changed, write the cache with --overwrite.
  """
  file_stamps = task_registry.fingerprint_task_files(task, split)
  seqio_task = task_registry.get_task(task, split=split)
  if file_stamps is None:
    files = map(_file, seqio_task.source.list_shards(split))
  else:
    files = map(dataclasses.astuple, file_stamps)
  part = getattr(seqio_task.source, 'slices', {}).get(split)
  return {
    'source': type(seqio_task.source).__name__ + (f' {part}' if part else ''),
    'files': [list(file) for file in files],
    'preprocessors': [_step(step) for step in seqio_task.preprocessors],
  }


def task_identity(task: str, split: str) -> dict:
  """What a task's examples follow from, as JSON data.

  As `task_fingerprint`, but with digests of the files instead of their sizes and
  times, and without the folders of those that lie outside of a corpus. Files
  that are not on this machine's disks keep their sizes.
  """
  fingerprint = task_fingerprint(task, split)
  source = task_registry.get_task(task, split=split).source
  if isinstance(source, data_sources.TextSource):
    files = source.text.paths(split)
  else:
    files = [pathlib.Path(path) for path in source.list_shards(split)]
  content = checksums.digest_files([path for path in files if path.is_file()])
  return fingerprint | {
    'files': [
      [pathlib.PurePath(name).name, content.get(path) or stamp[:1]]
      for path, (name, *stamp) in zip(files, fingerprint['files'], strict=True)
    ]
  }


def _step(step) -> str | list:
  """A preprocessor's name, and its own fingerprint where it has one."""
  if isinstance(step, functools.partial):
    arguments = json.dumps(
      [step.args, step.keywords], default=_name, skipkeys=True
    )
    return [_step(step.func), json.loads(arguments)]
  name = _name(step)
  fingerprint = getattr(step, 'fingerprint', None)
  return name if fingerprint is None else [name, fingerprint()]


def _name(thing) -> str:
  return getattr(thing, '__name__', type(thing).__name__)


def _file(path: str) -> tuple:
  if not tf.io.gfile.exists(path):
    return (path,)
  status = tf.io.gfile.stat(path)
  return path, status.length, status.mtime_nsec


def _convert(block, names, task) -> tokenized_examples.Examples:
  missing = [
    n for n in names if not isinstance(block.get(n), tokenized_examples.Ragged)
  ]
  if missing:
    raise errors.CorpusError(
      'Examples of a task lack token ids',
      got=', '.join(sorted(block)),
      expected=', '.join(names),
      where=f'task {task}',
    )
  sides = tuple(block[name] for name in names)
  starts = block.get('starts_document')
  if starts is None:
    starts = np.ones(sides[0].lengths.size, bool)
  return tokenized_examples.Examples(sides, starts)
