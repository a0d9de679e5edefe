"""Tokenized examples of SeqIO tasks, and fingerprints of the tasks.

Requires TensorFlow.
"""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Iterator

import numpy as np
import seqio
import tensorflow as tf

from xlflax.data import tokenized_examples
from xlflax.data.plain_text.text_tasks import FilePiece
from xlflax.data.seqio_tasks import data_sources, seqio_reader, task_registry
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
  """Tokenizes a task's examples and yields them in the order of the source.

  If a task lacks the feature `starts_document`, each example is a document.

  Args:
    task: Name of a SeqIO task whose languages are registered.
    vocabulary: Vocabulary that the run uses.
    split: Name of the split, such as 'train'.
    start: Number of examples to skip.
    size: Number of examples in each batch. The last batch may be smaller.
    num_threads: Number of threads for tokenization.
    piece: File, or range of bytes in a file, to read. If None, all examples of
      the task are read. See `seqio_reader.read_blocks`.

  Raises:
    CorpusError: If the task, split or languages are unknown, if text is
      malformed (the error contains the file and the line), or if examples lack
      the source or target.
    VocabularyError: If the task was registered with a different vocabulary.
  """
  names = tokenized_examples.SIDES[len(task_registry.task_languages(task))]
  for block in seqio_reader.read_blocks(
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
  """Returns the number of examples in the source, or None if it is unknown."""
  number = task_registry.get_task(task, split=split).num_input_examples(split)
  if number is None or number == float('inf'):
    return None
  return int(number)


def count_source(task: str, split: str) -> int | None:
  """Counts a source's examples; see `text_tasks.Tasks.count_source`.

  Numbers that are passed to a SeqIO source as `num_input_examples` may be
  wrong. Corpus directories and TensorFlow Datasets provide their own numbers.
  """
  source = task_registry.get_task(task, split=split).source
  if isinstance(source, data_sources.TextSource | seqio.TfdsDataSource):
    return None
  with data_sources.converting_task_errors(task):
    dataset = source.get_dataset(split, shuffle=False)
    return int(dataset.reduce(np.int64(0), lambda count, _: count + 1))


def task_fingerprint(task: str, split: str) -> dict:
  """Returns JSON data that identifies a task's text.

  For example, the fingerprint of the task 'corpus.mono.en' with one file is
  `{'source': 'TextSource', 'files': [['mono/en.txt', 120, 53620815]],
  'preprocessors': ['mark_documents', 'name_monolingual', 'tokenize']}`.

  `files` contains the path, size in bytes and modification time of each file
  that can be accessed; for plain text, it contains the path, size and content
  digest. A preprocessor with a method `fingerprint` that returns JSON data is
  represented by its name and this data. A `functools.partial` is represented by
  its function and arguments. All other preprocessors are identified only by
  their names. If you change such a preprocessor, write the cache again with
  --overwrite. If a module of `--task_module` registered the task, `code`
  contains hashes of the source files that define it.
  """
  fingerprints = task_registry.fingerprint_task_files(task, split)
  seqio_task = task_registry.get_task(task, split=split)
  if fingerprints is None:
    files = map(_describe_file, seqio_task.source.list_shards(split))
  else:
    files = map(dataclasses.astuple, fingerprints)
  source = type(seqio_task.source).__name__
  tfds_split = getattr(seqio_task.source, 'slices', {}).get(split)
  if tfds_split:
    source += f' {tfds_split}'
  fingerprint: dict = {
    'source': source,
    'files': [list(file) for file in files],
    'preprocessors': [
      _describe_step(step) for step in seqio_task.preprocessors
    ],
  }
  code = task_registry.describe_task_code(task)
  return fingerprint | ({'code': code} if code else {})


def task_identity(task: str, split: str) -> dict:
  """Returns machine-independent JSON data that identifies a task's examples.

  In contrast to `task_fingerprint`, the data contains only the names of the
  files, and their digests instead of their sizes and times. Files that are not
  on a local disk are identified by their sizes. The source code is omitted,
  because a run that reads a task records it separately
  (`training.checkpointing.code_fingerprint`).
  """
  fingerprint = task_fingerprint(task, split)
  fingerprint.pop('code', None)
  source = task_registry.get_task(task, split=split).source
  if isinstance(source, data_sources.TextSource):
    files = source.text.paths(split)
  else:
    files = [pathlib.Path(path) for path in source.list_shards(split)]
  content = checksums.digest_files([path for path in files if path.is_file()])
  return fingerprint | {
    'files': [
      [pathlib.PurePath(name).name, content.get(path) or size_and_version[:1]]
      for path, (name, *size_and_version) in zip(
        files, fingerprint['files'], strict=True
      )
    ]
  }


def _describe_step(step) -> str | list:
  """Returns the name of a preprocessor, with its fingerprint if it has one."""
  if isinstance(step, functools.partial):
    arguments = json.dumps(
      [step.args, step.keywords], default=_object_name, skipkeys=True
    )
    return [_describe_step(step.func), json.loads(arguments)]
  name = _object_name(step)
  fingerprint = getattr(step, 'fingerprint', None)
  return name if fingerprint is None else [name, fingerprint()]


def _object_name(value) -> str:
  return getattr(value, '__name__', type(value).__name__)


def _describe_file(path: str) -> tuple:
  """Returns a file's path, size and time, or only the path if it is missing."""
  if not tf.io.gfile.exists(path):
    return (path,)
  status = tf.io.gfile.stat(path)
  return path, status.length, status.mtime_nsec


def _convert(block, names, task) -> tokenized_examples.Examples:
  sides = tuple(block.get(name) for name in names)
  if not all(isinstance(side, tokenized_examples.Ragged) for side in sides):
    raise errors.CorpusError(
      f'In the task {task!r}, each example must have the features '
      f'{", ".join(names)}, and these features must contain token ids',
      got=', '.join(sorted(block)),
    )
  starts_document = block.get('starts_document')
  if starts_document is None:
    starts_document = np.ones(sides[0].lengths.size, bool)
  return tokenized_examples.Examples(sides, starts_document)
