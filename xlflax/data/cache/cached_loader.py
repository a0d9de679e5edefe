"""The loader over a token cache: any row of any step, at once.

Row n of a task (its n-th use since step 0) is row n mod R of its epoch
n div R, R being its number of rows; with shuffling, an epoch is a permutation
of the R rows that is keyed by (seed, task, epoch). So each row is used exactly
once in an epoch, nothing has to be replayed to resume, and any number of
processes sees the same global batches.

Neither TensorFlow nor SeqIO is imported.
"""

import math
from collections.abc import Collection

import numpy as np

from xlflax.data import batch_keys, dataset_config, loader_base
from xlflax.data.batching import collate
from xlflax.data.batching import length_filter as row_lengths
from xlflax.data.batching import sequence_index as row_index
from xlflax.data.cache import cache_reader
from xlflax.data.sampling import hashing, permutation, sampling_order
from xlflax.utils import errors


class CachedLoader:
  """See `loader_base.Loader` and `loader_factory.open_loader`."""

  def __init__(
    self,
    stream: dataset_config.Stream,
    *,
    vocabulary,
    seed: int,
    cache_dir,
    generation: int | None = None,
    corpus=None,
    verified: Collection[str] | None = (),
  ):
    cache = cache_reader.TokenCache(cache_dir, generation=generation)
    cache.check_vocabulary(vocabulary)
    rates = cache.rates(stream.mixture, stream.split)
    opened = cache.open(stream.mixture, stream.split)
    tasks = {
      name: opened[name]
      for name in loader_base.of_languages(
        stream, {name: task.meta.languages for name, task in opened.items()}
      )
    }
    for task in tasks.values():
      task.shards.ahead = stream.locality is not None
    if corpus is not None:
      cache.check_corpus(corpus, stream.mixture, stream.split, stream.languages)
    self.identity = cache.digest(stream.mixture, stream.split)
    self.signature = cache.signature(stream.mixture, stream.split)
    if verified is not None and self.signature not in verified:
      cache.verify(stream.mixture, stream.split)
    self.stream = stream
    self._directory = cache.directory
    self._vocabulary_spec = vocabulary.spec
    indices = {name: _make_index(task, stream) for name, task in tasks.items()}
    self._schedule = sampling_order.RowSchedule(
      stream,
      seed=seed,
      rates=rates,
      most=None
      if stream.max_epochs is None
      else {
        name: math.floor(stream.max_epochs * _at_most(index.num_rows, stream))
        for name, index in indices.items()
      },
      sizes={
        name: _size(task, indices[name], stream) for name, task in tasks.items()
      },
    )
    self._metas = [tasks[name].meta for name in self._schedule.tasks]
    self._indices = [indices[name] for name in self._schedule.tasks]
    self._num_rows = np.array(
      [_at_most(i.num_rows, stream) for i in self._indices], np.int64
    )
    self._languages = [
      loader_base.side_languages(stream, vocabulary, meta.languages)
      for meta in self._metas
    ]

  @property
  def spec(self):
    """Shapes and types of the global batch, by key."""
    return self.stream.batch_spec(self._vocabulary_spec)

  def rows(self, step: int, start: int, stop: int) -> batch_keys.Batch:
    """See `loader_base.Loader.rows`."""
    loader_base.check_range(self.stream, step, start, stop)
    tasks, uses = self._schedule.slots(step)
    tasks, uses = tasks[start:stop], uses[start:stop]
    sizes = self._num_rows[tasks]
    epoch, index = np.divmod(uses, sizes)
    if self.stream.shuffle:
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
    batch = collate.build_batch(sequences, self.stream, self._vocabulary_spec)
    self._check_ids(batch)
    return batch

  def statistics(self) -> list[loader_base.TaskStatistics]:
    """Sizes and rates, for each task."""
    return [
      loader_base.TaskStatistics(
        task=meta.task,
        languages=meta.languages,
        examples=meta.source_examples,
        rate=float(rate),
        rows=int(rows),
        dropped=index.num_dropped,
        truncated=index.num_truncated,
        tokens=sum(side.tokens for side in meta.statistics),
        unknown=tuple(side.unknown_rate for side in meta.statistics),
      )
      for meta, index, rows, rate in zip(
        self._metas,
        self._indices,
        self._num_rows,
        self._schedule.rates(),
        strict=True,
      )
    ]

  def close(self) -> None:
    """Closes the shards."""
    self._indices = []

  def _shuffled(self, index, sizes, keys):
    """The rows that come at these places of an epoch."""
    locality = self.stream.locality
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
    """Refuses tokens that the vocabulary does not have."""
    size = self._vocabulary_spec.size
    for key in (batch_keys.TOKEN_IDS, batch_keys.PAIRED + batch_keys.TOKEN_IDS):
      ids = batch.get(key)
      if ids is not None and not 0 <= ids.min() <= ids.max() < size:
        raise errors.CacheError(
          'The token cache holds ids that the vocabulary does not have',
          got=f'{ids.min()} to {ids.max()}',
          expected=f'0 to {size - 1}',
          where=self._directory,
          fix='Look with `xlflax cache verify`, and write it again',
        )

  def _units(self, tasks, index):
    """The texts of each row; every task is asked once."""
    order = np.argsort(tasks, kind='stable')
    names, starts = np.unique(tasks[order], return_index=True)
    out = [None] * tasks.size
    for task, places in zip(
      names.tolist(), np.split(order, starts[1:]), strict=True
    ):
      units = self._indices[task].units(index[places])
      for place, unit in zip(places.tolist(), units, strict=True):
        out[place] = unit
    return out


def _size(
  task: cache_reader.CachedTask,
  index: row_index.RowIndex,
  stream: dataset_config.Stream,
) -> int:
  """N_i of the rates: a task's examples, tokens, or the pairs that are kept."""
  if stream.sizes is dataset_config.Sizes.TOKENS:
    tokens = sum(side.tokens for side in task.meta.statistics)
    return tokens * _at_most(index.num_rows, stream) // index.num_rows
  if row_lengths.counts_kept_pairs(stream):
    return _at_most(index.num_rows, stream)
  return _at_most(task.meta.source_examples, stream)


def _at_most(count: int, stream: dataset_config.Stream) -> int:
  """`count`, or `Stream.max_examples` if that is fewer."""
  return (
    count if stream.max_examples is None else min(count, stream.max_examples)
  )


def _make_index(task: cache_reader.CachedTask, stream) -> row_index.RowIndex:
  loader_base.check_sides(stream, task.meta.task, task.meta.languages)
  index = None
  if task.meta.examples:
    index = row_index.make_index(
      task.sides, task.shards.starts_document, stream
    )
  if index is None or not index.num_rows:
    raise loader_base.nothing_left(stream, task.meta.task, task.meta.examples)
  return index
