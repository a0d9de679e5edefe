"""Filters of web text as a step of SeqIO tasks. This module imports TensorFlow."""

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from xlflax.data.preprocessing import text_filters
from xlflax.data.preprocessing.text_filters import TextFilters

_STARTS = 'starts_document'


class KeepLines:
  """A preprocessor that drops examples, and counts them by the reason.

  With `TextFilters(min_characters=4)`, before: `{'text': 'ab',
  'starts_document': True}`, `{'text': 'abcd', 'starts_document': False}`;
  after: `{'text': 'abcd', 'starts_document': True}`: a document whose first
  line is dropped begins with the next one.

  Attributes:
    dropped: reason -> examples that were dropped in this process.
  """

  def __init__(
    self,
    filters: TextFilters,
    languages: Sequence[str],
    *,
    features: Sequence[str] = ('text',),
  ):
    """Makes the step of a task.

    Args:
      filters: what is asked of a line, or of both sides of a pair.
      languages: of the features.
      features: that hold text: ('inputs', 'targets') of a parallel task.
    """
    self.__name__ = 'keep_lines'
    self.dropped: collections.Counter[str] = collections.Counter()
    self._filters = filters
    self._languages, self._features = tuple(languages), tuple(features)

  def fingerprint(self) -> dict:
    """What the step's result depends on."""
    step_settings = {'languages': self._languages, 'features': self._features}
    return dataclasses.asdict(self._filters) | step_settings

  def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
    marked = dataset.map(self._mark)
    if _STARTS in dataset.element_spec:
      marked = marked.scan(tf.constant(False), _pass_on)
    return marked.filter(lambda example, keep: keep).map(
      lambda example, keep: example
    )

  @tf.autograph.experimental.do_not_convert
  def _mark(self, example):
    texts = [example[name] for name in self._features]
    keep = tf.numpy_function(self._keeps, texts, tf.bool)
    return example, tf.ensure_shape(keep, [])

  def _keeps(self, *texts: bytes) -> np.bool_:
    why = text_filters.find_drop_reason(
      [text.decode('utf-8', errors='replace') for text in texts],
      self._languages,
      self._filters,
    )
    if why:
      self.dropped[why] += 1
    return np.bool_(why is None)


@tf.autograph.experimental.do_not_convert
def _pass_on(begins, marked):
  """Has a document begin with its first example that is kept."""
  example, keep = marked
  begins = begins | example[_STARTS]
  return begins & ~keep, (example | {_STARTS: begins}, keep)
