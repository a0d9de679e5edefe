"""The loader that reads SeqIO tasks as they are. Needs TensorFlow and SeqIO.

The order of tasks is that of a token cache, and without shuffling the batches
are, too. What differs:

* Rows are shuffled within `Stream.shuffle_window` only, since a source is read
  from its beginning; each epoch has another order.
* Step s is reached by reading everything that the steps before it used
  (without making their batches). Every process reads all of it and keeps its
  own rows, so the global batches do not depend on the number of processes.
* A task whose preprocessors draw at random draws anew in each epoch, where a
  cache holds one draw.

For more than a small corpus, write a cache.
"""

import dataclasses
import functools
import itertools
import logging
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from xlflax.data import (
  batch_keys,
  dataset_config,
  loader_base,
  tokenized_examples,
)
from xlflax.data.batching import collate
from xlflax.data.batching import length_filter as row_lengths
from xlflax.data.batching import sequence_iterator as row_iterator
from xlflax.data.sampling import hashing, sampling_order
from xlflax.data.seqio_tasks import tensorflow_setup
from xlflax.storage import checksums
from xlflax.utils import errors

tensorflow_setup.load_tensorflow()

from xlflax.data.seqio_tasks import seqio_examples as task_examples  # noqa: E402
from xlflax.data.seqio_tasks import task_registry  # noqa: E402

_SECONDS_BETWEEN_LINES = 10
_DRAWS = 1024


class LiveLoader:
  """See `loader_base.Loader` and `loader_factory.open_loader`."""

  signature = ''
  _readers: 'list[_TaskRows]'
  _held: list[collate.Row]

  def __init__(self, stream: dataset_config.Stream, *, vocabulary, seed: int):
    self.stream = stream
    self._vocabulary = vocabulary
    _check_rows(stream)
    rates = task_registry.expand_mixture(stream.mixture, split=stream.split)
    task_list = loader_base.filter_tasks_by_language(
      stream, {task: task_registry.task_languages(task) for task in rates}
    )
    rates = {task: rates[task] for task in task_list}
    self._schedule = sampling_order.RowSchedule(
      stream,
      seed=seed,
      rates=rates,
      sizes={task: _size(task, stream, vocabulary) for task in rates},
    )
    self._languages = []
    for task in self._schedule.tasks:
      languages = task_registry.task_languages(task)
      loader_base.check_sides(stream, task, languages)
      self._languages.append(languages)
    self._language_ids = [
      loader_base.side_languages(stream, vocabulary, languages)
      for languages in self._languages
    ]
    self._restart()

  @functools.cached_property
  def identity(self) -> str:
    """Digest of the texts and of what is made of them; reads all files."""
    split = self.stream.split
    return checksums.digest_json(
      {
        task: task_examples.task_identity(task, split)
        for task in self._schedule.tasks
      }
    )

  @property
  def spec(self):
    """Shapes and types of the global batch, by key."""
    return self.stream.batch_spec(self._vocabulary.spec)

  def rows(self, step: int, start: int, stop: int) -> batch_keys.Batch:
    """See `loader_base.Loader.rows`; a step before the last one starts anew."""
    loader_base.check_range(self.stream, step, start, stop)
    if step < self._next - 1:
      logging.info(
        'Stream %s goes back to step %d and is read again from its beginning.',
        self.stream.name,
        step,
      )
      self._restart()
    if step >= self._next:
      self._replay(step)
      self._held = self._take(step)
    return collate.build_batch(
      self._held[start:stop], self.stream, self._vocabulary.spec
    )

  def statistics(self) -> list[loader_base.TaskStatistics]:
    """Sizes and rates, for each task; filters as far as was read."""
    return [
      loader_base.TaskStatistics(
        task=task,
        languages=languages,
        examples=int(size),
        rate=float(rate),
        rows=None,
        dropped=reader.counts.dropped,
        truncated=reader.counts.truncated,
        tokens=None,
      )
      for task, languages, size, rate, reader in zip(
        self._schedule.tasks,
        self._languages,
        self._schedule.sizes,
        self._schedule.rates(),
        self._readers,
        strict=True,
      )
    ]

  def close(self) -> None:
    """Ends the reading of files."""
    self._readers, self._held = [], []

  def _restart(self):
    self._next = 0  # the step that the readers stand before
    self._held = []
    self._readers = [
      _TaskRows(task, self.stream, self._vocabulary, int(key))
      for task, key in zip(
        self._schedule.tasks, self._schedule.order_keys, strict=True
      )
    ]

  def _replay(self, step: int):
    """Passes over the steps before `step`."""
    first, last_line = self._next, time.monotonic()
    while self._next < step:
      for task in self._schedule.slots(self._next)[0].tolist():
        next(self._readers[task])
      self._next += 1
      if time.monotonic() - last_line > _SECONDS_BETWEEN_LINES:
        last_line = time.monotonic()
        logging.info(
          'Stream %s: reading up to step %d, %.0f %% done (a token cache '
          'needs no such replay).',
          self.stream.name,
          step,
          100 * (self._next - first) / (step - first),
        )

  def _take(self, step: int) -> list[collate.Row]:
    """All rows of the step that the readers stand before."""
    tasks, uses = self._schedule.slots(step)
    self._next = step + 1
    return [
      collate.Row(next(self._readers[task]), self._language_ids[task], swaps)
      for task, swaps in zip(
        tasks.tolist(), self._schedule.swaps(tasks, uses), strict=True
      )
    ]


class _TaskRows:
  """The rows of one task, epoch after epoch.

  Attributes:
    counts: of the examples of the first epoch, as far as it was read.
  """

  def __init__(self, task, stream, vocabulary, key: int):
    self.counts = row_iterator.Counts()
    self._task, self._stream, self._vocabulary = task, stream, vocabulary
    self._key = key
    self._rows = self._epochs()

  def __next__(self) -> row_iterator.Units:
    return next(self._rows)

  def first_epoch(self) -> Iterator[row_iterator.Units]:
    """The rows of one pass."""
    return self._epoch(0, row_iterator.Counts())

  def _epochs(self):
    counts, epoch = self.counts, 0
    while True:
      empty = True
      for row in self._epoch(epoch, counts):
        empty = False
        yield row
      if empty:
        raise loader_base.no_examples_error(
          self._stream, self._task, counts.examples
        )
      counts, epoch = row_iterator.Counts(), epoch + 1

  def _epoch(self, epoch, counts) -> Iterator[row_iterator.Units]:
    rows = row_iterator.iterate_sequences(
      self._examples(),
      self._stream,
      counts=counts,
      eos_id=self._vocabulary.spec.eos_id,
    )
    rows = itertools.islice(rows, self._stream.max_examples)
    if not self._stream.shuffle:
      return rows
    key = int(hashing.draw_words(self._key, np.array([epoch]))[0])
    return shuffle_window(rows, window=self._stream.shuffle_window, key=key)

  def _examples(self) -> Iterator[tokenized_examples.Examples]:
    begins = True  # A task begins with a document.
    for batch in task_examples.read_task_examples(
      self._task,
      self._vocabulary,
      split=self._stream.split,
      num_threads=min(4, os.cpu_count() or 1),
    ):
      batch, begins = tokenized_examples.drop_empty(batch, begins)
      if len(batch):
        yield batch


def _kept_pairs(task: str, stream: dataset_config.Stream, vocabulary) -> int:
  """Pairs that the filters keep, up to `max_examples`; reads the task."""
  logging.info('Counting the pairs of %s that the filters keep.', task)
  ordered = dataclasses.replace(stream, shuffle=False)
  rows = _TaskRows(task, ordered, vocabulary, 0).first_epoch()
  return max(sum(1 for _ in rows), 1)


def shuffle_window(rows: Iterator, *, window: int, key: int) -> Iterator:
  """Yields `rows` in a random order, each at most some windows too late.

  A window of rows is held; a new row takes the place of a random one, which
  is yielded.

  Args:
    rows: any items.
    window: items held.
    key: fixes the order.
  """
  held: list[Any] = []
  places: Iterator[int] = iter(())
  num_drawn = 0
  for row in rows:
    if len(held) < window:
      held.append(row)
      continue
    slot = next(places, None)
    if slot is None:
      random_words = hashing.draw_words(
        key, np.arange(num_drawn, num_drawn + _DRAWS)
      )
      num_drawn += _DRAWS
      places = iter((random_words % np.uint64(window)).tolist())
      slot = next(places)
    yield held[slot]
    held[slot] = row
  for slot in hashing.shuffled_indices(
    hashing.make_key(key, 'rest'), len(held)
  ):
    yield held[slot]


def _check_rows(stream: dataset_config.Stream) -> None:
  """Refuses what depends on how many rows a task has."""
  if stream.max_epochs is not None:
    raise errors.ConfigError(
      'A limit of epochs needs a token cache, which knows how many rows there '
      'are',
      got=f'Stream.max_epochs={stream.max_epochs}, read live',
      where=f'stream {stream.name!r}',
      fix='Write one by `xlflax cache`',
    )


def _size(task: str, stream: dataset_config.Stream, vocabulary) -> int:
  """Examples of a task; 1 where it is not known and not needed."""
  if stream.sizes is dataset_config.Sizes.TOKENS:
    raise errors.ConfigError(
      'Rates by tokens need a token cache, which knows their number',
      got='Stream.sizes=TOKENS, read live',
      where=f'stream {stream.name!r}',
      fix='Write one by `xlflax cache`, or count examples',
    )
  if stream.alpha is not None and row_lengths.counts_kept_pairs(stream):
    return _kept_pairs(task, stream, vocabulary)
  size = task_examples.source_size(task, stream.split)
  if size is None and stream.alpha is not None:
    raise errors.CorpusError(
      'The number of examples is unknown, so that no rate follows from it',
      where=f'task {task}, split {stream.split}',
      fix='Write a token cache, or set Stream.alpha to None for the '
      "mixture's own rates",
    )
  if stream.max_examples is not None:
    size = min(size or stream.max_examples, stream.max_examples)
  return size or 1
