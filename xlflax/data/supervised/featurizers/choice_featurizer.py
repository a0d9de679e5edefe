"""Rows of the choices of questions."""

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

UNKNOWN = -1


@class_registry.register('choice_rows')
@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceRows(featurizer.RowMaker):
  """One row for each choice; `labels` is 1 for the right one, else 0.

  A stream's `group_size` is the number of choices, so that those of a question
  are in one batch, one after the other. Choices without a label give no row.
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
    """A row for each choice, without `labels`; the longer text is cut."""
    maker = classification_featurizer.ClassificationRows(
      labels=(choice_examples.WRONG, choice_examples.RIGHT),
      separator=self.separator,
      positions=self.positions,
    )
    return maker.text_rows(
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
