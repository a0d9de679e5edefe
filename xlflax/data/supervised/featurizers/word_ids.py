"""Tokenization of sentences that are split into words.

Tags, trees and word alignments refer to words, but models read subwords. Each
word is encoded separately, so that no token belongs to two words.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xlflax.data.corpus import language_codes
from xlflax.data.tokenizers import base_vocabulary
from xlflax.utils import errors

_SPACES = ('▁', 'Ġ')  # Space tokens of SentencePiece and byte-level BPE.
# Word pairs that show how a vocabulary encodes the space between words.
_PROBES = (('a', 'a'), ('the', 'dog'), ('1', '2'))


class EncodedWords(NamedTuple):
  """Tokens of a sentence with W words, without special tokens.

  Attributes:
    token_ids: Tokens of all words, int32 of shape [T].
    lengths: Number of tokens in each word, at least 1, int32 of shape [W].
  """

  token_ids: np.ndarray
  lengths: np.ndarray

  @property
  def starts(self) -> np.ndarray:
    """Index of the first token of each word, int32 of shape [W]."""
    return (np.cumsum(self.lengths) - self.lengths).astype(np.int32)

  @property
  def word_of_token(self) -> np.ndarray:
    """Index of the word to which each token belongs, int32 of shape [T]."""
    return np.repeat(np.arange(len(self.lengths), dtype=np.int32), self.lengths)


def encode_words(
  vocabulary: base_vocabulary.Vocabulary, words: Sequence[str], language: str
) -> EncodedWords:
  """Encodes each word of a sentence separately.

  Words are encoded as the vocabulary encodes them between spaces:

      ['the', 'dogs'] with SentencePiece      -> ▁the ▁dog s, [1, 2]
      ['the', 'dogs'] with byte-level BPE     -> the Ġdog s, [1, 2]
      ['the', 'dogs'] with WordPiece          -> the dog ##s, [1, 2]

  If the vocabulary encodes words independently of one another, the tokens
  therefore equal the tokens of the words joined by spaces. All supported
  vocabularies except XLM's do so. XLM's rules for full stops and quotes depend
  on the neighboring words. In languages that are written without spaces, no
  spaces are inserted between words, as in the pretraining text:

      ['猫', 'が', 'いる'] with SentencePiece -> ▁ 猫 が いる, [2, 1, 1]

  A token such as `▁が` is kept if the vocabulary has it.

  Args:
    vocabulary: Vocabulary that encodes the words.
    words: W words of a sentence. Spaces within a word are kept.
    language: Language code of the sentence.

  Returns:
    The tokens and the number of tokens of each word. A word without tokens,
    such as a control character, has the unknown token.

  Raises:
    VocabularyError: If encoding requires a language that the vocabulary does
      not have, or if `words` is a string.
  """
  if isinstance(words, str):
    raise errors.VocabularyError(
      'A sentence must be a sequence of words, not a single string',
      got=repr(words),
    )
  if not words:
    return EncodedWords(np.zeros(0, np.int32), np.zeros(0, np.int32))
  uses_spaces = language_codes.uses_spaces(language)
  code = (
    language_codes.match_language(language, vocabulary.spec.languages)
    or language
  )
  space = space_before(vocabulary, code) if uses_spaces else ''
  texts = [words[0], *(space + word for word in words[1:])]
  word_tokens = vocabulary.encode_batch(texts, language=code)
  if not uses_spaces:
    spaces = space_ids(vocabulary, code)
    word_tokens[1:] = [
      tokens[1:] if len(tokens) > 1 and tokens[0] in spaces else tokens
      for tokens in word_tokens[1:]
    ]
  word_tokens = [tokens or [vocabulary.spec.unk_id] for tokens in word_tokens]
  lengths = np.fromiter(map(len, word_tokens), np.int32, len(word_tokens))
  token_ids = np.fromiter(
    itertools.chain.from_iterable(word_tokens), np.int32, int(lengths.sum())
  )
  return EncodedWords(token_ids, lengths)


@functools.lru_cache(maxsize=256)
def space_before(vocabulary: base_vocabulary.Vocabulary, language: str) -> str:
  """Returns the prefix for encoding a word that is not the first in a sentence.

  Words are encoded one by one. The prefix, which is '' or ' ', makes their
  tokens the same as in a complete sentence. SentencePiece and WordPiece encode
  the start of a text like the start of a word, but byte-level BPE does not. The
  function encodes probe texts with each prefix and returns the prefix that
  reproduces more of them.
  """

  def count_matches(space: str) -> int:
    return sum(
      vocabulary.encode(' '.join(pair), language=language)
      == vocabulary.encode(pair[0], language=language)
      + vocabulary.encode(space + pair[1], language=language)
      for pair in _PROBES
    )

  return max(('', ' '), key=count_matches)


@functools.lru_cache(maxsize=256)
def space_ids(
  vocabulary: base_vocabulary.Vocabulary, language: str
) -> frozenset[int]:
  """Returns the ids of all tokens that represent a single space."""
  token_ids = (
    vocabulary.piece_id(piece, language=language) for piece in _SPACES
  )
  return frozenset(token_id for token_id in token_ids if token_id is not None)
