"""Loader that creates the batch for any training step from a token cache.

The n-th sequence drawn from a task since step 0 is sequence n mod R of epoch n
div R, where R is the number of sequences in the task. With shuffling, each
epoch is a permutation of the R sequences with the key (seed, task, epoch). Each
sequence is therefore used exactly once per epoch, resuming does not replay
earlier steps, and the global batches do not depend on the number of processes.

This module does not import TensorFlow or SeqIO.
"""

import math
from collections.abc import Collection

import numpy as np

from xlflax.data import batch_keys, dataset_config, loader_base
from xlflax.data.batching import collate, length_filter, sequence_index
from xlflax.data.cache import cache_reader
from xlflax.data.sampling import hashing, permutation, sampling_order
from xlflax.utils import errors


class CachedLoader:
  """Loader for a token cache; see `loader_base.Loader`.

  Use `loader_factory.open_loader` to create a loader.
  """

  def __init__(
    self,
    dataset: dataset_config.DatasetConfig,
    *,
    vocabulary,
    seed: int,
    cache_dir,
    generation: int | None = None,
    corpus=None,
    verified: Collection[str] | None = (),
  ):
    """Opens a token cache.

    Args:
      dataset: Configuration of the dataset to read.
      vocabulary: Vocabulary with which the cache was written.
      seed: Random seed that determines the order of the sequences.
      cache_dir: Directory of the cache.
      generation: Number of the generation to read. If None, the newest
        generation is read.
      corpus: Corpus with which the cache is compared. If None, the comparison
        is skipped.
      verified: Signatures (`Loader.signature`) of caches whose files have
        already been verified, and which are not verified again. If None, no
        files are verified.

    Raises:
      CacheError: If the cache is incomplete, damaged or out of date.
    """
    cache = cache_reader.TokenCache(cache_dir, generation=generation)
    cache.check_vocabulary(vocabulary)
    rates = cache.rates(dataset.mixture, dataset.split)
    opened = cache.open(dataset.mixture, dataset.split)
    tasks = {
      name: opened[name]
      for name in loader_base.filter_tasks_by_language(
        dataset, {name: task.meta.languages for name, task in opened.items()}
      )
    }
    for task in tasks.values():
      task.shards.ahead = dataset.locality is not None
    if corpus is not None:
      cache.check_corpus(
        corpus, dataset.mixture, dataset.split, dataset.languages
      )
    self.identity = cache.digest(dataset.mixture, dataset.split)
    self.signature = cache.signature(dataset.mixture, dataset.split)
    if verified is not None and self.signature not in verified:
      cache.verify(dataset.mixture, dataset.split)
    self.dataset = dataset
    self._directory = cache.directory
    self._vocabulary_spec = vocabulary.spec
    indices = {name: _make_index(task, dataset) for name, task in tasks.items()}
    self._schedule = sampling_order.RowSchedule(
      dataset,
      seed=seed,
      rates=rates,
      max_rows=None
      if dataset.max_epochs is None
      else {
        name: math.floor(dataset.max_epochs * _limit(index.num_rows, dataset))
        for name, index in indices.items()
      },
      sizes={
        name: _task_size(task, indices[name], dataset)
        for name, task in tasks.items()
      },
      languages={name: task.meta.languages for name, task in tasks.items()},
    )
    self._metas = [tasks[name].meta for name in self._schedule.tasks]
    self._indices = [indices[name] for name in self._schedule.tasks]
    self._num_rows = np.array(
      [_limit(index.num_rows, dataset) for index in self._indices], np.int64
    )
    self._languages = [
      loader_base.side_languages(dataset, vocabulary, meta.languages)
      for meta in self._metas
    ]

  @property
  def spec(self):
    """Shape and type of each array in the global batch, by batch key."""
    return self.dataset.batch_spec(self._vocabulary_spec)

  @property
  def num_batches(self):
    """Number of global batches; see `loader_base.Loader.num_batches`."""
    return self._schedule.num_batches

  def rows(self, step: int, start: int, stop: int) -> batch_keys.Batch:
    """Returns a slice of the global batch; see `loader_base.Loader.rows`."""
    loader_base.check_range(self.dataset, step, start, stop)
    tasks, uses = self._schedule.slots(step)
    return self._build_batch(tasks[start:stop], uses[start:stop])

  def consecutive_batches(self, start: int, stop: int) -> batch_keys.Batch:
    """Returns the global batches of consecutive steps as one batch.

    Small batches are read faster in this way than one by one.

    Args:
      start: First step.
      stop: First step that is not included.

    Returns:
      int32 arrays of shape [(stop - start) * B, T], as documented in
      `xlflax.data.batch_keys`.
    """
    slots = [self._schedule.slots(step) for step in range(start, stop)]
    tasks, uses = (np.concatenate(parts) for parts in zip(*slots, strict=True))
    return self._build_batch(tasks, uses)

  def _build_batch(self, tasks, uses) -> batch_keys.Batch:
    """Reads sequences and builds the arrays of a batch.

    Args:
      tasks: Index of each sequence's task, int64 [sequences].
      uses: For each sequence, the number of earlier sequences from the same
        task, int64 [sequences].
    """
    sizes = self._num_rows[tasks]
    epoch, index = np.divmod(uses, sizes)
    if self.dataset.shuffle:
      keys = hashing.draw_words(self._schedule.order_keys[tasks], epoch)
      index = self._shuffled(index, sizes, keys)
    sequences = [
      collate.Row(units, self._languages[task], swaps)
      for units, task, swaps in zip(
        self._units(tasks, index),
        tasks.tolist(),
        self._schedule.swaps(tasks, uses),
        strict=True,
      )
    ]
    batch = collate.build_batch(sequences, self.dataset, self._vocabulary_spec)
    self._check_ids(batch)
    return batch

  def statistics(self) -> list[loader_base.TaskStatistics]:
    """Returns the size and sampling rate of each task."""
    return [
      loader_base.TaskStatistics(
        task=meta.task,
        languages=meta.languages,
        examples=meta.source_examples,
        rate=float(rate),
        rows=int(rows),
        dropped=index.num_dropped,
        truncated=index.num_truncated,
        tokens=sum(side.tokens for side in meta.statistics)
        - index.num_removed_tokens,
        unknown=tuple(side.unknown_rate for side in meta.statistics),
        examples_read=meta.examples,
        mixture_rate=float(mixture_rate),
      )
      for meta, index, rows, rate, mixture_rate in zip(
        self._metas,
        self._indices,
        self._num_rows,
        self._schedule.rates(),
        self._schedule.mixture_rates,
        strict=True,
      )
    ]

  def close(self) -> None:
    """Closes all open shards."""
    self._indices = []

  def _shuffled(self, index, sizes, keys):
    """Maps positions in a shuffled epoch to sequence indices."""
    locality = self.dataset.locality
    if locality is None:
      return permutation.permute_index(index, sizes, keys)
    return permutation.permute_windows(
      index,
      sizes,
      keys,
      block=locality.block_rows,
      window=locality.window_blocks,
    )

  def _check_ids(self, batch: batch_keys.Batch) -> None:
    """Raises a CacheError if a batch has token ids not in the vocabulary."""
    size = self._vocabulary_spec.size
    for key in (batch_keys.TOKEN_IDS, batch_keys.PAIRED + batch_keys.TOKEN_IDS):
      ids = batch.get(key)
      if ids is not None and not 0 <= ids.min() <= ids.max() < size:
        raise errors.CacheError(
          f'The token ids in the cache must be between 0 and {size - 1}, '
          f'because the vocabulary has {size} tokens, but the cache contains '
          f'ids from {ids.min()} to {ids.max()}',
          where=self._directory,
          fix='Run `xlflax cache verify`, and write the cache again.',
        )

  def _units(self, tasks, index):
    """Returns the texts of the given sequences, which are read task by task."""
    order = np.argsort(tasks, kind='stable')
    distinct_tasks, starts = np.unique(tasks[order], return_index=True)
    units = [None] * tasks.size
    for task, positions in zip(
      distinct_tasks.tolist(), np.split(order, starts[1:]), strict=True
    ):
      task_units = self._indices[task].units(index[positions])
      for position, unit in zip(positions.tolist(), task_units, strict=True):
        units[position] = unit
    return units


def _task_size(
  task: cache_reader.CachedTask,
  index: sequence_index.RowIndex,
  dataset: dataset_config.DatasetConfig,
) -> int:
  """Returns the task size N_i from which sampling rates are computed."""
  if dataset.sizes is dataset_config.Sizes.TOKENS:
    tokens = sum(side.tokens for side in task.meta.statistics)
    return tokens * _limit(index.num_rows, dataset) // index.num_rows
  if length_filter.counts_kept_pairs(dataset):
    return _limit(index.num_rows, dataset)
  return _limit(task.meta.source_examples, dataset)


def _limit(count: int, dataset: dataset_config.DatasetConfig) -> int:
  """Returns `count`, limited to `dataset.max_examples` if it is set."""
  if dataset.max_examples is None:
    return count
  return min(count, dataset.max_examples)


def _make_index(
  task: cache_reader.CachedTask, dataset
) -> sequence_index.RowIndex:
  """Returns the sequence index of a task, which must not be empty."""
  loader_base.check_sides(dataset, task.meta.task, task.meta.languages)
  index = None
  if task.meta.examples:
    index = sequence_index.make_index(
      task.sides, task.shards.starts_document, dataset
    )
  if index is None or not index.num_rows:
    raise loader_base.no_examples_error(
      dataset, task.meta.task, task.meta.examples
    )
  return index
