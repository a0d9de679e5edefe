"""Featurizer for sentences with dependency trees."""

import dataclasses

import numpy as np

from xlflax.data import batch_keys
from xlflax.data.supervised import label_sets
from xlflax.data.supervised.featurizers import featurizer, word_level
from xlflax.utils import class_registry

NONE = -1  # Value for words without a head or relation, and for padding.


@class_registry.register('parsing_featurizer')
@dataclasses.dataclass(frozen=True, kw_only=True)
class ParsingFeaturizer(featurizer.Featurizer):
  """Featurizer that adds each word's position, head and dependency relation.

  Word 0 is the root, represented by the first token of the sequence, `<s>`.
  Sentences that exceed the length are split between words. A word has the head
  -1 if its head is in a different sequence. Sentences without a tree produce no
  sequence.

  For example, `the dogs bark` with the tokens `▁the ▁dog s ▁bark`, the heads 2,
  3, 0 and the relations det, nsubj, root, which have the indices 0, 1, 2, gives
  token_ids `<s> ▁the ▁dog s ▁bark </s>`, word_starts `0 1 2 4`, word_lengths
  `1 1 2 1`, heads `-1 2 3 0` and relations `-1 0 1 2`.

  Attributes:
    relations: Names of the dependency relations in the order of their indices.
      They must equal the objective's relations.
  """

  relations: tuple[str, ...]

  def __post_init__(self):
    object.__setattr__(self, 'relations', tuple(self.relations))

  def check_labels(self, examples, where):
    label_sets.check_training_labels(examples, self.relations, where)

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
    self.check_labels(examples, 'examples of a dataset')
    relation_indices = {name: i for i, name in enumerate(self.relations)}
    labeled = [example for example in examples if example.heads is not None]
    rows = iter(word_level.text_rows(labeled, vocabulary, length=length))
    sequences: list[list[featurizer.Row]] = []
    for example in examples:
      if example.heads is None:
        sequences.append([])
        continue
      heads = np.array(example.heads)
      relations = np.array(
        [relation_indices[name] for name in example.relations or ()]
      )
      sequences.append(
        [
          with_words(row) | _tree_features(row, heads, relations)
          for row in next(rows)
        ]
      )
    return sequences

  def texts(self, examples, vocabulary, *, length):
    return word_level.featurize_texts(examples, vocabulary, length=length)


def word_fields(length: int) -> dict[str, featurizer.Field]:
  """Returns the shape and padding value of each array added by `with_words`."""
  return {
    batch_keys.WORD_STARTS: featurizer.Field((length,), NONE),
    batch_keys.WORD_LENGTHS: featurizer.Field((length,), 0),
  }


def with_words(row: word_level.WordRow) -> featurizer.Row:
  """Adds the positions of the root token and the words to a sequence."""
  return row.row | {
    batch_keys.WORD_STARTS: np.concatenate([[0], row.starts]).astype(np.int32),
    batch_keys.WORD_LENGTHS: np.concatenate([[1], row.lengths]).astype(
      np.int32
    ),
  }


def _tree_features(
  row: word_level.WordRow, heads: np.ndarray, relations: np.ndarray
) -> featurizer.Row:
  """Returns the heads and relations of a sequence's words and the root.

  The arrays have the shape [w + 1] for w words.

  Args:
    row: Sequence and the words that it contains.
    heads: Heads of all words in the sentence.
    relations: Relation indices of all words in the sentence.
  """
  word_heads = heads[row.words]
  is_in_row = (word_heads > row.first) & (
    word_heads <= row.first + len(row.starts)
  )
  row_heads = np.where(
    word_heads == 0, 0, np.where(is_in_row, word_heads - row.first, NONE)
  )
  row_relations = np.where(row_heads == NONE, NONE, relations[row.words])
  return {
    batch_keys.HEADS: np.concatenate([[NONE], row_heads]).astype(np.int32),
    batch_keys.RELATIONS: np.concatenate([[NONE], row_relations]).astype(
      np.int32
    ),
  }
