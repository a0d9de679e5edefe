"""Rows of sentences whose words have labels."""

import dataclasses

import numpy as np

from xlflax.data import batch as batch_lib
from xlflax.data.labelled import labels as labels_lib
from xlflax.data.labelled.rows import rows as rows_lib
from xlflax.data.labelled.rows import word_rows
from xlflax.foundation import registry

NO_LABEL = -1


@registry.register('tagging_rows')
@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingRows(rows_lib.RowMaker):
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
    return rows_lib.text_fields(length, spec) | {
      batch_lib.LABELS: rows_lib.Field((length,), NO_LABEL)
    }

  def make(self, examples, vocabulary, *, length):
    labels_lib.check_labels(examples, self.labels, 'the rows of a stream')
    numbers = {label: i for i, label in enumerate(self.labels)}
    labelled = [e for e in examples if e.tags is not None]
    rows = iter(word_rows.text_rows(labelled, vocabulary, length=length))
    made = []
    for example in examples:
      tags = [numbers[tag] for tag in example.tags or ()]
      made.append(
        []
        if example.tags is None
        else [
          row.row | {batch_lib.LABELS: _labels(row, tags)} for row in next(rows)
        ]
      )
    return made

  def texts(self, examples, vocabulary, *, length):
    return word_rows.featurize_texts(examples, vocabulary, length=length)


def _labels(row: word_rows.WordRow, tags: list[int]) -> np.ndarray:
  """The labels [T] of a row whose sentence has these."""
  labels = np.full(len(row.row[batch_lib.TOKEN_IDS]), NO_LABEL, np.int32)
  labels[row.starts] = tags[row.words]
  return labels
