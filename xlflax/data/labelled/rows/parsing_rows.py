"""Rows of sentences with dependency trees."""

import dataclasses

import numpy as np

from xlflax.data import batch as batch_lib
from xlflax.data.labelled import labels as labels_lib
from xlflax.data.labelled.rows import rows as rows_lib
from xlflax.data.labelled.rows import word_rows
from xlflax.foundation import registry

NONE = -1


@registry.register('parsing_rows')
@dataclasses.dataclass(frozen=True, kw_only=True)
class ParsingRows(rows_lib.RowMaker):
  """The words of a sentence, where each begins, and its head and relation.

  Word 0 is the root; its token is the row's first, `<s>`. Sentences that do
  not fit into a row are split between words; a word whose head is in another
  row then has none (-1). Those without a tree give no row.

  Before: `the dogs bark` as `▁the ▁dog s ▁bark`, heads 2, 3, 0, relations
  det, nsubj, root, which are numbers 0, 1, 2; after: token_ids
  `<s> ▁the ▁dog s ▁bark </s>`, word_starts `0 1 2 4`, word_lengths `1 1 2 1`,
  heads `-1 2 3 0`, relations `-1 0 1 2`.

  Attributes:
    relations: their names, in the order of their numbers; as the objective
      has them.
  """

  relations: tuple[str, ...]

  def __post_init__(self):
    object.__setattr__(self, 'relations', tuple(self.relations))

  def fields(self, length, spec):
    return (
      rows_lib.text_fields(length, spec)
      | word_fields(length)
      | {
        batch_lib.HEADS: rows_lib.Field((length,), NONE),
        batch_lib.RELATIONS: rows_lib.Field((length,), NONE),
      }
    )

  def make(self, examples, vocabulary, *, length):
    labels_lib.check_labels(examples, self.relations, 'the rows of a stream')
    numbers = {name: i for i, name in enumerate(self.relations)}
    labelled = [e for e in examples if e.heads is not None]
    rows = iter(word_rows.text_rows(labelled, vocabulary, length=length))
    made = []
    for example in examples:
      relations = np.array([numbers[r] for r in example.relations or ()])
      made.append(
        []
        if example.heads is None
        else [
          with_words(row) | _tree(row, np.array(example.heads), relations)
          for row in next(rows)
        ]
      )
    return made

  def texts(self, examples, vocabulary, *, length):
    return word_rows.featurize_texts(examples, vocabulary, length=length)


def word_fields(length: int) -> dict[str, rows_lib.Field]:
  """The keys that `with_words` adds to those of a text."""
  return {
    batch_lib.WORD_STARTS: rows_lib.Field((length,), NONE),
    batch_lib.WORD_LENGTHS: rows_lib.Field((length,), 0),
  }


def with_words(row: word_rows.WordRow) -> rows_lib.Row:
  """A row that says where its words are, the root before them."""
  return row.row | {
    batch_lib.WORD_STARTS: np.concatenate([[0], row.starts]).astype(np.int32),
    batch_lib.WORD_LENGTHS: np.concatenate([[1], row.lengths]).astype(np.int32),
  }


def _tree(
  row: word_rows.WordRow, heads: np.ndarray, relations: np.ndarray
) -> rows_lib.Row:
  """Heads and relations [w + 1] of a row's words, of the sentence's."""
  own = heads[row.words]
  inside = (own > row.first) & (own <= row.first + len(row.starts))
  places = np.where(own == 0, 0, np.where(inside, own - row.first, NONE))
  kinds = np.where(places == NONE, NONE, relations[row.words])
  return {
    batch_lib.HEADS: np.concatenate([[NONE], places]).astype(np.int32),
    batch_lib.RELATIONS: np.concatenate([[NONE], kinds]).astype(np.int32),
  }
