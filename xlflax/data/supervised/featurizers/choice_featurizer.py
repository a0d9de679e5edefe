"""Featurizer for multiple-choice questions."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from xlflax.data import batch_keys
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import (
  classification_featurizer,
  featurizer,
)
from xlflax.data.supervised.labeled_examples import choice_examples
from xlflax.utils import class_registry

UNKNOWN = -1  # Padding value of labels.


@class_registry.register('multiple_choice_featurizer')
@dataclasses.dataclass(frozen=True, kw_only=True)
class MultipleChoiceFeaturizer(featurizer.Featurizer):
  """Featurizer that creates one sequence for each answer choice of a question.

  `labels` is 1 for the right choice and 0 for the others. The `group_size` of a
  dataset must be the number of choices, so that the choices of a question are
  consecutive sequences of one batch. Choices without a label produce no
  sequence.
  """

  cuts = True
  reads_pairs = True

  def fields(self, length, spec):
    return featurizer.text_fields(length, spec) | {
      batch_keys.LABELS: featurizer.Field((), UNKNOWN)
    }

  def make(self, examples, vocabulary, *, length):
    rows = self.text_rows(examples, vocabulary, length=length)
    return [
      []
      if example.label is None
      else [
        row
        | {batch_keys.LABELS: np.int32(example.label == choice_examples.RIGHT)}
      ]
      for example, row in zip(examples, rows, strict=True)
    ]

  def texts(self, examples, vocabulary, *, length):
    return [
      [row] for row in self.text_rows(examples, vocabulary, length=length)
    ]

  def text_rows(
    self,
    examples: Sequence[labeled_examples.Choice],
    vocabulary,
    *,
    length: int,
  ) -> list[featurizer.Row]:
    """Returns one sequence for each answer choice, without the `labels` key.

    If the two texts do not fit into the sequence, tokens are removed from the
    longer text.
    """
    text_featurizer = classification_featurizer.ClassificationFeaturizer(
      labels=(choice_examples.WRONG, choice_examples.RIGHT),
      separator=self.separator,
      positions=self.positions,
    )
    return text_featurizer.text_rows(
      [
        labeled_examples.ClassifiedText(
          id=example.id,
          language=example.language,
          text=example.text,
          paired_text=example.paired_text,
        )
        for example in examples
      ],
      vocabulary,
      length=length,
    )
