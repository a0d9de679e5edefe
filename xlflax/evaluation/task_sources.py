"""Text to evaluate on from SeqIO tasks; TensorFlow is imported when read."""

import dataclasses
import itertools
from collections.abc import Iterator

from xlflax.evaluation import text_sources
from xlflax.utils import class_registry, errors, validation


@class_registry.register('task_text')
@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskText(text_sources.TextSource):
  """The monolingual tasks of a SeqIO mixture.

  Attributes:
    mixture: a mixture or task, such as 'wiki40b'.
    split: of the tasks.
    languages: codes to take; None: all there are.
    max_lines: the first so many examples of a language; None: all.
  """

  mixture: str
  split: str = 'test'
  languages: tuple[str, ...] | None = None
  max_lines: validation.PositiveInt | None = None

  def languages_found(self) -> tuple[str, ...]:
    """Returns the languages of the source."""
    return text_sources.chosen_languages(
      tuple(language for (language,) in _tasks(self, 1)),
      self.languages,
      _where(self),
    )

  def load(self, language: str) -> list[str]:
    """Returns the sentences of a language or pair."""
    examples = _examples(self, (language,))
    return [
      example['targets']
      for example in itertools.islice(examples, self.max_lines)
    ]


@class_registry.register('task_pairs')
@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskPairs(text_sources.PairSource):
  """The parallel tasks of a SeqIO mixture.

  Attributes:
    mixture: a mixture or task, such as 'wmt19'.
    split: of the tasks.
    languages: languages to take the pairs with English of, or pairs such as
      'de-fr'; None: all there are.
    max_pairs: the first so many sentence pairs of a language pair; None: all.
  """

  mixture: str
  split: str = 'test'
  languages: tuple[str, ...] | None = None
  max_pairs: validation.PositiveInt | None = None

  def pairs(self) -> tuple[text_sources.Pair, ...]:
    """Returns the language pairs of the source."""
    return text_sources.chosen_pairs(
      tuple((first, second) for first, second in _tasks(self, 2)),
      self.languages,
      _where(self),
    )

  def load(self, pair: text_sources.Pair) -> text_sources.PairedText:
    """Returns the sentences of a language or pair."""
    examples = list(itertools.islice(_examples(self, pair), self.max_pairs))
    return text_sources.PairedText(
      [example['inputs'] for example in examples],
      [example['targets'] for example in examples],
    )


def _tasks(
  source: TaskText | TaskPairs, sides: int
) -> dict[tuple[str, ...], list[str]]:
  """Languages -> names of the mixture's tasks with so many sides."""
  registry = _registry()
  tasks: dict[tuple[str, ...], list[str]] = {}
  for name in registry.expand_mixture(source.mixture, split=source.split):
    languages = registry.task_languages(name)
    if len(languages) == sides:
      tasks.setdefault(languages, []).append(name)
  return tasks


def _examples(source, languages: tuple[str, ...]) -> Iterator[dict]:
  """The examples before tokenisation of all tasks of these languages."""
  registry = _registry()
  from xlflax.data.seqio_tasks import seqio_reader as task_reader

  for name in _tasks(source, len(languages))[languages]:
    steps = registry.get_task(name).preprocessors
    if not steps or steps[-1] is not registry.tokenize:
      raise errors.CorpusError(
        'A task that tokenises in its own way cannot be evaluated on',
        where=f'task {name}',
        fix='register it with add_monolingual_task or add_parallel_task',
      )
    yield from task_reader.read_texts(name, split=source.split)


def _registry():
  from xlflax.data.seqio_tasks import tensorflow_setup

  tensorflow_setup.load_tensorflow()
  from xlflax.data.seqio_tasks import task_registry

  return task_registry


def _where(source) -> str:
  return f'the {source.split} split of {source.mixture}'
