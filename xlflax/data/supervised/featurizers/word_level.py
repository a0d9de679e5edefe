"""Rows of sentences that are split into words.

A sentence that is too long for a row gives several: each takes as many whole
words as fit, with no overlap, so that every word is in one row.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import featurizer, word_ids
from xlflax.utils import errors

Sentence = labeled_examples.TaggedSentence | labeled_examples.ParsedSentence


class WordRow(NamedTuple):
  """Some of a sentence's words as a row.

  Attributes:
    row: as `featurizer.text_row` gives it.
    first: number of the first of its w words in the sentence, from 0.
    starts: int32 [w], the place of each word's first token in the row.
    lengths: int32 [w], how many tokens each has.
  """

  row: featurizer.Row
  first: int
  starts: np.ndarray
  lengths: np.ndarray

  @property
  def words(self) -> slice:
    """Which of the sentence's words these are."""
    return slice(self.first, self.first + len(self.starts))


def text_rows(
  examples: Sequence[Sentence], vocabulary, *, length: int
) -> list[list[WordRow]]:
  """The rows of each sentence: `<s> words </s>`, one after the other.

  Before: `the dogs bark` as `▁the ▁dog s ▁bark`, length 5; after:
  `<s> ▁the ▁dog s </s>` and `<s> ▁bark </s>`, with starts [1, 2] and [1].

  Args:
    examples: the sentences.
    vocabulary: a `xlflax.data.tokenizers.base_vocabulary.Vocabulary`.
    length: tokens a row, at most, special tokens included. A word that has
      more by itself keeps as many as fit.

  Raises:
    ConfigError: the length leaves no room for a token.
    VocabularyError: the language is needed, and the vocabulary lacks it.
  """
  capacity = length - featurizer.num_special(1, featurizer.Separator.XLMR)
  if capacity < 1:
    raise errors.ConfigError(
      'Rows have no room for text',
      got=f'{length} tokens',
      expected='more than the 2 special ones',
    )
  return [_rows(example, vocabulary, capacity) for example in examples]


def featurize_texts(
  examples: Sequence[Sentence], vocabulary, *, length: int
) -> list[list[featurizer.Row]]:
  """The rows of `text_rows` alone: see `featurizer.RowMaker.texts`."""
  return [
    [row.row for row in word_rows]
    for word_rows in text_rows(examples, vocabulary, length=length)
  ]


def split_windows(lengths: Sequence[int], capacity: int) -> list[slice]:
  """Runs of whole words that fit; each begins where the last one ends.

  Before: lengths [2, 2, 5, 1], 4 tokens fit; after: words 0:2, 2:3 (of which
  a token is lost), 3:4.
  """
  windows, start, used = [], 0, 0
  for i, size in enumerate(lengths):
    if i > start and used + size > capacity:
      windows.append(slice(start, i))
      start, used = i, 0
    used += size
  return [*windows, slice(start, len(lengths))] if len(lengths) else windows


def _rows(example: Sentence, vocabulary, capacity: int) -> list[WordRow]:
  encoded = word_ids.encode_words(vocabulary, example.words, example.language)
  language = featurizer.language_id(vocabulary, example.language)
  starts, word_rows = encoded.starts, []
  for window in split_windows(encoded.lengths.tolist(), capacity):
    begin = int(starts[window.start])
    lengths = np.minimum(encoded.lengths[window], capacity)
    tokens = encoded.token_ids[begin : begin + int(lengths.sum())]
    word_rows.append(
      WordRow(
        featurizer.text_row([tokens], [language], vocabulary.spec),
        window.start,
        starts[window] - begin + 1,
        lengths,
      )
    )
  return word_rows
