"""Checks of the first texts of SeqIO tasks for defects. Requires TensorFlow."""

import contextlib
import functools
import inspect
import itertools
import logging
import math
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from xlflax.data import corpus_checks
from xlflax.data.corpus.corpus_directory import TRAIN
from xlflax.data.seqio_tasks import (
  code_switched_text,
  corpus_tasks,
  data_sources,
  seqio_reader,
  task_registry,
)
from xlflax.utils import errors, logs, name_suggestions, user_modules

# Number of examples that are read of a task, for one text and for pairs.
_NUM_EXAMPLES = {1: corpus_checks.LINES, 2: corpus_checks.NUM_PAIRS}
# Number of examples of two splits that are compared, and the number below which
# the examples may be equal by chance.
_NUM_COMPARED = 200
_MIN_COMPARED = 5
# Number of examples that are read twice to detect random preprocessors.
_NUM_REPEATED = 20
# Assumed number of examples in the source of a task, to detect preprocessors
# that take a fixed number of them or repeat them.
_ASSUMED_SIZE = 10**15
# Number of characters that are kept of a text, which may be a long document.
_NUM_CHARACTERS = 1000


def find_anomalies(tasks: Iterable[str], split: str = TRAIN) -> list[str]:
  """Returns a warning for each probable defect in the text of SeqIO tasks.

  The files and the first examples of each task are compared with those of the
  training split (`compare_splits`). The text itself is then checked for
  defects. Tasks of the registered corpus directory, whose files are checked
  separately, are only compared with the other tasks, including those that are
  not in `tasks`. Tasks that provide token ids or code-switched text are not
  checked. Errors of reading a task are ignored, because they are raised when
  the task is used.

  Args:
    tasks: Names of registered tasks. Tasks without the split are ignored.
    split: Name of the split to read.
  """
  tasks = list(tasks)
  return [
    *compare_splits(tasks, split),
    *_find_resized_tasks(tasks, split),
    *_find_unseeded_tasks(tasks, split),
    *_find_repeated_text(tasks, split),
    *_find_text_anomalies(tasks, split),
  ]


def compare_splits(tasks: Iterable[str], split: str) -> list[str]:
  """Returns warnings on the differences of a split and the training split.

  A split that contains the training examples is reported, and a split whose
  letter case or punctuation differs from that of the training text.

  Args:
    tasks: Names of registered tasks. Tasks without the split or without a
      training split are ignored.
    split: Name of the split to compare. If it is 'train', it is compared with
      all other splits.
  """
  tasks = list(tasks)
  return [
    *find_equal_splits(tasks, split),
    *_find_split_differences(tasks, split),
  ]


def find_equal_splits(tasks: Iterable[str], split: str) -> list[str]:
  """Returns a warning for each task whose split contains its training examples.

  The files of the splits are compared first. If no file belongs to both splits,
  the first examples of the source are compared with the first training
  examples, in the order of the source. Errors of reading a task are ignored.

  Args:
    tasks: Names of registered tasks. Tasks without the split or without a
      training split are ignored.
    split: Name of the split to compare. If it is 'train', its files are
      compared with those of all other splits. Splits with other names that
      start with 'train' are not compared, because they may be a part of the
      training examples.
  """
  messages: list[str] = []
  for name in tasks:
    shared_files = _find_shared_files(name, split)
    messages += [
      _describe_shared_files(name, other_split, files)
      for other_split, files in shared_files.items()
    ]
    if shared_files or split.startswith(TRAIN):
      continue
    num_equal = 0
    # The training split may be unreadable, although it is not evaluated.
    with contextlib.suppress(Exception):
      num_equal = _count_equal_examples(name, split)
    if num_equal >= _MIN_COMPARED:
      messages.append(
        f'The first {num_equal:,} examples of the splits {TRAIN} and {split} '
        f'of the task {name} are identical, so results on the split {split} do '
        f'not measure generalization. {_suggest_source_change(name)}'
      )
  return messages


def _find_unseeded_tasks(tasks: list[str], split: str) -> list[str]:
  """Returns a warning for each task whose examples differ in each read.

  The first examples are read twice. Only tasks with user-defined preprocessors
  that provide text are read.

  Args:
    tasks: Names of registered tasks. Tasks without the split are ignored.
    split: Name of the split to read.
  """
  messages: list[str] = []
  for name in tasks:
    task = task_registry.get_task(name)
    if split not in task.splits or not _has_plain_text(task.preprocessors):
      continue
    if not any(map(_is_user_defined, task.preprocessors)):
      continue
    # Errors of reading a task are raised when the task is used.
    with contextlib.suppress(Exception):
      first, second = (
        list(
          itertools.islice(
            seqio_reader.read_texts(
              name, split=split, block_size=_NUM_REPEATED
            ),
            _NUM_REPEATED,
          )
        )
        for _ in range(2)
      )
      if first != second:
        messages.append(
          f'The examples of the task {name} differ each time they are read, so '
          'runs cannot be reproduced, and a resumed run reads other text. '
          'Random preprocessors must use the argument `seed`: decorate the '
          'function of an example with @seqio.map_over_dataset(num_seeds=1), '
          'and use tf.random.stateless_uniform(shape, seed) in place of '
          'tf.random.uniform(shape).'
        )
  return messages


def _find_resized_tasks(tasks: list[str], split: str) -> list[str]:
  """Returns a warning for each task whose preprocessors take or repeat examples.

  No examples are read: the number of examples follows from the operations of
  tf.data. It is unknown if the preprocessors also filter the examples.

  Args:
    tasks: Names of registered tasks. Tasks without the split are ignored.
    split: Name of the split.
  """
  messages: list[str] = []
  for name in tasks:
    task = task_registry.get_task(name)
    steps = list(itertools.takewhile(_is_user_defined, task.preprocessors))
    if not steps or split not in task.splits:
      continue
    # Errors of reading a task are raised when the task is used.
    with contextlib.suppress(Exception):
      dataset = task.source.get_dataset(split=split, shuffle=False)
      num_source_examples = int(dataset.cardinality())
      # A filter makes the number of examples unknown, so that it can be set.
      dataset = dataset.filter(_keep_all).apply(
        tf.data.experimental.assert_cardinality(_ASSUMED_SIZE)
      )
      user_task = task.replace(preprocessors=steps)
      seed = data_sources.PREPROCESSING_SEED
      dataset = user_task.preprocess_postcache(
        user_task.preprocess_precache(dataset, seed=seed),
        sequence_length=None,
        seed=seed,
      )
      num_examples = int(dataset.cardinality())
      definition = data_sources.find_definition(name)
      where = f', registered in {definition},' if definition else ''
      if num_examples == tf.data.INFINITE_CARDINALITY:
        messages.append(
          f'The preprocessors of the task {name}{where} repeat the examples '
          'without an end, so a token cache cannot be written, and epochs are '
          'not counted. Remove `Dataset.repeat`, because training repeats the '
          'examples itself.'
        )
      elif num_examples >= 2 * _ASSUMED_SIZE:
        messages.append(
          f'The preprocessors of the task {name}{where} provide each example '
          f'{num_examples // _ASSUMED_SIZE:,} times. Remove `Dataset.repeat`, '
          'because training repeats the examples itself.'
        )
      elif 0 <= num_examples < math.isqrt(_ASSUMED_SIZE) and not (
        0 <= num_source_examples <= num_examples
      ):
        messages.append(
          f'The preprocessors of the task {name}{where} provide only the first '
          f'{num_examples:,} examples of the source, because they call '
          '`Dataset.take`. If this is not intended, remove the call.'
        )
  return messages


@tf.autograph.experimental.do_not_convert
def _keep_all(example: Any) -> bool:
  """Returns True, as the condition of a filter."""
  del example
  return True


def _is_user_defined(step: Any) -> bool:
  """Returns whether a preprocessor is not part of xlflax or SeqIO."""
  while isinstance(step, functools.partial):
    step = step.func
  step = inspect.unwrap(step)
  module = getattr(step, '__module__', None) or type(step).__module__
  return module.partition('.')[0] not in ('xlflax', 'seqio')


def _find_shared_files(name: str, split: str) -> dict[str, list[str]]:
  """Returns the files that belong to the training split and to another split.

  Args:
    name: Name of a registered task. Only sources that read complete files are
      compared. A split of a TensorFlow dataset may be a part of a file.
    split: Name of the other split. If it is 'train', all splits are compared.

  Returns:
    The shared files by split. Splits without shared files are omitted.
  """
  source = code_switched_text.find_original_source(
    task_registry.get_task(name).source
  )
  if not isinstance(source, seqio.FileDataSource):
    return {}
  if TRAIN not in source.splits:
    return {}
  shared_files: dict[str, list[str]] = {}
  # The files of a split that is not used may be missing.
  with contextlib.suppress(Exception):
    training_files = _list_files(source, TRAIN)
    for other_split in source.splits if split == TRAIN else [split]:
      if other_split in source.splits and not other_split.startswith(TRAIN):
        with contextlib.suppress(Exception):
          files = training_files & _list_files(source, other_split)
          if files:
            shared_files[other_split] = sorted(files)
  return shared_files


def _find_repeated_text(tasks: list[str], split: str) -> list[str]:
  """Returns a warning for each local file that contains its text twice.

  Files of the corpus directory are not read, because they are checked
  separately.

  Args:
    tasks: Names of registered tasks.
    split: Name of the split whose files are read.
  """
  paths: set[str] = set()
  for name in tasks:
    source = code_switched_text.find_original_source(
      task_registry.get_task(name).source
    )
    if isinstance(source, seqio.FileDataSource) and split in source.splits:
      with contextlib.suppress(Exception):
        paths |= _list_files(source, split)
  return list(
    corpus_checks.find_repeated_text(
      (pathlib.Path(path) for path in sorted(paths) if '://' not in path),
      hint='Write the file again.',
    )
  )


def _list_files(source: seqio.FileDataSource, split: str) -> set[str]:
  """Returns the files of a split, without redundant parts of local paths."""
  return {
    file if '://' in file else os.path.normpath(file)
    for file in map(os.fspath, source.list_shards(split))
  }


def _describe_shared_files(name: str, split: str, files: list[str]) -> str:
  """Returns the warning for a split that contains training files."""
  definition = data_sources.find_definition(name)
  where = f', registered in {definition},' if definition else ''
  return (
    f'The splits {TRAIN} and {split} of the task {name}{where} both contain '
    f'{name_suggestions.format_names(files)}, so results on the split {split} '
    'do not measure generalization. In the source of the task, exclude the '
    f'files of the split {split} from the split {TRAIN}.'
  )


def _suggest_source_change(name: str) -> str:
  """Returns a recommendation for a task whose splits are identical."""
  source = task_registry.get_task(name).source
  if isinstance(source, data_sources.TextSource):
    return 'Replace the files of one of the splits.'
  function = getattr(source, '_dataset_fn', None)
  if function is None:
    return 'Correct the splits in the source of the task.'
  where = ''
  if inspect.isfunction(function):
    where = f', {user_modules.find_definition(function)},'
  return (
    f'The function of the source{where} must return the split that its '
    'argument `split` requests.'
  )


def _count_equal_examples(name: str, split: str) -> int:
  """Returns the number of compared examples, or 0 if two of them differ."""
  source = task_registry.get_task(name).source
  if not {TRAIN, split}.issubset(source.splits):
    return 0
  count = 0
  for first, second in itertools.islice(
    zip(_read_source(name, TRAIN), _read_source(name, split), strict=False),
    _NUM_COMPARED,
  ):
    if first != second:
      return 0
    count += 1
  return count


def _read_source(name: str, split: str) -> Iterator[Any]:
  """Yields the examples of a task's source as Python objects."""
  with data_sources.converting_task_errors(name):
    dataset = task_registry.get_task(name).source.get_dataset(
      split, shuffle=False
    )
    for example in data_sources.numpy_examples(dataset):
      yield tf.nest.map_structure(lambda x: np.asarray(x).tolist(), example)


def _find_text_anomalies(tasks: list[str], split: str) -> list[str]:
  """Returns a warning for each probable defect in the text of SeqIO tasks."""
  is_corpus = {name: _reads_corpus(name) for name in tasks}
  texts = _read_samples([x for x in tasks if not is_corpus[x]], split)
  if not texts:
    return []
  corpus_names = [x for x in tasks if is_corpus[x]]
  corpus_names += corpus_tasks.registered_tasks()
  corpus_texts = _read_samples(dict.fromkeys(corpus_names), split)
  return corpus_checks.find_task_anomalies(texts, corpus_texts)


def _find_split_differences(tasks: list[str], split: str) -> list[str]:
  """Returns warnings for tasks whose held-out text has another format.

  Tasks of the corpus directory are checked separately. Sources of TensorFlow
  Datasets, whose splits have the same format, are not read.

  Args:
    tasks: Names of registered tasks.
    split: Name of the split to compare with the training split. If it is
      'train', all other splits are compared.
  """
  messages: list[str] = []
  for name in tasks:
    source = task_registry.get_task(name).source
    if _reads_corpus(name) or isinstance(source, seqio.TfdsDataSource):
      continue
    splits = source.splits if split == TRAIN else (TRAIN, split)
    texts: dict[str, dict[str, list[str]]] = {}
    for compared_split in splits:
      for sample in _read_samples([name], compared_split):
        for sides in sample.examples:
          for language, text in zip(sample.languages, sides, strict=True):
            texts_by_split = texts.setdefault(language, {})
            texts_by_split.setdefault(compared_split, []).append(text)
    messages += corpus_checks.describe_split_differences(
      texts, f' of the task {name}'
    )
  return messages


def log_anomalies(tasks: Iterable[str], split: str = TRAIN) -> None:
  """Logs a warning for each message of `find_anomalies`."""
  for anomaly in find_anomalies(tasks, split):
    logging.warning('%s', anomaly, extra=logs.ONCE)


def _reads_corpus(name: str) -> bool:
  """Returns whether a task reads the text of a corpus directory."""
  source = task_registry.get_task(name).source
  return isinstance(source, data_sources.TextSource)


def _read_samples(
  tasks: Iterable[str], split: str
) -> list[corpus_checks.TaskText]:
  """Reads the first examples of the tasks that have the split and plain text."""
  texts: list[corpus_checks.TaskText] = []
  for name in tasks:
    task = task_registry.get_task(name)
    if split in task.splits and _has_plain_text(task.preprocessors):
      with contextlib.suppress(errors.XlflaxError, UnicodeDecodeError):
        texts.append(_read_sample(name, split))
  return texts


def _has_plain_text(steps) -> bool:
  """Returns whether a task provides text that is not code-switched."""
  return (
    bool(steps)
    and steps[-1] is task_registry.tokenize
    and not any(
      isinstance(step, code_switched_text.CodeSwitch) for step in steps
    )
  )


def _read_sample(name: str, split: str) -> corpus_checks.TaskText:
  """Reads the first examples of a task."""
  languages = task_registry.task_languages(name)
  features = ('inputs', 'targets')[-len(languages) :]
  number = _NUM_EXAMPLES[len(languages)]
  examples = itertools.islice(
    seqio_reader.read_texts(name, split=split, block_size=number), number
  )
  return corpus_checks.TaskText(
    name,
    languages,
    [
      tuple(example[feature][:_NUM_CHARACTERS] for feature in features)
      for example in examples
    ],
  )
