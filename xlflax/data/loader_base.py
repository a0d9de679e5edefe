"""The interface of loaders, and the checks that they share.

Two kinds with one interface. The cached loader reads a token cache: the
global batch of step s is a pure function of (cache, seed, s). The live loader
reads SeqIO tasks as they are: nothing to prepare, but it replays from the
beginning to reach a step, and shuffles within a window only. Without
shuffling both give the same batches, and which task a row comes from is the
same in any case.
"""

import dataclasses
from collections.abc import Mapping
from typing import Protocol

import jax

from xlflax.data import batch_keys, dataset_config
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.utils import errors, name_suggestions


class AnyStream(Protocol):
  """What every stream says of itself: of text, and of labelled examples."""

  @property
  def name(self) -> str:
    """What objectives call it."""

  @property
  def length(self) -> int:
    """T, tokens in a row, special tokens included."""

  @property
  def batch_size(self) -> int:
    """B, rows in a global batch."""

  @property
  def batching(self) -> dataset_config.LanguageBatching:
    """Whether a batch is of one language or mixes them."""

  def batch_spec(self, spec: VocabularySpec) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and types of the global batch, by key."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskStatistics:
  """One task of a stream.

  Attributes:
    task: its name.
    languages: of its sides.
    examples: in the source.
    rate: expected share of the rows at step 0.
    rows: rows in an epoch; None where only reading would tell (live).
    dropped: examples that the stream's filters drop (live: so far).
    truncated: examples that are cut to fit (live: so far).
    tokens: text tokens of all sides before filters; None if not known.
    unknown: share of unknown pieces of each side; None if not known.
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


class Loader(Protocol):
  """Gives any rows of any step's global batch."""

  @property
  def stream(self) -> AnyStream:
    """What is read."""

  @property
  def spec(self) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and types of the global batch, by key."""

  @property
  def identity(self) -> str:
    """Digest of the examples, or of the texts that they are made from."""

  @property
  def signature(self) -> str:
    """Changes when a file of a token cache is written; else ''."""

  def rows(self, step: int, start: int, stop: int) -> batch_keys.Batch:
    """Rows start .. stop - 1 of the global batch of the stream's step.

    Args:
      step: how many batches of this stream were used before, from 0.
      start: first row.
      stop: after the last row.

    Returns:
      int32 arrays [stop - start, T], as `xlflax.data.batch_keys` documents.
    """

  def statistics(self) -> list[TaskStatistics]:
    """Sizes and rates, for each task."""

  def close(self) -> None:
    """Releases files; the loader cannot be used any more."""


def check_sides(
  stream: dataset_config.Stream, task: str, languages: tuple[str, ...]
) -> None:
  """Raises a ConfigError if the layout does not fit the task."""
  if stream.parallel == (len(languages) == 2):
    return
  kinds = ('a monolingual', 'a parallel')
  raise errors.ConfigError(
    f'Layout.{stream.layout.name} needs {kinds[stream.parallel]} task',
    got=f'{task} ({"-".join(languages)}), {kinds[len(languages) == 2]} task',
    where=f'stream {stream.name!r}, mixture {stream.mixture!r}',
    fix='Choose another layout or mixture',
  )


def of_languages(
  stream: dataset_config.Stream, tasks: Mapping[str, tuple[str, ...]]
) -> list[str]:
  """The tasks of a mixture that `Stream.languages` leaves, in their order.

  Args:
    stream: that reads the mixture.
    tasks: name -> languages of its sides.

  Raises:
    ConfigError: there is no text of a language that is named.
  """
  languages = stream.languages
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
      'A stream names languages of which its mixture has no text',
      got=', '.join(missing) or 'no language',
      expected=name_suggestions.some_of(set().union(*tasks.values())),
      where=f'stream {stream.name!r}, mixture {stream.mixture!r}, languages',
      fix='correct their codes, or add their text',
    )
  return list(selected)


def side_languages(
  stream: dataset_config.Stream, vocabulary, languages: tuple[str, ...]
) -> tuple[int, ...]:
  """Language id of each side of a row of a task with `languages`.

  Adjacent segments are two sides of one language.
  """
  if stream.layout is dataset_config.Layout.ADJACENT:
    languages = languages * 2
  return tuple(map(vocabulary.language_id, languages))


def check_range(stream: AnyStream, step: int, start: int, stop: int) -> None:
  """Raises a ValueError for rows that no batch has."""
  if step < 0 or not 0 <= start < stop <= stream.batch_size:
    raise ValueError(
      f'No rows {start}..{stop} in batches of '
      f'{stream.batch_size} (step {step}).'
    )


def nothing_left(stream, task: str, examples: int) -> errors.CorpusError:
  """The error for a task of which the stream can use no example."""
  return errors.CorpusError(
    f'The filters of stream {stream.name!r} leave nothing of {task}',
    got=f'{examples} examples, split {stream.split}',
    expected=f'some with at least {stream.pairs.min_tokens} tokens a side'
    + (
      f' and at most {stream.pairs.max_tokens} on both'
      if stream.pairs.max_tokens
      else ''
    ),
    fix='Loosen PairOptions.min_tokens or max_tokens, or take the task '
    'out of the mixture',
  )
