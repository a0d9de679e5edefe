"""The interface of loaders, and how one is opened.

Two kinds with one interface. The cached loader reads a token cache: the
global batch of step s is a pure function of (cache, seed, s). The live loader
reads SeqIO tasks as they are: nothing to prepare, but it replays from the
beginning to reach a step, and shuffles within a window only. Without
shuffling both give the same batches, and which task a row comes from is the
same in any case.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Protocol

import jax
import jax.numpy as jnp

from xlflax import errors
from xlflax.data import batch as batch_lib
from xlflax.data import stream as stream_lib
from xlflax.data.corpus import directory as corpus_lib
from xlflax.data.labelled import stream as labelled_lib
from xlflax.data.rows import layouts as rows
from xlflax.data.vocabularies.spec import VocabularySpec

AnyStream = stream_lib.Stream | labelled_lib.LabelledStream


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
  """

  task: str
  languages: tuple[str, ...]
  examples: int
  rate: float
  rows: int | None
  dropped: int
  truncated: int
  tokens: int | None


class Loader(Protocol):
  """Gives any rows of any step's global batch."""

  @property
  def stream(self) -> AnyStream:
    """What is read."""

  @property
  def spec(self) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and types of the global batch, by key."""

  def rows(self, step: int, start: int, stop: int) -> batch_lib.Batch:
    """Rows start .. stop - 1 of the global batch of the stream's step.

    Args:
      step: how many batches of this stream were used before, from 0.
      start: first row.
      stop: after the last row.

    Returns:
      int32 arrays [stop - start, T], as `xlflax.data.batch` documents.
    """

  def statistics(self) -> list[TaskStatistics]:
    """Sizes and rates, for each task."""

  def close(self) -> None:
    """Releases files; the loader can't be used any more."""


def abstract_batch(
  stream: AnyStream, spec: VocabularySpec
) -> dict[str, jax.ShapeDtypeStruct]:
  """Shapes and types of any stream's global batch."""
  if isinstance(stream, labelled_lib.LabelledStream):
    return stream.batch_spec(spec)
  return batch_spec(stream)


def batch_spec(stream: stream_lib.Stream) -> dict[str, jax.ShapeDtypeStruct]:
  """Shapes and types of the global batch of a stream of text."""
  shape = (stream.batch_size, stream.length)
  return {
    key: jax.ShapeDtypeStruct(shape, jnp.int32) for key in rows.keys(stream)
  }


def check_sides(
  stream: stream_lib.Stream, task: str, languages: tuple[str, ...]
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


def side_languages(
  stream: stream_lib.Stream, vocabulary, languages: tuple[str, ...]
) -> tuple[int, ...]:
  """Language id of each side of a row of a task with `languages`.

  Adjacent segments are two sides of one language.
  """
  if stream.layout is stream_lib.Layout.ADJACENT:
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


def open_loader(
  stream: AnyStream,
  *,
  vocabulary,
  seed: int,
  cache_dir=None,
  corpus=None,
  task_modules: Sequence[str] = (),
) -> Loader:
  """Opens a stream.

  Args:
    stream: what to read.
    vocabulary: a `vocabulary.Vocabulary`.
    seed: the run's seed.
    cache_dir: the token cache to read; None reads SeqIO live.
    corpus: a corpus directory or `corpus.Corpus`; a cache of its tasks is
      refused if its text has changed since, and the live loader registers
      its tasks.
    task_modules: modules that register SeqIO tasks; imported to read live.

  Raises:
    CacheError: the cache is missing, incomplete, or does not fit.
    ConfigError: the layout does not fit the tasks, or the live loader is
      asked for where TensorFlow or SeqIO is not installed.
    CorpusError: no such mixture, or the filters leave nothing of a task.
  """
  if isinstance(stream, labelled_lib.LabelledStream):
    from xlflax.data.labelled import loader as labelled_loader

    return labelled_loader.LabelledLoader(
      stream, vocabulary=vocabulary, seed=seed, cache_dir=cache_dir
    )
  if isinstance(corpus, (str, os.PathLike)):
    corpus = corpus_lib.Corpus(corpus)
  if cache_dir is not None:
    from xlflax.data.cache import loader as cached_loader

    return cached_loader.CachedLoader(
      stream,
      vocabulary=vocabulary,
      seed=seed,
      cache_dir=cache_dir,
      corpus=corpus,
    )
  try:
    from xlflax.data.cache import writer as cache_writer
    from xlflax.data.seqio_tasks import live_loader
  except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith('xlflax'):
      raise
    raise errors.ConfigError(
      'Reading text live needs TensorFlow and SeqIO',
      got=f'no module {error.name!r}',
      where=f'stream {stream.name!r}',
      fix='Install xlflax[data], or give the directory of a token cache',
    ) from error
  cache_writer.register_tasks(corpus and corpus.directory, task_modules)
  return live_loader.LiveLoader(
    stream, vocabulary=vocabulary, seed=seed, corpus=corpus
  )
