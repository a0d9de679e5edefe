"""Rows of the choices of questions."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from xlflax.data import batch as batch_lib
from xlflax.data.labelled import examples as examples_lib
from xlflax.data.labelled.examples import choices as choices_lib
from xlflax.data.labelled.rows import classification_rows
from xlflax.data.labelled.rows import rows as rows_lib
from xlflax.foundation import registry

UNKNOWN = -1


@registry.register('choice_rows')
@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceRows(rows_lib.RowMaker):
  """One row for each choice; `labels` is 1 for the right one, else 0.

  A stream's `group_size` is the number of choices, so that those of a question
  are in one batch, one after the other. Choices without a label give no row.
  """

  cuts = True
  reads_pairs = True

  def fields(self, length, spec):
    return rows_lib.text_fields(length, spec) | {
      batch_lib.LABELS: rows_lib.Field((), UNKNOWN)
    }

  def make(self, examples, vocabulary, *, length):
    rows = self.text_rows(examples, vocabulary, length=length)
    return [
      []
      if example.label is None
      else [
        row | {batch_lib.LABELS: np.int32(example.label == choices_lib.RIGHT)}
      ]
      for example, row in zip(examples, rows, strict=True)
    ]

  def texts(self, examples, vocabulary, *, length):
    return [
      [row] for row in self.text_rows(examples, vocabulary, length=length)
    ]

  def text_rows(
    self, examples: Sequence[examples_lib.Choice], vocabulary, *, length: int
  ) -> list[rows_lib.Row]:
    """A row for each choice, without `labels`; the longer text is cut."""
    maker = classification_rows.ClassificationRows(
      labels=(choices_lib.WRONG, choices_lib.RIGHT),
      separator=self.separator,
      positions=self.positions,
    )
    return maker.text_rows(
      [
        examples_lib.ClassifiedText(
          id=one.id,
          language=one.language,
          text=one.text,
          paired_text=one.paired_text,
        )
        for one in examples
      ],
      vocabulary,
      length=length,
    )
