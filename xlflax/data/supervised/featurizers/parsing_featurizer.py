"""Rows of sentences with dependency trees."""

import dataclasses

import numpy as np

from xlflax.data import batch_keys
from xlflax.data.supervised import label_sets
from xlflax.data.supervised.featurizers import featurizer, word_level
from xlflax.utils import class_registry

NONE = -1


@class_registry.register('parsing_rows')
@dataclasses.dataclass(frozen=True, kw_only=True)
class ParsingRows(featurizer.RowMaker):
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
      featurizer.text_fields(length, spec)
      | word_fields(length)
      | {
        batch_keys.HEADS: featurizer.Field((length,), NONE),
        batch_keys.RELATIONS: featurizer.Field((length,), NONE),
      }
    )

  def make(self, examples, vocabulary, *, length):
    label_sets.check_labels(examples, self.relations, 'the rows of a stream')
    numbers = {name: i for i, name in enumerate(self.relations)}
    labelled = [e for e in examples if e.heads is not None]
    rows = iter(word_level.text_rows(labelled, vocabulary, length=length))
    sequences = []
    for example in examples:
      relations = np.array([numbers[r] for r in example.relations or ()])
      sequences.append(
        []
        if example.heads is None
        else [
          with_words(row) | _tree(row, np.array(example.heads), relations)
          for row in next(rows)
        ]
      )
    return sequences

  def texts(self, examples, vocabulary, *, length):
    return word_level.featurize_texts(examples, vocabulary, length=length)


def word_fields(length: int) -> dict[str, featurizer.Field]:
  """The keys that `with_words` adds to those of a text."""
  return {
    batch_keys.WORD_STARTS: featurizer.Field((length,), NONE),
    batch_keys.WORD_LENGTHS: featurizer.Field((length,), 0),
  }


def with_words(row: word_level.WordRow) -> featurizer.Row:
  """A row that says where its words are, the root before them."""
  return row.row | {
    batch_keys.WORD_STARTS: np.concatenate([[0], row.starts]).astype(np.int32),
    batch_keys.WORD_LENGTHS: np.concatenate([[1], row.lengths]).astype(
      np.int32
    ),
  }


def _tree(
  row: word_level.WordRow, heads: np.ndarray, relations: np.ndarray
) -> featurizer.Row:
  """Heads and relations [w + 1] of a row's words, of the sentence's."""
  word_heads = heads[row.words]
  inside = (word_heads > row.first) & (
    word_heads <= row.first + len(row.starts)
  )
  places = np.where(
    word_heads == 0, 0, np.where(inside, word_heads - row.first, NONE)
  )
  kinds = np.where(places == NONE, NONE, relations[row.words])
  return {
    batch_keys.HEADS: np.concatenate([[NONE], places]).astype(np.int32),
    batch_keys.RELATIONS: np.concatenate([[NONE], kinds]).astype(np.int32),
  }
