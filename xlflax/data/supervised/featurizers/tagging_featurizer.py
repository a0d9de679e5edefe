"""Rows of sentences whose words have labels."""

import dataclasses

import numpy as np

from xlflax.data import batch_keys
from xlflax.data.supervised import label_sets
from xlflax.data.supervised.featurizers import featurizer, word_level
from xlflax.utils import class_registry

NO_LABEL = -1


@class_registry.register('tagging_rows')
@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingRows(featurizer.RowMaker):
  """The words of a sentence, with a label at each word's first token.

  Sentences that do not fit into a row are split between words, without
  overlap. Those without labels give no row.

  Before: `the dogs bark` as `▁the ▁dog s ▁bark`, tagged DET NOUN VERB, labels
  ('DET', 'NOUN', 'VERB'); after: token_ids `<s> ▁the ▁dog s ▁bark </s>`,
  labels `-1 0 1 -1 2 -1`.

  Attributes:
    labels: names of the labels, in the order of their numbers; as the
      objective has them.
  """

  labels: tuple[str, ...]

  def __post_init__(self):
    object.__setattr__(self, 'labels', tuple(self.labels))

  def fields(self, length, spec):
    return featurizer.text_fields(length, spec) | {
      batch_keys.LABELS: featurizer.Field((length,), NO_LABEL)
    }

  def make(self, examples, vocabulary, *, length):
    label_sets.check_labels(examples, self.labels, 'the rows of a stream')
    numbers = {label: i for i, label in enumerate(self.labels)}
    labelled = [e for e in examples if e.tags is not None]
    rows = iter(word_level.text_rows(labelled, vocabulary, length=length))
    sequences = []
    for example in examples:
      tags = [numbers[tag] for tag in example.tags or ()]
      sequences.append(
        []
        if example.tags is None
        else [
          row.row | {batch_keys.LABELS: _labels(row, tags)}
          for row in next(rows)
        ]
      )
    return sequences

  def texts(self, examples, vocabulary, *, length):
    return word_level.featurize_texts(examples, vocabulary, length=length)


def _labels(row: word_level.WordRow, tags: list[int]) -> np.ndarray:
  """The labels [T] of a row whose sentence has these."""
  labels = np.full(len(row.row[batch_keys.TOKEN_IDS]), NO_LABEL, np.int32)
  labels[row.starts] = tags[row.words]
  return labels
