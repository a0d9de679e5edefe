"""Sources of evaluation text from SeqIO tasks.

TensorFlow is imported only when the text is read.
"""

import contextlib
import dataclasses
import itertools
import logging
from collections.abc import Iterable, Iterator
from typing import Any

from xlflax.data.supervised.sources import task_source
from xlflax.evaluation import text_sources
from xlflax.utils import class_registry, errors, logs, validation


@class_registry.register('task_text')
@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskText(text_sources.TextSource):
  """Text from the monolingual tasks in a SeqIO mixture.

  Attributes:
    mixture: Name of a mixture or task, such as 'wiki40b'.
    split: Name of the split to read, such as 'test'.
    languages: Codes of the languages to read. If None, all languages are read.
    max_lines: Maximum number of examples per language. If None, all examples
      are read.
  """

  mixture: str
  split: str = 'test'
  languages: tuple[str, ...] | None = None
  max_lines: validation.PositiveInt | None = None

  def languages_found(self) -> tuple[str, ...]:
    """Returns the language codes of the source."""
    return text_sources.chosen_languages(
      tuple(language for (language,) in _tasks(self, 1)),
      self.languages,
      _where(self),
    )

  def task_names(self) -> tuple[str, ...]:
    """Returns the names of the SeqIO tasks that the source reads."""
    tasks = _tasks(self, 1)
    return tuple(
      name for code in self.languages_found() for name in tasks[(code,)]
    )

  def load(self, language: str) -> list[str]:
    """Reads the sentences of a language."""
    examples = _examples(self, (language,))
    return [
      example['targets']
      for example in itertools.islice(examples, self.max_lines)
    ]


@class_registry.register('seqio_pairs')
@dataclasses.dataclass(frozen=True, kw_only=True)
class SeqioPairs(text_sources.PairSource):
  """Sentence pairs from the parallel tasks in a SeqIO mixture.

  Attributes:
    mixture: Name of a mixture or task, such as 'wmt19'.
    split: Name of the split to read, such as 'test'.
    languages: Languages whose pairs with English are read, or pairs such as
      'de-fr'. If None, all pairs are read.
    max_pairs: Maximum number of sentence pairs per language pair. If None, all
      sentence pairs are read.
  """

  mixture: str
  split: str = 'test'
  languages: tuple[str, ...] | None = None
  max_pairs: validation.PositiveInt | None = None

  def pairs(self) -> tuple[text_sources.Pair, ...]:
    """Returns the language pairs that this source provides."""
    return text_sources.chosen_pairs(
      tuple((first, second) for first, second in _tasks(self, 2)),
      self.languages,
      _where(self),
    )

  def task_names(self) -> tuple[str, ...]:
    """Returns the names of the SeqIO tasks that the source reads."""
    tasks = _tasks(self, 2)
    return tuple(name for pair in self.pairs() for name in tasks[pair])

  def load(self, pair: text_sources.Pair) -> text_sources.PairedText:
    """Reads the sentences of a language pair."""
    examples = list(itertools.islice(_examples(self, pair), self.max_pairs))
    paired_text = text_sources.PairedText(
      [example['inputs'] for example in examples],
      [example['targets'] for example in examples],
    )
    text_sources.check_pairs(pair, paired_text, _where(self))
    return paired_text


_SEQIO_SOURCES = (
  TaskText,
  SeqioPairs,
  task_source.SeqioDataset,
  task_source.SeqioBitextMining,
)


def warn_of_split_problems(sources: Iterable[Any]) -> None:
  """Logs warnings about SeqIO tasks that are evaluated on unsuitable splits.

  The split contains the training examples, or its text has another format than
  the training text. Only the first examples are compared
  (`task_samples.compare_splits`).

  Args:
    sources: Sources of evaluation tasks. Sources that do not read SeqIO tasks
      are ignored. Errors of reading a task are also ignored, because they are
      raised when the task is evaluated.
  """
  for source in sources:
    if not isinstance(source, _SEQIO_SOURCES):
      continue
    _registry()
    # This module imports TensorFlow.
    from xlflax.data.seqio_tasks import task_samples

    with contextlib.suppress(errors.XlflaxError):
      for message in task_samples.compare_splits(
        source.task_names(), source.split
      ):
        logging.warning('%s', message, extra=logs.ONCE)


def _tasks(
  source: TaskText | SeqioPairs, num_languages: int
) -> dict[tuple[str, ...], list[str]]:
  """Returns the names of the mixture's tasks by their languages.

  Args:
    source: Text source whose field `mixture` is the name of a SeqIO mixture or
      task.
    num_languages: Number of languages per task: 1 for monolingual tasks, 2 for
      parallel tasks.
  """
  registry = _registry()
  tasks: dict[tuple[str, ...], list[str]] = {}
  for name in registry.expand_mixture(source.mixture, split=source.split):
    languages = registry.task_languages(name)
    if len(languages) == num_languages:
      tasks.setdefault(languages, []).append(name)
  return tasks


def _examples(source, languages: tuple[str, ...]) -> Iterator[dict]:
  """Yields untokenized examples from all tasks with the given languages."""
  registry = _registry()
  from xlflax.data.seqio_tasks import seqio_reader

  for name in _tasks(source, len(languages))[languages]:
    steps = registry.get_task(name).preprocessors
    if not steps or steps[-1] is not registry.tokenize:
      raise errors.CorpusError(
        f'The last preprocessor of the SeqIO task {name!r} must be the '
        'tokenization step of xlflax',
        fix='Register the task with add_monolingual_task or add_parallel_task.',
      )
    yield from seqio_reader.read_texts(name, split=source.split)


def _registry():
  """Imports TensorFlow and returns the module with the task registry."""
  from xlflax.data.seqio_tasks import tensorflow_setup

  tensorflow_setup.load_tensorflow()
  from xlflax.data.seqio_tasks import task_registry

  return task_registry


def _where(source) -> str:
  return f'the {source.split} split of {source.mixture}'
