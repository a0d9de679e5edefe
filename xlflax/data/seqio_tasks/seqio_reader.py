"""Reads the tokenised examples of a task fast. Needs TensorFlow.

An element of `tf.data` costs some 100 µs by the time it is numpy, far more
than tokenising it. So a task is read as text in blocks, and a block is encoded
in one call; where the text comes from plain files, tf.data is left out. The
examples are those of `Task.get_dataset(shuffle=False)`.
"""

import itertools
from collections.abc import Iterator

import numpy as np
import seqio
import tensorflow as tf

from xlflax.data.corpus.corpus_directory import TRAIN
from xlflax.data.plain_text import corpus_directory_tasks as text_corpus
from xlflax.data.plain_text.text_tasks import FilePiece
from xlflax.data.seqio_tasks import (
  code_switched_text,
  data_sources,
  preprocessors,
  task_registry,
)
from xlflax.data.seqio_tasks.seqio_vocabulary import (
  SeqioVocabulary,
  resolve_deferred,
)
from xlflax.data.tokenized_examples import Ragged
from xlflax.data.tokenizers.base_vocabulary import Vocabulary
from xlflax.utils import validation

_PLAIN_STEPS = (
  preprocessors.mark_documents,
  task_registry.name_monolingual,
  task_registry.name_parallel,
)


Block = dict[str, Ragged | np.ndarray]


def plain_source(name: str) -> data_sources.TextSource | None:
  """The source of a task whose examples are its files' lines, one by one.

  So the text of a piece of a file follows from the piece alone. None for
  every other task.
  """
  task = task_registry.get_task(name)
  steps, source = task.preprocessors, task.source
  if (
    isinstance(source, data_sources.TextSource)
    and source.text.files is not None
    and steps
    and steps[-1] is task_registry.tokenize
    and all(step in _PLAIN_STEPS for step in steps[:-1])
  ):
    return source
  return None


def read_blocks(
  name: str,
  vocabulary: Vocabulary,
  *,
  split: str = TRAIN,
  size: int = 1024,
  num_threads: int = 1,
  start: int = 0,
  piece: FilePiece | None = None,
) -> Iterator[Block]:
  """Yields blocks of a task's tokenised examples, in the source's order.

  Args:
    name: of a task whose languages are registered or not.
    vocabulary: that of the run, for tasks that have none of their own.
    split: name of the split.
    size: examples of a block (the last may be shorter).
    num_threads: threads that encode a block.
    start: examples passed over, before any is encoded.
    piece: only the examples of this, of a task that `plain_source` finds.

  Yields:
    `{'targets': Ragged, 'starts_document': bool [n]}` or
    `{'inputs': Ragged, 'targets': Ragged}`; features that are neither ids nor
    scalars do not come through.

  Raises:
    CorpusError: no such task or split, or a malformed line (file:line).
    VocabularyError: the task was registered with another vocabulary.
  """
  task = resolve_deferred(
    task_registry.get_task(name, split=split),
    vocabulary,
    languages=task_registry.known_languages(name),
  )
  steps = task.preprocessors
  if not steps or steps[-1] is not task_registry.tokenize:
    yield from _block_examples(task, split, size, start)
    return
  encoders = {
    key: feature.vocabulary for key, feature in task.output_features.items()
  }
  for texts in _text_blocks(task, split, size, start, piece):
    yield {
      key: (
        _encode(encoders[key], column, num_threads)
        if key in encoders
        else np.asarray(column, np.bool_)
      )
      for key, column in texts.items()
    }


@validation.validate_call
def read_tokenized_examples(
  name: str,
  vocabulary: Vocabulary,
  *,
  split: str = TRAIN,
  num_threads: validation.PositiveInt = 1,
) -> Iterator[dict[str, np.ndarray]]:
  """As `read_blocks`, one example at a time."""
  blocks = read_blocks(name, vocabulary, split=split, num_threads=num_threads)
  for block in blocks:
    columns = [
      value.texts() if isinstance(value, Ragged) else value
      for value in block.values()
    ]
    for values in zip(*columns, strict=True):
      yield dict(zip(block, values, strict=True))


@validation.validate_call
def read_texts(name: str, *, split: str = TRAIN) -> Iterator[dict]:
  """Yields a task's examples before tokenisation, as `str` and `bool`."""
  task = task_registry.get_task(name, split=split)
  for block in _text_blocks(task, split, 1024):
    for values in zip(*block.values(), strict=True):
      yield {
        key: value.decode() if isinstance(value, bytes) else value
        for key, value in zip(block, values, strict=True)
      }


def _text_blocks(
  task: seqio.Task,
  split: str,
  size: int,
  start: int = 0,
  piece: FilePiece | None = None,
) -> Iterator[dict[str, list]]:
  """Blocks of text columns, from the files themselves where possible."""
  steps = task.preprocessors[:-1]
  source = task.source
  switches = [
    step for step in steps if isinstance(step, code_switched_text.CodeSwitch)
  ]
  if (
    isinstance(source, data_sources.TextSource)
    and len(switches) < 2
    and all(step in (*_PLAIN_STEPS, *switches) for step in steps)
  ):
    yield from text_corpus.text_blocks(
      source.text,
      switches[0] if switches else None,
      split=split,
      start=start,
      size=size,
      piece=piece,
    )
    return
  text = seqio.Feature(
    seqio.PassThroughVocabulary(1), add_eos=False, dtype=tf.string, rank=0
  )
  texts = task.replace(
    preprocessors=steps,
    output_features=dict.fromkeys(task.output_features, text),
  )
  dataset = texts.get_dataset(
    split=split, shuffle=False, try_in_mem_cache=False
  )
  for block in data_sources.numpy_examples(dataset.skip(start).batch(size)):
    yield {key: column.tolist() for key, column in block.items()}


def _block_examples(
  task: seqio.Task, split: str, size: int, start: int
) -> Iterator[Block]:
  """Blocks of a task that tokenises in its own way."""
  dataset = task.get_dataset(split=split, shuffle=False, try_in_mem_cache=False)
  examples = data_sources.numpy_examples(dataset.skip(start))
  while block := list(itertools.islice(examples, size)):
    yield {
      key: _stack([example[key] for example in block])
      for key in block[0]
      if key in task.output_features or key == 'starts_document'
    }


def _encode(
  vocabulary: SeqioVocabulary, texts: list, num_threads: int
) -> Ragged:
  ids, lengths = vocabulary.encode_ragged(texts, num_threads=num_threads)
  return Ragged(ids, lengths.astype(np.int64))


def _stack(values: list) -> Ragged | np.ndarray:
  if np.ndim(values[0]) == 0:
    return np.asarray(values)
  lengths = np.array([len(value) for value in values], np.int64)
  return Ragged(np.concatenate(values).astype(np.int32, copy=False), lengths)
