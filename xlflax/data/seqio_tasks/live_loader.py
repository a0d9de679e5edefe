"""Loader that reads SeqIO tasks while training, without a token cache.

Requires TensorFlow and SeqIO.

The task of each sequence is the same as with a token cache. Without shuffling,
the batches are also the same. With shuffling, the differences are:

* Sequences are shuffled only within `DatasetConfig.shuffle_window`, because a
  source is read from its beginning. The order differs between epochs.
* To reach step s, the loader reads all examples of the steps before it (without
  creating their batches). Every process reads all examples and selects its own
  rows, so that the global batches do not depend on the number of processes.
* Random preprocessors are applied again in each epoch, whereas a cache contains
  one sample.
* A wrong number of examples that a source declares is found only at the end of
  the first epoch.

Use a token cache unless the corpus is small.
"""

import contextlib
import dataclasses
import functools
import itertools
import logging
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from xlflax.config import setting_names
from xlflax.data import (
  batch_keys,
  corpus_checks,
  dataset_config,
  loader_base,
  tokenized_examples,
)
from xlflax.data.batching import collate, length_filter, sequence_iterator
from xlflax.data.plain_text import text_tasks
from xlflax.data.sampling import hashing, sampling_order
from xlflax.data.seqio_tasks import tensorflow_setup
from xlflax.storage import checksums
from xlflax.utils import errors, logs

tensorflow_setup.load_tensorflow()

from xlflax.data.seqio_tasks import seqio_examples, task_registry, task_samples  # noqa: E402

_LOG_INTERVAL_SECONDS = 10
# Number of random numbers that are generated at a time.
_RANDOM_BLOCK_SIZE = 1024


class LiveLoader:
  """Loader that reads SeqIO tasks without a token cache.

  See `loader_base.Loader` for the interface, and `loader_factory.open_loader`
  for the arguments and errors.
  """

  signature = ''
  num_batches = None
  _readers: 'list[_TaskReader]'
  _current_rows: list[collate.Row]

  def __init__(
    self, dataset: dataset_config.DatasetConfig, *, vocabulary, seed: int
  ):
    self.dataset = dataset
    self._vocabulary = vocabulary
    _check_max_epochs(dataset)
    self._checked_sources: set[str] = set()
    rates = task_registry.expand_mixture(dataset.mixture, split=dataset.split)
    task_list = loader_base.filter_tasks_by_language(
      dataset, {task: task_registry.task_languages(task) for task in rates}
    )
    rates = {task: rates[task] for task in task_list}
    # Counts of the first epoch, for the tasks that are read to count their pairs.
    self._epoch_counts: dict[str, sequence_iterator.Counts] = {}
    sizes: dict[str, int] = {}
    for task in rates:
      sizes[task], counts = _measure_task(task, dataset, vocabulary)
      if counts is not None:
        self._epoch_counts[task] = counts
    self._schedule = sampling_order.RowSchedule(
      dataset,
      seed=seed,
      rates=rates,
      sizes=sizes,
      languages={task: task_registry.task_languages(task) for task in rates},
    )
    self._languages = []
    for task in self._schedule.tasks:
      languages = task_registry.task_languages(task)
      loader_base.check_sides(dataset, task, languages)
      self._languages.append(languages)
    self._language_ids = [
      loader_base.side_languages(dataset, vocabulary, languages)
      for languages in self._languages
    ]
    self._restart()

  @functools.cached_property
  def identity(self) -> str:
    """Digest of the texts and their preprocessing.

    Computing the digest requires reading all files.
    """
    split = self.dataset.split
    return checksums.digest_json(
      {
        task: seqio_examples.task_identity(task, split)
        for task in self._schedule.tasks
      }
    )

  @property
  def spec(self):
    """Shape and type of each array in the global batch, by key."""
    return self.dataset.batch_spec(self._vocabulary.spec)

  def rows(self, step: int, start: int, stop: int) -> batch_keys.Batch:
    """Returns a slice of a global batch; see `loader_base.Loader.rows`.

    If the step precedes the step of the last call, the dataset is read again
    from its beginning.
    """
    loader_base.check_range(self.dataset, step, start, stop)
    if step < self._next_step - 1:
      logging.info(
        'Rewinding dataset %s to step %d by reading it from its beginning.',
        self.dataset.name,
        step,
      )
      self._restart()
    if step >= self._next_step:
      self._replay(step)
      self._current_rows = self._read_step(step)
    return collate.build_batch(
      self._current_rows[start:stop], self.dataset, self._vocabulary.spec
    )

  def statistics(self) -> list[loader_base.TaskStatistics]:
    """Returns the size and sampling rate of each task.

    The numbers of dropped and truncated examples include only examples that
    have already been read, or all examples if the loader counted the pairs that
    pass the filters.
    """
    counts = [
      self._epoch_counts.get(task, reader.counts)
      for task, reader in zip(self._schedule.tasks, self._readers, strict=True)
    ]
    return [
      loader_base.TaskStatistics(
        task=task,
        languages=languages,
        examples=int(size),
        rate=float(rate),
        rows=None,
        dropped=task_counts.dropped,
        truncated=task_counts.truncated,
        tokens=None,
        examples_read=task_counts.examples,
        mixture_rate=float(mixture_rate),
      )
      for task, languages, size, rate, mixture_rate, task_counts in zip(
        self._schedule.tasks,
        self._languages,
        self._schedule.sizes,
        self._schedule.rates(),
        self._schedule.mixture_rates,
        counts,
        strict=True,
      )
    ]

  def find_text_anomalies(self) -> list[str]:
    """Returns a warning for each probable defect in the text of the tasks.

    Unknown tokens are counted in the first examples of each task. Errors of
    reading a task are ignored, because they are raised when it is used.
    """
    rates: list[tuple[str, str, float]] = []
    for task in self._schedule.tasks:
      with contextlib.suppress(errors.XlflaxError, UnicodeDecodeError):
        rates += _sample_unknown_rates(
          task, self._vocabulary, self.dataset.split
        )
    return [
      *task_samples.find_anomalies(self._schedule.tasks, self.dataset.split),
      *corpus_checks.find_unknown_tokens(rates),
    ]

  def close(self) -> None:
    """Closes the files from which the tasks are read."""
    self._readers = []
    self._current_rows = []

  def _restart(self):
    self._next_step = 0  # The first step whose examples have not been read.
    self._current_rows = []
    self._readers = [
      _TaskReader(
        task,
        self.dataset,
        self._vocabulary,
        int(key),
        checked_sources=self._checked_sources,
      )
      for task, key in zip(
        self._schedule.tasks, self._schedule.order_keys, strict=True
      )
    ]

  def _replay(self, step: int):
    """Reads and discards the examples of the steps before `step`."""
    first_step, last_log_time = self._next_step, time.monotonic()
    while self._next_step < step:
      for task in self._schedule.slots(self._next_step)[0].tolist():
        next(self._readers[task])
      self._next_step += 1
      if time.monotonic() - last_log_time > _LOG_INTERVAL_SECONDS:
        last_log_time = time.monotonic()
        logging.info(
          'Replaying dataset %s up to step %d: %.0f %% done. A token cache '
          'does not require a replay.',
          self.dataset.name,
          step,
          100 * (self._next_step - first_step) / (step - first_step),
        )

  def _read_step(self, step: int) -> list[collate.Row]:
    """Returns the texts of all sequences in the batch of the next step."""
    tasks, uses = self._schedule.slots(step)
    self._next_step = step + 1
    return [
      collate.Row(next(self._readers[task]), self._language_ids[task], swaps)
      for task, swaps in zip(
        tasks.tolist(), self._schedule.swaps(tasks, uses), strict=True
      )
    ]


class _TaskReader:
  """Infinite iterator over the sequences of one task.

  Attributes:
    counts: Numbers of examples of the first epoch that have been read, dropped
      and truncated so far.
  """

  def __init__(
    self,
    task,
    dataset,
    vocabulary,
    key: int,
    *,
    checked_sources: set[str] | None = None,
  ):
    """Starts to read a task.

    Args:
      task: Name of the task.
      dataset: Dataset that contains the task.
      vocabulary: Vocabulary that the run uses.
      key: Random key that determines the order.
      checked_sources: Names of the tasks whose number of source examples has
        been checked. At the end of an epoch, the number is checked if the task
        is not in the set, and the task is added. If None, the number is not
        checked.
    """
    self.counts = sequence_iterator.Counts()
    self._task = task
    self._dataset = dataset
    self._vocabulary = vocabulary
    self._key = key
    self._checked_sources = checked_sources
    self._sequences = self._all_epochs()

  def __next__(self) -> sequence_iterator.Units:
    return next(self._sequences)

  def first_epoch(
    self, counts: sequence_iterator.Counts
  ) -> Iterator[sequence_iterator.Units]:
    """Returns an iterator over a task's sequences in the first epoch.

    Args:
      counts: Numbers of read, dropped and truncated examples. The iterator
        updates them.
    """
    return self._read_epoch(0, counts)

  def _all_epochs(self):
    counts = self.counts
    for epoch in itertools.count():
      is_empty = True
      for sequence in self._read_epoch(epoch, counts):
        is_empty = False
        yield sequence
      if is_empty:
        raise loader_base.no_examples_error(
          self._dataset, self._task, counts.examples
        )
      counts = sequence_iterator.Counts()

  def _read_epoch(self, epoch, counts) -> Iterator[sequence_iterator.Units]:
    sequences = sequence_iterator.iterate_sequences(
      self._examples(),
      self._dataset,
      counts=counts,
      eos_id=self._vocabulary.spec.eos_id,
    )
    sequences = itertools.islice(sequences, self._dataset.max_examples)
    if not self._dataset.shuffle:
      return sequences
    key = int(hashing.draw_words(self._key, np.array([epoch]))[0])
    window = self._dataset.shuffle_window
    return shuffle_window(sequences, window=window, key=key)

  def _examples(self) -> Iterator[tokenized_examples.Examples]:
    pending_start = True  # The first example of a task starts a document.
    num_examples = 0
    for batch in seqio_examples.read_task_examples(
      self._task,
      self._vocabulary,
      split=self._dataset.split,
      num_threads=min(4, os.cpu_count() or 1),
    ):
      num_examples += len(batch)
      batch, pending_start = tokenized_examples.drop_empty(batch, pending_start)
      if len(batch):
        yield batch
    checked_sources = self._checked_sources
    if checked_sources is not None and self._task not in checked_sources:
      checked_sources.add(self._task)
      _check_source_size(self._task, self._dataset.split, num_examples)


def _check_source_size(task: str, split: str, num_examples: int) -> None:
  """Logs a warning if a source does not have the declared number of examples.

  Args:
    task: Name of the task.
    split: Name of the split, such as 'train'.
    num_examples: Number of examples after preprocessing. If it equals the
      declared number, the examples of the source are not counted.
  """
  declared_size = seqio_examples.source_size(task, split)
  if declared_size is None or declared_size == num_examples:
    return
  count = seqio_examples.count_source(task, split)
  if count is not None and count != declared_size:
    logging.warning(
      '%s, and start the run again.',
      text_tasks.describe_wrong_size(task, split, declared_size, count),
      extra=logs.ONCE,
    )


def _sample_unknown_rates(
  task: str, vocabulary, split: str
) -> list[tuple[str, str, float]]:
  """Counts the unknown tokens in the first examples of a task.

  Args:
    task: Name of the task.
    vocabulary: Vocabulary that the run uses.
    split: Name of the split, such as 'train'.

  Returns:
    Tuples (task, language, fraction of unknown tokens).
  """
  batches = seqio_examples.read_task_examples(
    task, vocabulary, split=split, size=corpus_checks.LINES
  )
  examples = next(batches, None)
  if examples is None:
    return []
  return [
    (task, language, float(np.mean(texts.tokens == vocabulary.spec.unk_id)))
    for language, texts in zip(
      task_registry.task_languages(task), examples.sides, strict=True
    )
    if texts.tokens.size
  ]


def _count_filtered_pairs(
  task: str, dataset: dataset_config.DatasetConfig, vocabulary
) -> tuple[int, sequence_iterator.Counts]:
  """Reads a task and counts the pairs that pass the filters.

  Returns:
    The number of pairs, between 1 and `max_examples`, and the numbers of
    examples that were read, dropped and truncated.
  """
  logging.info('Counting the pairs of %s that pass the filters.', task)
  ordered_dataset = dataclasses.replace(dataset, shuffle=False)
  reader = _TaskReader(task, ordered_dataset, vocabulary, 0)
  counts = sequence_iterator.Counts()
  num_pairs = sum(1 for _ in reader.first_epoch(counts))
  return max(num_pairs, 1), counts


def shuffle_window(rows: Iterator, *, window: int, key: int) -> Iterator:
  """Shuffles rows with a buffer of limited size.

  When the buffer is full, each new row replaces a random row in the buffer. The
  replaced row is yielded.

  Args:
    rows: Rows to shuffle.
    window: Number of rows in the buffer.
    key: Random key that determines the order.
  """
  buffer: list[Any] = []
  random_slots: Iterator[int] = iter(())
  num_drawn = 0
  for row in rows:
    if len(buffer) < window:
      buffer.append(row)
      continue
    slot = next(random_slots, None)
    if slot is None:
      random_words = hashing.draw_words(
        key, np.arange(num_drawn, num_drawn + _RANDOM_BLOCK_SIZE)
      )
      num_drawn += _RANDOM_BLOCK_SIZE
      random_slots = iter((random_words % np.uint64(window)).tolist())
      slot = next(random_slots)
    yield buffer[slot]
    buffer[slot] = row

  final_key = hashing.make_key(key, 'rest')
  for slot in hashing.shuffled_indices(final_key, len(buffer)):
    yield buffer[slot]


def _check_max_epochs(dataset: dataset_config.DatasetConfig) -> None:
  """Raises a ConfigError if `max_epochs` is set, which requires a cache."""
  if dataset.max_epochs is not None:
    raise errors.ConfigError(
      f'DatasetConfig.max_epochs={dataset.max_epochs} requires a token cache, '
      f'but the dataset {dataset.name!r} is read without one',
      fix='Write a token cache with `xlflax cache`.',
    )


def _measure_task(
  task: str, dataset: dataset_config.DatasetConfig, vocabulary
) -> tuple[int, sequence_iterator.Counts | None]:
  """Returns the task size N_i from which sampling rates are computed.

  If the size is unknown and not required, it is 1.

  Returns:
    The size and, if the task was read, the counts of its examples.
  """
  if dataset.sizes is dataset_config.Sizes.TOKENS:
    raise errors.ConfigError(
      'DatasetConfig.sizes=TOKENS requires a token cache, but the dataset '
      f'{dataset.name!r} is read without one',
      fix='Write a token cache with `xlflax cache`, or set '
      f'{setting_names.name_setting(dataset.name, "sizes")}="\'examples\'".',
    )
  if dataset.alpha is not None and length_filter.counts_kept_pairs(dataset):
    return _count_filtered_pairs(task, dataset, vocabulary)
  size = seqio_examples.source_size(task, dataset.split)
  if size is None and dataset.alpha is not None:
    raise errors.CorpusError(
      '`DatasetConfig.alpha` requires the number of examples, but the source '
      f'of the task {task!r} does not provide this number for the split '
      f'{dataset.split!r}',
      fix=f'Pass num_input_examples={{{dataset.split!r}: N}} to the source of '
      'the task, write a token cache with `xlflax cache`, or set '
      f'{setting_names.name_setting(dataset.name, "alpha")}=None to use the '
      "mixture's own rates.",
    )
  if dataset.max_examples is not None:
    size = min(size or dataset.max_examples, dataset.max_examples)
  return size or 1, None
