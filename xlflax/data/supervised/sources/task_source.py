"""Sources that read labeled examples from SeqIO tasks.

TensorFlow is not imported before the examples are read.
"""

import dataclasses
import itertools
from collections.abc import Iterator

from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.labeled_examples import choice_examples
from xlflax.data.supervised.sources import example_source
from xlflax.utils import class_registry, errors, validation


@class_registry.register('seqio_dataset')
@dataclasses.dataclass(frozen=True, kw_only=True)
class SeqioDataset(example_source.ExampleSource):
  """Source that reads labeled examples from a SeqIO task or mixture.

  Each task is one language split. It is named after the task's languages, such
  as 'fr' or 'es-en', as set by `add_labeled_task` or
  `task_registry.set_task_languages`.

  Attributes:
    mixture: Name of the SeqIO task or mixture, such as 'xtreme.xnli'.
    kind: Name of the examples' task family, such as 'tagging'. The features of
      the tasks must be the columns of the family's example class.
    split: Split to read from each task, such as 'test'.
    splits: Names of the language splits to read. If None, all are read.
    max_examples: Maximum number of examples to read from each language split.
      If None, all examples are read.
  """

  mixture: str
  kind: str
  split: str = 'test'
  splits: tuple[str, ...] | None = None
  max_examples: validation.PositiveInt | None = None

  def __post_init__(self):
    labeled_examples.class_of(self.kind)

  def languages(self) -> tuple[str, ...]:
    available = tuple(_tasks_by_part(self.mixture, self.split))
    missing = set(self.splits or ()) - set(available)
    if missing:
      raise errors.CorpusError(
        'The mixture contains no tasks for some of the requested language '
        'splits',
        got=', '.join(sorted(missing)),
        expected='some of ' + ', '.join(available),
        where=_describe_source(self),
      )
    return available if self.splits is None else tuple(self.splits)

  def task_names(self) -> tuple[str, ...]:
    """Returns the names of the SeqIO tasks that the source reads."""
    return tuple(
      name for part in self.languages() for name in _task_names(self, part)
    )

  def load(self, part: str) -> list[labeled_examples.Example]:
    examples: list[labeled_examples.Example] = []
    for name, rows in _read_rows(self, part):
      examples += [
        labeled_examples.class_of(self.kind).from_columns(
          row,
          number=number,
          languages=tuple(part.split('-')),
          where=f'task {name}',
        )
        for number, row in enumerate(rows, start=len(examples))
      ]
    if not examples:
      raise errors.CorpusError(
        'The tasks contain no examples for the requested language split',
        got=part,
        where=_describe_source(self),
      )
    return choice_examples.take_first_questions(examples, self.max_examples)

  def describe(self, part: str) -> str:
    names = ', '.join(_task_names(self, part))
    return f'{names} ({self.split} split)'

  def problems(self, part: str) -> tuple[str, ...]:
    names = _task_names(self, part)
    _load_registry()
    # This module imports TensorFlow.
    from xlflax.data.supervised.sources import supervised_tasks

    return tuple(
      itertools.chain.from_iterable(
        supervised_tasks.find_example_problems(name, self.split)
        for name in names
      )
    )


@class_registry.register('seqio_bitext_mining')
@dataclasses.dataclass(frozen=True, kw_only=True)
class SeqioBitextMining(example_source.BitextMiningSource):
  """Source that reads bitext mining tasks registered with `add_mined_task`.

  Attributes:
    mixture: Name of the SeqIO task or mixture, such as 'xtreme.bucc2018'.
    split: Split to read from each task, such as 'test'.
  """

  mixture: str
  split: str = 'test'

  def languages(self) -> tuple[str, ...]:
    return tuple(_tasks_by_part(self.mixture, self.split))

  def task_names(self) -> tuple[str, ...]:
    """Returns the names of the SeqIO tasks that the source reads."""
    return tuple(
      name for part in self.languages() for name in _task_names(self, part)
    )

  def load(self, part: str) -> labeled_examples.BitextSentences:
    languages = file_formats.two_languages(part)
    sentences = (
      labeled_examples.BitextSentence.from_columns(
        row, number=number, languages=languages, where=f'task {name}'
      )
      for name, rows in _read_rows(self, part)
      for number, row in enumerate(rows)
    )
    return labeled_examples.BitextSentences.of(sentences, languages)


def _tasks_by_part(mixture: str, split: str) -> dict[str, list[str]]:
  """Groups the tasks that have a split by language or language pair."""
  registry = _load_registry()
  tasks: dict[str, list[str]] = {}
  for name in registry.expand_mixture(mixture, split=split):
    part = '-'.join(registry.task_languages(name))
    tasks.setdefault(part, []).append(name)
  return tasks


def _task_names(
  source: SeqioDataset | SeqioBitextMining, part: str
) -> list[str]:
  """Returns the names of the tasks in a language split."""
  tasks = _tasks_by_part(source.mixture, source.split)
  if part not in tasks:
    raise errors.CorpusError(
      'The mixture contains no tasks for the requested language split',
      got=part,
      expected='one of ' + ', '.join(tasks),
      where=_describe_source(source),
    )
  return tasks[part]


def _read_rows(
  source: SeqioDataset | SeqioBitextMining, part: str
) -> Iterator[tuple[str, Iterator[dict]]]:
  """Yields the name and the rows of each task in a language split."""
  names = _task_names(source, part)
  registry = _load_registry()
  # This module imports TensorFlow.
  from xlflax.data.seqio_tasks import data_sources

  def read_rows(name: str) -> Iterator[dict]:
    task = registry.get_task(name, split=source.split)
    with data_sources.converting_task_errors(name):
      dataset = data_sources.load_dataset(task, source.split)
      yield from data_sources.numpy_examples(dataset)

  for name in names:
    yield name, read_rows(name)


def _load_registry():
  """Imports TensorFlow and returns the task registry."""
  from xlflax.data.seqio_tasks import tensorflow_setup

  tensorflow_setup.load_tensorflow()
  from xlflax.data.seqio_tasks import task_registry

  return task_registry


def _describe_source(source: SeqioDataset | SeqioBitextMining) -> str:
  """Returns the split and the mixture of a source, for error messages."""
  return f'the {source.split} split of {source.mixture}'
