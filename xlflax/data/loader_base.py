"""Interface of data loaders, and checks shared by all loaders.

Text datasets have two loader implementations. The cached loader reads a token
cache, and its global batch for step s is a pure function of (cache, seed, s).
The live loader reads SeqIO tasks without any preparation, but to reach a step
it must replay the dataset from the beginning, and it shuffles only within a
window. Without shuffling, both loaders return the same batches. The task of
each sequence is the same in both loaders, with and without shuffling.
"""

import dataclasses
from collections.abc import Mapping
from typing import Protocol

import jax

from xlflax.config import setting_names
from xlflax.data import batch_keys, dataset_config, task_errors
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.utils import errors, name_suggestions


class AnyDatasetConfig(Protocol):
  """Interface that the configurations of text and labeled datasets share."""

  @property
  def name(self) -> str:
    """Name by which objectives refer to the dataset."""

  @property
  def length(self) -> int:
    """Sequence length T in tokens, including special tokens."""

  @property
  def batch_size(self) -> int:
    """Number of sequences B in each global batch."""

  @property
  def batching(self) -> dataset_config.LanguageBatching:
    """Language batching mode: one or several languages per batch."""

  def batch_spec(self, spec: VocabularySpec) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the shape and type of each array in the global batch, by key."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskStatistics:
  """Statistics of a task in a dataset.

  Attributes:
    task: Name of the task.
    languages: Language codes of the task's source and target texts.
    examples: Number of examples in the source.
    rate: Fraction of the sequences expected to come from this task at step 0.
    rows: Number of sequences in an epoch. None without a token cache, because
      the number is unknown before the task is read.
    dropped: Number of examples that the dataset's filters drop. Without a token
      cache, only the examples that have been read so far are counted, unless
      the task size is the number of pairs that pass the filters.
    truncated: Number of examples that are truncated, counted in the same way as
      `dropped`.
    tokens: Number of text tokens in an epoch, without dropped examples and
      truncated text. None if unknown.
    unknown: Fraction of unknown tokens in the texts of each language. None if
      unavailable.
    examples_read: Number of preprocessed examples that were read when `dropped`
      and `truncated` were counted. 0 if unknown.
    mixture_rate: Rate of the task in the SeqIO mixture, not normalized. None if
      the dataset reads no mixture.
  """

  task: str
  languages: tuple[str, ...]
  examples: int
  rate: float
  rows: int | None
  dropped: int
  truncated: int
  tokens: int | None
  unknown: tuple[float, ...] | None = None
  examples_read: int = 0
  mixture_rate: float | None = None


class Loader(Protocol):
  """Data loader that can return the global batch of any step."""

  @property
  def dataset(self) -> AnyDatasetConfig:
    """Dataset that the loader reads."""

  @property
  def spec(self) -> dict[str, jax.ShapeDtypeStruct]:
    """Shape and type of each array in the global batch, by key."""

  @property
  def identity(self) -> str:
    """Digest of the examples, or of the texts from which they are created."""

  @property
  def signature(self) -> str:
    """Signature that changes whenever the files of the token cache change.

    The signature is empty if the loader does not read a cache.
    """

  @property
  def num_batches(self) -> int | None:
    """Number of global batches that the dataset provides.

    If None, the dataset is repeated without limit.
    """

  def rows(self, step: int, start: int, stop: int) -> batch_keys.Batch:
    """Returns rows `start` to `stop - 1` of the global batch for a step.

    Args:
      step: Number of batches of this dataset that precede the batch.
      start: Index of the first row to return.
      stop: Index after the last row.

    Returns:
      int32 arrays of shape [stop - start, T], as documented in
      `xlflax.data.batch_keys`.
    """

  def statistics(self) -> list[TaskStatistics]:
    """Returns the size and sampling rate of each task."""

  def close(self) -> None:
    """Closes all files, after which the loader can no longer be used."""


def check_sides(
  dataset: dataset_config.DatasetConfig, task: str, languages: tuple[str, ...]
) -> None:
  """Checks that a dataset and a task are both monolingual or both parallel.

  Args:
    dataset: Dataset that reads the task.
    task: Name of the task.
    languages: Language codes of the task's source and target texts.

  Raises:
    ConfigError: If a parallel layout is used for a monolingual task, or a
      monolingual layout for a parallel task.
  """
  if dataset.parallel == (len(languages) == 2):
    return
  kinds = ('a monolingual', 'a parallel')
  raise errors.ConfigError(
    f'The dataset {dataset.name!r} requires {kinds[dataset.parallel]} task, '
    f'because its layout is ExampleLayout.{dataset.layout.name}. The task '
    f'{task} ({"-".join(languages)}) of the mixture {dataset.mixture!r} is '
    f'{kinds[len(languages) == 2]} task',
    fix='Choose a different layout or mixture.',
  )


def filter_tasks_by_language(
  dataset: dataset_config.DatasetConfig, tasks: Mapping[str, tuple[str, ...]]
) -> list[str]:
  """Returns the tasks of a mixture that match the languages of the dataset.

  Args:
    dataset: Dataset that reads the mixture.
    tasks: Mapping from task names to the languages of their texts.

  Raises:
    ConfigError: If there is a selected language in which no task has text.
  """
  languages = dataset.languages
  if languages is None:
    return list(tasks)
  selected = {
    name: task_languages
    for name, task_languages in tasks.items()
    if set(task_languages) <= set(languages)
  }
  missing = sorted(set(languages).difference(*selected.values()))
  if missing or not selected:
    raise errors.ConfigError(
      f'The mixture {dataset.mixture!r} has no text in some of the languages '
      f'in `DatasetConfig.languages` of the dataset {dataset.name!r}'
      if missing
      else '`DatasetConfig.languages` must not be empty in the dataset '
      f'{dataset.name!r}',
      got=', '.join(missing) or None,
      expected=name_suggestions.format_choices(set().union(*tasks.values())),
      fix=f'Correct {setting_names.name_setting(dataset.name, "languages")}, '
      'or add text in the missing languages.'
      if missing
      else 'Set it to the languages of the dataset, or to None to read all '
      'languages.',
    )
  return list(selected)


def side_languages(
  dataset: dataset_config.DatasetConfig, vocabulary, languages: tuple[str, ...]
) -> tuple[int, ...]:
  """Returns the language ids of a sequence's source and target texts.

  Two adjacent segments of a document have the same language.

  Args:
    dataset: Dataset that reads the task.
    vocabulary: Vocabulary that maps language codes to language ids.
    languages: Language codes of the task's source and target texts.
  """
  if dataset.layout is dataset_config.ExampleLayout.INTERLEAVED:
    languages = languages * 2
  return tuple(map(vocabulary.language_id, languages))


def check_range(
  dataset: AnyDatasetConfig, step: int, start: int, stop: int
) -> None:
  """Raises a ValueError if a range of rows is not within the batch."""
  if step < 0 or not 0 <= start < stop <= dataset.batch_size:
    raise ValueError(
      f'The range of rows to read from the batch of step {step} must be within '
      f'0..{dataset.batch_size}, but it is {start}..{stop}.'
    )


def suggest_filter_changes(dataset: dataset_config.DatasetConfig) -> list[str]:
  """Returns suggestions for relaxing filters, such as `decrease --gin.NAME`."""
  pairs = dataset.pairs
  changes = []
  if pairs.min_tokens > 1:
    name = setting_names.name_setting(dataset.name, 'pairs.min_tokens')
    changes.append(f'decrease {name}')
  if pairs.max_tokens is not None:
    name = setting_names.name_setting(dataset.name, 'pairs.max_tokens')
    changes.append(f'increase {name}')
  return changes


def no_examples_error(dataset, task: str, examples: int) -> errors.CorpusError:
  """Returns the error for a task without any examples that pass the filters.

  Args:
    dataset: Dataset that contains the task.
    task: Name of the task.
    examples: Number of examples with text. The dataset's filters drop all of
      them. If 0, the task itself provides no text.
  """
  if not examples:
    return task_errors.no_text_error(task, dataset.split)
  limits = (
    f'at least {dataset.pairs.min_tokens} tokens in the source and in the '
    'target'
  )
  if dataset.pairs.max_tokens:
    limits += f' and at most {dataset.pairs.max_tokens} tokens in total'
  remedies = [
    *suggest_filter_changes(dataset),
    'remove the task from the mixture',
  ]
  return errors.CorpusError(
    f'The filters of the dataset {dataset.name!r} drop all {examples} '
    f'examples of the split {dataset.split!r} of the task {task}. The filters '
    f'keep only examples with {limits}',
    fix=f'To keep examples, {" or ".join(remedies)}.',
  )
