"""Fast reader for tokenized examples of SeqIO tasks. Requires TensorFlow.

Converting a single `tf.data` element to NumPy takes about 100 µs, much longer
than tokenizing it. Tasks are therefore read as blocks of text, and each block
is tokenized by a single call. Plain text files are read without tf.data. The
examples are the same as those of `data_sources.load_dataset`.
"""

import itertools
from collections.abc import Iterator, Mapping

import numpy as np
import seqio
import tensorflow as tf

from xlflax.data import task_errors
from xlflax.data.corpus.corpus_directory import TRAIN
from xlflax.data.plain_text import corpus_directory_tasks
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
from xlflax.utils import errors, validation

_PLAIN_STEPS = (
  preprocessors.mark_documents,
  task_registry.name_monolingual,
  task_registry.name_parallel,
)


Block = dict[str, Ragged | np.ndarray]


def find_plain_source(name: str) -> data_sources.TextSource | None:
  """Returns a task's source if its examples are the lines of text files.

  For such a task, the examples in a range of a file depend only on this range.

  Returns:
    The source, or None if the examples are not the lines of files.
  """
  task = task_registry.get_task(name)
  steps = task.preprocessors
  source = task.source
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
  """Yields blocks of a task's tokenized examples, in order.

  Args:
    name: Name of a task. Its languages do not have to be registered.
    vocabulary: Vocabulary that the run uses, which replaces the placeholders
      (`DeferredVocabulary`) of a task.
    split: Name of the split, such as 'train'.
    size: Number of examples in each block. The last block may be shorter.
    num_threads: Number of threads that tokenize each block.
    start: Number of examples to skip before tokenization starts.
    piece: File or range of a file to read. This requires a task for which
      `find_plain_source` returns a source. If None, all examples are read.

  Yields:
    `{'targets': Ragged, 'starts_document': bool [n]}` or `{'inputs': Ragged,
    'targets': Ragged}`. All features except token ids and scalars are dropped.

  Raises:
    CorpusError: If the task or split does not exist, if a line is malformed
      (the error contains the file and the line), or if the task tokenizes its
      text itself and adds special tokens.
    VocabularyError: If the task was registered with a different vocabulary.
  """
  task = resolve_deferred(
    task_registry.get_task(name, split=split),
    vocabulary,
    languages=task_registry.registered_languages(name),
  )
  steps = task.preprocessors
  if not steps or steps[-1] is not task_registry.tokenize:
    is_first = True
    for block in _read_tokenized_blocks(task, split, size, start):
      check_special_tokens(task, block, vocabulary, check_ends=is_first)
      is_first = False
      yield block
    return
  vocabularies = {
    key: feature.vocabulary for key, feature in task.output_features.items()
  }
  for texts in _read_text_blocks(task, split, size, start, piece):
    yield {
      key: (
        _encode(vocabularies[key], column, num_threads)
        if key in vocabularies
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
  """Yields the tokenized examples of a task; see `read_blocks`."""
  blocks = read_blocks(name, vocabulary, split=split, num_threads=num_threads)
  for block in blocks:
    columns = [
      value.texts() if isinstance(value, Ragged) else value
      for value in block.values()
    ]
    for values in zip(*columns, strict=True):
      yield dict(zip(block, values, strict=True))


@validation.validate_call
def read_texts(
  name: str, *, split: str = TRAIN, block_size: validation.PositiveInt = 1024
) -> Iterator[dict]:
  """Yields a task's untokenized examples, with `str` and `bool` values.

  Args:
    name: Name of the task.
    split: Name of the split, such as 'train'.
    block_size: Number of examples to read at a time.
  """
  task = task_registry.get_task(name, split=split)
  for block in _read_text_blocks(task, split, block_size):
    for values in zip(*block.values(), strict=True):
      yield {
        key: value.decode() if isinstance(value, bytes) else value
        for key, value in zip(block, values, strict=True)
      }


def _read_text_blocks(
  task: seqio.Task,
  split: str,
  size: int,
  start: int = 0,
  piece: FilePiece | None = None,
) -> Iterator[dict[str, list]]:
  """Yields blocks of text columns, without tf.data if possible."""
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
    yield from corpus_directory_tasks.text_blocks(
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
  text_task = task.replace(
    preprocessors=steps,
    output_features=dict.fromkeys(task.output_features, text),
  )
  with data_sources.converting_task_errors(task.name):
    dataset = data_sources.load_dataset(text_task, split)
    for block in data_sources.numpy_examples(dataset.skip(start).batch(size)):
      yield {key: column.tolist() for key, column in block.items()}


def _read_tokenized_blocks(
  task: seqio.Task, split: str, size: int, start: int
) -> Iterator[Block]:
  """Yields blocks of examples from a task that tokenizes its text itself."""
  with data_sources.converting_task_errors(task.name):
    dataset = data_sources.load_dataset(task, split)
    examples = data_sources.numpy_examples(dataset.skip(start))
    while block := list(itertools.islice(examples, size)):
      yield {
        key: _stack([example[key] for example in block])
        for key in block[0]
        if key in task.output_features or key == 'starts_document'
      }


def check_special_tokens(
  task: seqio.Task,
  block: Mapping[str, Ragged | np.ndarray],
  vocabulary: Vocabulary,
  *,
  check_ends: bool = True,
  is_shown: bool = False,
) -> None:
  """Checks that a task does not add special tokens, because datasets add them.

  A text may contain the characters of a special token. The bos and eos tokens
  are therefore accepted unless each text of a feature contains one of them.

  Args:
    task: Task that tokenizes its text itself.
    block: Examples of the task.
    vocabulary: Vocabulary that the run uses.
    check_ends: Whether to check the bos and eos tokens. If False, only the
      padding is checked.
    is_shown: Whether the command has printed the examples, as in
      `data_sources.converting_task_errors`.

  Raises:
    CorpusError: If a feature contains padding, or if each of its texts contains
      a bos or eos token.
  """
  spec = vocabulary.spec
  ends = {spec.bos_id, spec.eos_id} - {spec.unk_id}
  padding = {spec.pad_id} - ends - {spec.unk_id}
  for name, column in block.items():
    if not isinstance(column, Ragged):
      continue
    texts = [set(text.tolist()) for text in column.texts() if text.size]
    all_ids = set().union(*texts)
    special_ids = padding & all_ids
    if check_ends and texts and all(text & ends for text in texts):
      special_ids |= ends & all_ids
    if special_ids:
      raise _special_token_error(
        task, name, special_ids, vocabulary, is_shown=is_shown
      )


def _special_token_error(
  task: seqio.Task,
  feature: str,
  special_ids: set[int],
  vocabulary: Vocabulary,
  *,
  is_shown: bool,
) -> errors.CorpusError:
  """Returns the error for a task that adds special tokens."""
  tokens = ', '.join(
    f'{vocabulary.piece(index)} (id {index})' for index in sorted(special_ids)
  )
  step_names = [
    getattr(step, '__name__', type(step).__name__)
    for step in (getattr(step, 'func', step) for step in task.preprocessors)
  ]
  eos_steps = [name for name in step_names if 'append_eos' in name]
  steps = (
    f'the preprocessor {" and ".join(eos_steps)}'
    if eos_steps
    else 'the preprocessor that adds the special tokens'
  )
  return errors.CorpusError(
    f'The feature {feature!r} of the task {task.name!r} must not contain '
    'special tokens, because xlflax adds them when it builds sequences',
    got=tokens,
    expected='only the token ids of the text',
    where=f'task {task.name}',
    fix=f'Remove {steps} from the task. If another program needs it, register '
    'a second task with another name and without it.'
    + ('' if is_shown else f' {task_errors.suggest_show(task.name)}'),
  )


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
