"""Sentences that are split into words, as tokens that know their word.

Tags, trees and word alignments are given for words; models read subwords.
Every word is encoded by itself, so that no token belongs to two words.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xlflax.data.corpus import language_codes
from xlflax.data.tokenizers import base_vocabulary
from xlflax.utils import errors

_SPACES = ('▁', 'Ġ')  # SentencePiece's and byte-level BPE's token of a space
# Text on which a vocabulary shows how it encodes a space between words.
_PROBES = (('a', 'a'), ('the', 'dog'), ('1', '2'))


class EncodedWords(NamedTuple):
  """The tokens of a sentence's W words, without any special symbol.

  Attributes:
    token_ids: int32 [T], the words one after the other.
    lengths: int32 [W], how many tokens each word has, at least 1.
  """

  token_ids: np.ndarray
  lengths: np.ndarray

  @property
  def starts(self) -> np.ndarray:
    """The place of each word's first token in `token_ids`, int32 [W]."""
    return (np.cumsum(self.lengths) - self.lengths).astype(np.int32)

  @property
  def word_of_token(self) -> np.ndarray:
    """The number of each token's word, int32 [T]."""
    return np.repeat(np.arange(len(self.lengths), dtype=np.int32), self.lengths)


def encode_words(
  vocabulary: base_vocabulary.Vocabulary, words: Sequence[str], language: str
) -> EncodedWords:
  """The tokens of each word of a sentence.

  Words are encoded as the vocabulary encodes them between spaces:

      ['the', 'dogs'] with SentencePiece      -> ▁the ▁dog s, [1, 2]
      ['the', 'dogs'] with byte-level BPE     -> the Ġdog s, [1, 2]
      ['the', 'dogs'] with WordPiece          -> the dog ##s, [1, 2]

  so that the tokens are those of the words joined by spaces, wherever the
  vocabulary encodes words independently of one another (all but XLM's do;
  its rules for full stops and quotes look at the neighbours). Languages that
  are written without spaces get none between words, as in
  the text that the model was pretrained on:

      ['猫', 'が', 'いる'] with SentencePiece -> ▁ 猫 が いる, [2, 1, 1]

  although a piece such as `▁が`, if the vocabulary has it, remains.

  Args:
    vocabulary: of any kind.
    words: W words; spaces inside of a word stay.
    language: code of the words' language.

  Returns:
    Tokens and how many each word has. A word that has no token (a control
    character, say) gets the unknown symbol.

  Raises:
    VocabularyError: the language is needed and the vocabulary lacks it.
  """
  if isinstance(words, str):
    raise errors.VocabularyError(
      'A sentence is not split into words',
      got=repr(words),
      expected='a sequence of words',
    )
  if not words:
    return EncodedWords(np.zeros(0, np.int32), np.zeros(0, np.int32))
  between = language_codes.uses_spaces(language)
  code = (
    language_codes.match_language(language, vocabulary.spec.languages)
    or language
  )
  space = space_before(vocabulary, code) if between else ''
  texts = [words[0], *(space + word for word in words[1:])]
  rows = vocabulary.encode_batch(texts, language=code)
  if not between:
    spaces = space_ids(vocabulary, code)
    rows[1:] = [
      row[1:] if len(row) > 1 and row[0] in spaces else row for row in rows[1:]
    ]
  rows = [row or [vocabulary.spec.unk_id] for row in rows]
  lengths = np.fromiter(map(len, rows), np.int32, len(rows))
  return EncodedWords(
    np.fromiter(
      itertools.chain.from_iterable(rows), np.int32, int(lengths.sum())
    ),
    lengths,
  )


@functools.lru_cache(maxsize=256)
def space_before(vocabulary: base_vocabulary.Vocabulary, language: str) -> str:
  """What precedes a word that is not the first: nothing or a space.

  SentencePiece and WordPiece begin every text as they begin a word; byte-level
  BPE does not. What reproduces more of the probes is right.
  """

  def agreement(space: str) -> int:
    return sum(
      vocabulary.encode(' '.join(pair), language=language)
      == vocabulary.encode(pair[0], language=language)
      + vocabulary.encode(space + pair[1], language=language)
      for pair in _PROBES
    )

  return max(('', ' '), key=agreement)


@functools.lru_cache(maxsize=256)
def space_ids(
  vocabulary: base_vocabulary.Vocabulary, language: str
) -> frozenset[int]:
  """Ids of tokens that are a space and nothing else."""
  token_ids = (
    vocabulary.piece_id(piece, language=language) for piece in _SPACES
  )
  return frozenset(index for index in token_ids if index is not None)
