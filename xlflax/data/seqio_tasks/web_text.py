"""Web text filters as a preprocessor for SeqIO tasks.

This module imports TensorFlow.
"""

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from xlflax.data.preprocessing import text_filters
from xlflax.data.preprocessing.text_filters import TextFilters

_STARTS = 'starts_document'


class KeepLines:
  """SeqIO preprocessor that drops examples rejected by `TextFilters`.

  With `TextFilters(min_characters=4)`, before:
  `{'text': 'ab', 'starts_document': True}`,
  `{'text': 'abcd', 'starts_document': False}`; after:
  `{'text': 'abcd', 'starts_document': True}`. If the first line of a document
  is dropped, the document starts with the next remaining line.

  Attributes:
    dropped: Number of examples that were dropped in this process, by reason.
  """

  def __init__(
    self,
    filters: TextFilters,
    languages: Sequence[str],
    *,
    features: Sequence[str] = ('text',),
  ):
    """Creates the preprocessor of a task.

    Args:
      filters: Requirements that a line, or both texts of a pair, must meet.
      languages: Language code of the text in each of the `features`.
      features: Names of the features that contain text, such as ('inputs',
        'targets') for a parallel task.
    """
    self.__name__ = 'keep_lines'
    self.dropped: collections.Counter[str] = collections.Counter()
    self._filters = filters
    self._languages = tuple(languages)
    self._features = tuple(features)

  def fingerprint(self) -> dict:
    """Returns JSON data that identifies the preprocessor's settings."""
    return dataclasses.asdict(self._filters) | {
      'languages': self._languages,
      'features': self._features,
    }

  def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
    marked = dataset.map(self._mark)
    if _STARTS in dataset.element_spec:
      marked = marked.scan(tf.constant(False), _move_document_start)
    remaining = marked.filter(lambda example, keep: keep)
    return remaining.map(lambda example, keep: example)

  @tf.autograph.experimental.do_not_convert
  def _mark(self, example):
    texts = [example[name] for name in self._features]
    keep = tf.numpy_function(self._should_keep, texts, tf.bool)
    return example, tf.ensure_shape(keep, [])

  def _should_keep(self, *texts: bytes) -> np.bool_:
    reason = text_filters.find_drop_reason(
      [text.decode('utf-8', errors='replace') for text in texts],
      self._languages,
      self._filters,
    )
    if reason:
      self.dropped[reason] += 1
    return np.bool_(reason is None)


@tf.autograph.experimental.do_not_convert
def _move_document_start(pending_start, marked):
  """Marks the first remaining example of a document as its start."""
  example, keep = marked
  starts_document = pending_start | example[_STARTS]
  return starts_document & ~keep, (example | {_STARTS: starts_document}, keep)
