"""Code-switching as a step of SeqIO tasks. This module imports TensorFlow."""

import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import seqio
import tensorflow as tf

from xlflax.data.dictionaries.code_switching import STEP, Switcher
from xlflax.data.dictionaries.dictionary import Dictionary
from xlflax.data.dictionaries.settings import CodeSwitching
from xlflax.data.seqio_tasks import corpus_source

FEATURE = 'targets'


class CodeSwitch:
  """The preprocessor that switches `targets`, by groups of examples.

  With the dictionary `cat Katze` and a probability and a share of 1, before:
  `{'targets': 'the cat'}`; after: `{'targets': 'the Katze'}`. Other features
  stay. The dictionaries are read when the step is first used.
  """

  def __init__(
    self,
    task: str,
    language: str,
    dictionaries: Sequence[Dictionary | str | os.PathLike],
    settings: CodeSwitching,
  ):
    """Makes the step of a task.

    Args:
      task: its name, which the draws depend on.
      language: of the text.
      dictionaries: themselves, or `tsv` files named `<l1>-<l2>[.…]`.
      settings: see `CodeSwitching`.
    """
    self.__name__ = STEP
    self._task, self._language = task, language
    self._dictionaries = tuple(dictionaries)
    self._settings = settings

  @functools.cached_property
  def switcher(self) -> Switcher:
    """Of the task's language; errors as those of `Switcher`."""
    dictionaries = [
      d if isinstance(d, Dictionary) else Dictionary.read(d)
      for d in self._dictionaries
    ]
    return Switcher(self._language, dictionaries, self._settings)

  def fingerprint(self) -> dict:
    """What the step's result depends on; see `Switcher.fingerprint`."""
    return self.switcher.fingerprint()

  def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
    switcher = self.switcher  # Malformed dictionaries are told here.
    size = self._settings.group_lines

    def switch(number, texts):
      lines = [text.decode('utf-8', errors='replace') for text in texts]
      found = switcher.switch(lines, name=self._task, first=number * size)
      return np.array([line.encode() for line in found.lines], object)

    @tf.autograph.experimental.do_not_convert
    def switch_batch(number, batch):
      texts = tf.numpy_function(switch, [number, batch[FEATURE]], tf.string)
      return batch | {FEATURE: tf.ensure_shape(texts, [None])}

    return dataset.batch(size).enumerate().map(switch_batch).unbatch()

  def rows(
    self, rows: Iterable[tuple], names: Sequence[str], start: int
  ) -> Iterator[tuple]:
    """Switches rows of a source from example `start` on, without tf.data.

    Args:
      rows: all rows of the source.
      names: of their columns.
      start: examples passed over.
    """
    column, size = names.index(FEATURE), self._settings.group_lines
    first = start - start % size
    rows = itertools.islice(rows, first, None)
    for number in itertools.count(first, size):
      block = list(itertools.islice(rows, size))
      if not block:
        return
      lines = self.switcher.switch(
        [row[column] for row in block], name=self._task, first=number
      ).lines
      switched = (
        row[:column] + (line,) + row[column + 1 :]
        for row, line in zip(block, lines, strict=True)
      )
      yield from itertools.islice(switched, max(start - number, 0), None)


class _Repeated(seqio.DataSource):
  """A source whose examples come several times over."""

  def __init__(self, source: seqio.DataSource, copies: int):
    self._source, self._copies = source, copies
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
    del shuffle  # Which example is switched how goes by its number.
    return self._source.get_dataset(
      split=split, shuffle=False, seed=seed, shard_info=shard_info, **options
    ).repeat(self._copies)


def repeated(source: seqio.DataSource, copies: int) -> seqio.DataSource:
  """The source with its examples `copies` times, one copy after the other."""
  if copies == 1:
    return source
  if not isinstance(source, corpus_source.TextSource):
    return _Repeated(source, copies)
  read, count = source.rows, source.num_input_examples
  return corpus_source.TextSource(
    lambda split: itertools.chain.from_iterable(
      read(split) for _ in range(copies)
    ),
    features=source.features,
    splits=source.splits,
    count=lambda split: copies * count(split),
    fingerprint=source.fingerprint,
    origins=source.origins,
  )
