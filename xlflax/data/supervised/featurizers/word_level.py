"""Conversion of lists of words to model input sequences.

A sentence that exceeds the length is split into several sequences. Each
sequence contains as many complete words as fit. The sequences do not overlap,
so that each word is in exactly one of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import featurizer, word_ids
from xlflax.utils import errors

Sentence = labeled_examples.TaggedSentence | labeled_examples.ParsedSentence


class WordRow(NamedTuple):
  """Sequence that contains consecutive words of a sentence.

  Attributes:
    row: Sequence with special tokens, as returned by `featurizer.text_row`.
    first: Index of the sequence's first word in the sentence.
    starts: Position in the sequence of the first token of each of the w words,
      int32 of shape [w].
    lengths: Number of tokens in each of the w words, int32 of shape [w].
  """

  row: featurizer.Row
  first: int
  starts: np.ndarray
  lengths: np.ndarray

  @property
  def words(self) -> slice:
    """Range of the sentence's words that the sequence contains."""
    return slice(self.first, self.first + len(self.starts))


def text_rows(
  examples: Sequence[Sentence], vocabulary, *, length: int
) -> list[list[WordRow]]:
  """Converts each sentence to one or more sequences `<s> words </s>`.

  For example, `the dogs bark` with the tokens `▁the ▁dog s ▁bark` and a length
  of 5 gives `<s> ▁the ▁dog s </s>` with starts [1, 2] and `<s> ▁bark </s>` with
  starts [1].

  Args:
    examples: Examples whose sentences are split into words.
    vocabulary: Vocabulary that encodes the words.
    length: Maximum number of tokens in a sequence, including special tokens. A
      single word with more tokens is truncated.

  Raises:
    ConfigError: If the length leaves no space for a token other than special
      tokens.
    VocabularyError: If encoding requires a language that the vocabulary does
      not have.
  """
  capacity = length - featurizer.num_special(
    1, featurizer.SpecialTokenTemplate.XLMR
  )
  if capacity < 1:
    raise errors.ConfigError(
      'The sequence length must be greater than 2, because a sentence '
      'requires 2 special tokens',
      got=length,
    )
  return [
    _split_sentence(example, vocabulary, capacity) for example in examples
  ]


def featurize_texts(
  examples: Sequence[Sentence], vocabulary, *, length: int
) -> list[list[featurizer.Row]]:
  """Returns each example's sequences without labels; see `Featurizer.texts`."""
  return [
    [row.row for row in word_rows]
    for word_rows in text_rows(examples, vocabulary, length=length)
  ]


def split_windows(lengths: Sequence[int], capacity: int) -> list[slice]:
  """Splits words into consecutive windows of at most `capacity` tokens.

  For example, words with the lengths [2, 2, 5, 1] and a capacity of 4 tokens
  are split into the windows 0:2, 2:3 (which loses a token) and 3:4.

  Args:
    lengths: Number of tokens in each word.
    capacity: Maximum number of tokens in a window.
  """
  if not len(lengths):
    return []
  windows = []
  start = 0
  num_tokens = 0
  for i, size in enumerate(lengths):
    if i > start and num_tokens + size > capacity:
      windows.append(slice(start, i))
      start = i
      num_tokens = 0
    num_tokens += size
  windows.append(slice(start, len(lengths)))
  return windows


def _split_sentence(
  example: Sentence, vocabulary, capacity: int
) -> list[WordRow]:
  """Encodes a sentence and splits it into sequences."""
  encoded = word_ids.encode_words(vocabulary, example.words, example.language)
  language = featurizer.language_id(vocabulary, example.language)
  starts = encoded.starts
  word_rows = []
  for window in split_windows(encoded.lengths.tolist(), capacity):
    offset = int(starts[window.start])
    lengths = np.minimum(encoded.lengths[window], capacity)
    tokens = encoded.token_ids[offset : offset + int(lengths.sum())]
    word_rows.append(
      WordRow(
        featurizer.text_row([tokens], [language], vocabulary.spec),
        window.start,
        starts[window] - offset + 1,  # `<s>` precedes the words.
        lengths,
      )
    )
  return word_rows
