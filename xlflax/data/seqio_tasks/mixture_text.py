"""Plain text of SeqIO mixtures, read like a corpus. Requires TensorFlow."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from xlflax.data.corpus.corpus_directory import (
  TEST,
  TRAIN,
  VALIDATION,
  Line,
  Pair,
)
from xlflax.data.seqio_tasks import seqio_reader, task_registry
from xlflax.utils import errors, validation

_SPLITS = (TRAIN, VALIDATION, TEST)


class MixtureText:
  """Text of all tasks in the given mixtures, before it is tokenized.

  The class implements `data.tokenizers.text_sampling.MultilingualText`. The
  rates of the mixtures are ignored. A task that occurs in several mixtures is
  read once.

  Raises:
    CorpusError: If a mixture does not exist, if the languages of a task are
      unknown, or if the text of a task cannot be read before it is tokenized.
  """

  OPENED_BY: ClassVar[str] = (
    'xlflax.data.seqio_tasks.mixture_text.MixtureText([{}])'
  )

  @validation.validate_call
  def __init__(self, mixtures: Sequence[str]):
    """Finds the tasks of the mixtures.

    Args:
      mixtures: Names of registered tasks or mixtures.
    """
    self._mixtures = tuple(mixtures)
    self._tasks = sorted(
      {task for name in mixtures for task in task_registry.task_names(name)}
    )
    # The tasks of each split by their language or language pair.
    self._groups: dict[str, dict[tuple[str, ...], list[str]]] = {
      split: {} for split in _SPLITS
    }
    for task in self._tasks:
      _check_has_text(task)
      languages = task_registry.task_languages(task)
      for split in self.task_splits(task):
        self._groups[split].setdefault(languages, []).append(task)
    self._counts: dict[tuple[str, str], int] = {}

  def __str__(self) -> str:
    return ', '.join(self._mixtures)

  @property
  def languages(self) -> tuple[str, ...]:
    """All languages with text in any split, sorted."""
    groups = [codes for split in _SPLITS for codes in self._groups[split]]
    return tuple(sorted({code for codes in groups for code in codes}))

  @property
  def tasks(self) -> tuple[str, ...]:
    """Names of the tasks in the mixtures, sorted."""
    return tuple(self._tasks)

  def task_splits(self, task: str) -> list[str]:
    """Returns which of the splits train, validation and test a task has."""
    splits = task_registry.get_task(task).splits
    return [split for split in _SPLITS if split in splits]

  def monolingual_languages(self, split: str = TRAIN) -> tuple[str, ...]:
    """Returns the languages with monolingual text in a split, sorted."""
    groups = sorted(self._groups[split])
    return tuple(codes[0] for codes in groups if len(codes) == 1)

  def parallel_pairs(self, split: str = TRAIN) -> tuple[tuple[str, str], ...]:
    """Returns the language pairs with parallel text in a split, sorted."""
    groups = sorted(self._groups[split])
    return tuple((codes[0], codes[1]) for codes in groups if len(codes) == 2)

  def monolingual(self, language: str, split: str = TRAIN) -> Iterator[Line]:
    """Yields the lines of a language, always in the same order."""
    for task in self._groups[split].get((language,), ()):
      for example in seqio_reader.read_texts(task, split=split):
        yield Line(example['targets'], example['starts_document'])

  def parallel(
    self, first: str, second: str, split: str = TRAIN
  ) -> Iterator[Pair]:
    """Yields the sentence pairs of two languages, always in the same order."""
    for task in self._groups[split].get((first, second), ()):
      for example in seqio_reader.read_texts(task, split=split):
        yield Pair(example['inputs'], example['targets'])

  def count(self, *languages: str, split: str = TRAIN) -> int:
    """Reads and counts the lines or, for two languages, the sentence pairs.

    The numbers differ from those of the tasks' sources if preprocessors split
    or filter the examples. Each task is read only once.

    Args:
      *languages: One language code, or the two codes of a language pair.
      split: Name of the split.
    """
    tasks = self._groups[split].get(languages, ())
    return sum(self._count(task, split) for task in tasks)

  def validate(self) -> dict[str, int]:
    """Reads all text and returns the number of examples by task and split."""
    return {
      f'{task} {split}': self._count(task, split)
      for task in self._tasks
      for split in self.task_splits(task)
    }

  def _count(self, task: str, split: str) -> int:
    """Returns the number of examples of a task after preprocessing."""
    if (task, split) not in self._counts:
      examples = seqio_reader.read_texts(task, split=split)
      self._counts[task, split] = sum(1 for _ in examples)
    return self._counts[task, split]


def _check_has_text(name: str) -> None:
  """Raises CorpusError if a task provides token ids instead of text."""
  steps = task_registry.get_task(name).preprocessors
  if not steps or steps[-1] is not task_registry.tokenize:
    raise errors.CorpusError(
      f'The task {name!r} must provide text, but it provides tokens',
      fix='Register the task with add_monolingual_task or add_parallel_task '
      'in xlflax.data.seqio_tasks.task_registry.',
    )
