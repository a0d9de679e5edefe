"""Featurizer for sentences whose words have labels."""

import dataclasses

import numpy as np

from xlflax.data import batch_keys
from xlflax.data.supervised import label_sets
from xlflax.data.supervised.featurizers import featurizer, word_level
from xlflax.utils import class_registry

NO_LABEL = -1  # Value for tokens without a label, and for padding.


@class_registry.register('tagging_featurizer')
@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingFeaturizer(featurizer.Featurizer):
  """Featurizer that labels the first token of each word in a sentence.

  Sentences that exceed the length are split between words, without overlap.
  Sentences without labels produce no sequence.

  For example, `the dogs bark` with the tokens `▁the ▁dog s ▁bark`, the tags DET
  NOUN VERB and the labels ('DET', 'NOUN', 'VERB') gives token_ids
  `<s> ▁the ▁dog s ▁bark </s>` and labels `-1 0 1 -1 2 -1`.

  Attributes:
    labels: Names of the labels in the order of their indices. The names must
      equal the objective's labels.
  """

  labels: tuple[str, ...]

  def __post_init__(self):
    object.__setattr__(self, 'labels', tuple(self.labels))

  def check_labels(self, examples, where):
    label_sets.check_training_labels(examples, self.labels, where)

  def fields(self, length, spec):
    return featurizer.text_fields(length, spec) | {
      batch_keys.LABELS: featurizer.Field((length,), NO_LABEL)
    }

  def make(self, examples, vocabulary, *, length):
    self.check_labels(examples, 'examples of a dataset')
    label_indices = {label: i for i, label in enumerate(self.labels)}
    labeled = [example for example in examples if example.tags is not None]
    rows = iter(word_level.text_rows(labeled, vocabulary, length=length))
    sequences: list[list[featurizer.Row]] = []
    for example in examples:
      if example.tags is None:
        sequences.append([])
        continue
      tags = [label_indices[tag] for tag in example.tags]
      sequences.append(
        [
          row.row | {batch_keys.LABELS: _token_labels(row, tags)}
          for row in next(rows)
        ]
      )
    return sequences

  def texts(self, examples, vocabulary, *, length):
    return word_level.featurize_texts(examples, vocabulary, length=length)


def _token_labels(row: word_level.WordRow, tags: list[int]) -> np.ndarray:
  """Returns the labels of the tokens of a sequence, int32 of shape [T].

  Args:
    row: Sequence and the words that it contains.
    tags: Label indices of all words in the sentence.
  """
  labels = np.full(len(row.row[batch_keys.TOKEN_IDS]), NO_LABEL, np.int32)
  labels[row.starts] = tags[row.words]
  return labels
