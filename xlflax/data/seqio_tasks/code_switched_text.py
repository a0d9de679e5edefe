"""Code-switching as a preprocessor of SeqIO tasks.

This module imports TensorFlow.
"""

import numpy as np
import seqio
import tensorflow as tf

from xlflax.data.plain_text import code_switched_rows
from xlflax.data.plain_text.code_switched_rows import FEATURE
from xlflax.data.seqio_tasks import data_sources


class CodeSwitch(code_switched_rows.SwitchedRows):
  """SeqIO preprocessor that code-switches text with dictionaries."""

  def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
    # The dictionaries are read here, so that errors in them are raised early.
    switcher = self.switcher
    size = self.settings.group_lines

    def switch(batch_index, texts):
      lines = [text.decode('utf-8', errors='replace') for text in texts]
      first = batch_index * size
      switched = switcher.switch(lines, name=self._task, first=first)
      return np.array([line.encode() for line in switched.lines], object)

    @tf.autograph.experimental.do_not_convert
    def switch_batch(batch_index, batch):
      arguments = [batch_index, batch[FEATURE]]
      texts = tf.numpy_function(switch, arguments, tf.string)
      return batch | {FEATURE: tf.ensure_shape(texts, [None])}

    return dataset.batch(size).enumerate().map(switch_batch).unbatch()


class _Repeated(seqio.DataSource):
  """Data source that repeats the examples of another source."""

  def __init__(self, source: seqio.DataSource, copies: int):
    self._source = source
    self._copies = copies
    super().__init__(
      splits=source.splits, caching_permitted=source.caching_permitted
    )

  def num_input_examples(self, split: str) -> int | None:
    number = self._source.num_input_examples(split)
    return None if number is None else number * self._copies

  @property
  def supports_arbitrary_sharding(self) -> bool:
    return False

  def list_shards(self, split: str):
    return self._source.list_shards(split)

  def get_dataset(
    self, split='train', shuffle=True, seed=None, shard_info=None, **options
  ):
    del shuffle  # The random seed of an example depends on its index.
    return self._source.get_dataset(
      split=split, shuffle=False, seed=seed, shard_info=shard_info, **options
    ).repeat(self._copies)


def find_original_source(source: seqio.DataSource) -> seqio.DataSource:
  """Returns the source whose examples `repeat_source` repeats."""
  return source._source if isinstance(source, _Repeated) else source


def repeat_source(source: seqio.DataSource, copies: int) -> seqio.DataSource:
  """Returns a source that yields all examples `copies` times in succession."""
  if copies == 1:
    return source
  if not isinstance(source, data_sources.TextSource):
    return _Repeated(source, copies)
  return data_sources.TextSource(
    source.text.repeated(copies), types=source.types
  )
