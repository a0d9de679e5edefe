"""Checks of the first texts of SeqIO tasks for defects. Requires TensorFlow."""

import contextlib
import itertools
import logging
from collections.abc import Iterable

from xlflax.data import corpus_checks
from xlflax.data.corpus.corpus_directory import TRAIN
from xlflax.data.seqio_tasks import (
  code_switched_text,
  corpus_tasks,
  data_sources,
  seqio_reader,
  task_registry,
)
from xlflax.utils import errors, logs

# Number of examples that are read of a task, for one text and for pairs.
_NUM_EXAMPLES = {1: corpus_checks.LINES, 2: corpus_checks.NUM_PAIRS}
# Number of characters that are kept of a text, which may be a long document.
_NUM_CHARACTERS = 1000


def find_anomalies(tasks: Iterable[str], split: str = TRAIN) -> list[str]:
  """Returns a warning for each probable defect in the text of SeqIO tasks.

  The first examples of each task are read. Tasks of the registered corpus
  directory, whose files are checked separately, are only compared with the other
  tasks, including those that are not in `tasks`. Tasks that provide token ids or
  code-switched text are not checked. Errors of reading a task are ignored,
  because they are raised when the task is used.

  Args:
    tasks: Names of registered tasks. Tasks without the split are ignored.
    split: Name of the split to read.
  """
  tasks = list(tasks)
  is_corpus = {name: _reads_corpus(name) for name in tasks}
  texts = _read_samples([x for x in tasks if not is_corpus[x]], split)
  if not texts:
    return []
  corpus_names = [x for x in tasks if is_corpus[x]]
  corpus_names += corpus_tasks.registered_tasks()
  corpus_texts = _read_samples(dict.fromkeys(corpus_names), split)
  return corpus_checks.find_task_anomalies(texts, corpus_texts)


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
