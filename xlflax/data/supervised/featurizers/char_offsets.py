"""Tokenization of text with the character offsets of its tokens.

An answer is a span of characters, but models predict tokens. Text is split at
white space, because vocabularies encode such chunks independently of one
another, and the tokens of each chunk are aligned with its characters. The same
code therefore supports SentencePiece, WordPiece, byte-level BPE and unions of
vocabularies. The text of an answer is always a substring of the original text
and is never assembled from tokens.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xlflax.data.corpus import language_codes
from xlflax.data.supervised.featurizers import token_offsets, word_ids
from xlflax.data.tokenizers import base_vocabulary

_CHUNK = re.compile(r'\S+')
# A word, or one other character.
_WORD_OR_CHARACTER = re.compile(r'[^\W_]+|.', re.DOTALL)


class TokenSpans(NamedTuple):
  """Tokens of a text and the characters that each token covers.

  Attributes:
    token_ids: Ids of the T tokens, without special tokens, int32 of shape [T].
    starts: Index of the first character of each token, int32 of shape [T].
    ends: Index after the last character of each token, int32 of shape [T].
      Equal to `starts` if the token has no character, such as a single `▁`. If
      several tokens encode one character (byte tokens), each of their spans
      includes it.
  """

  token_ids: np.ndarray
  starts: np.ndarray
  ends: np.ndarray

  def cover(self, start: int, stop: int) -> tuple[int, int] | None:
    """Returns the first and last token that overlap a range of characters.

    If tokens exist that start and end exactly at the bounds of the range, these
    tokens are returned. If tokens share characters, neighboring tokens may also
    contain some of the characters.

    Returns:
      Indices of the first and the last token. None if no token overlaps the
      characters.
    """
    visible = np.flatnonzero(self.starts < self.ends)
    starts, ends = self.starts[visible], self.ends[visible]
    first = int(np.searchsorted(starts, start, side='left'))
    if first == len(starts) or starts[first] != start:
      first = int(np.searchsorted(ends, start, side='right'))
    last = int(np.searchsorted(ends, stop, side='right')) - 1
    if last < 0 or ends[last] != stop:
      last = int(np.searchsorted(starts, stop, side='left')) - 1
    if first > last:
      return None
    return int(visible[first]), int(visible[last])


def encode_with_offsets(
  vocabulary: base_vocabulary.Vocabulary, texts: Sequence[str], language: str
) -> list[TokenSpans]:
  """Encodes texts and locates the characters that each token covers.

  For example, `the dogs` with the tokens `▁the ▁dog s` has starts [0, 4, 7] and
  ends [3, 7, 8]. In scripts without spaces, each unknown character has a token
  of its own.

  If the tokens of a chunk cannot be aligned with its characters, because of an
  unusual normalization, its words and other characters are encoded and aligned
  separately.

  Args:
    vocabulary: Vocabulary that encodes the texts.
    texts: N texts in the same language.
    language: Language code of the texts.

  Raises:
    VocabularyError: If encoding requires a language that the vocabulary does
      not have.
  """
  code = (
    language_codes.match_language(language, vocabulary.spec.languages)
    or language
  )
  space = word_ids.space_before(vocabulary, code)
  chunks = [
    [
      (space * bool(match.start()), match.group(), match.start())
      for match in _CHUNK.finditer(text)
    ]
    for text in texts
  ]
  unique_chunks = dict.fromkeys(
    (prefix, chunk)
    for text_chunks in chunks
    for prefix, chunk, _ in text_chunks
  )
  chunk_spans = _encode_chunks(vocabulary, code, list(unique_chunks))
  return [
    _concatenate(
      [
        (chunk_spans[prefix, chunk], start)
        for prefix, chunk, start in text_chunks
      ]
    )
    for text_chunks in chunks
  ]


def _concatenate(parts: Sequence[tuple[TokenSpans, int]]) -> TokenSpans:
  """Concatenates the tokens of consecutive parts of a text.

  Args:
    parts: Tokens of each part, and the index in the text at which the part
      starts.
  """
  if not parts:
    return TokenSpans(*[np.zeros(0, np.int32)] * 3)
  offsets = np.repeat(
    np.array([start for _, start in parts], np.int32),
    [len(spans.token_ids) for spans, _ in parts],
  )
  ids, starts, ends = (
    np.concatenate([spans[i] for spans, _ in parts]) for i in range(3)
  )
  return TokenSpans(ids, starts + offsets, ends + offsets)


def _encode_chunks(
  vocabulary, code, chunks: list[tuple[str, str]]
) -> dict[tuple[str, str], TokenSpans]:
  """Encodes chunks, each given as (preceding space or '', chunk).

  The character offsets are relative to the start of the chunk.
  """
  token_ids = vocabulary.encode_batch(
    [prefix + chunk for prefix, chunk in chunks], language=code
  )
  chunk_spans = {}
  for (prefix, chunk), ids in zip(chunks, token_ids, strict=True):
    spans = _align_tokens(vocabulary, code, chunk, ids)
    if spans is None:
      spans = _encode_by_word(vocabulary, code, prefix, chunk)
    chunk_spans[prefix, chunk] = spans
  return chunk_spans


def _align_tokens(
  vocabulary, code, chunk: str, ids: Sequence[int]
) -> TokenSpans | None:
  """Aligns tokens with a chunk's characters, or returns None if this fails."""
  special_ids = vocabulary.spec.special_ids
  unknown_id = vocabulary.spec.unk_id
  tokens = [
    None
    if i == unknown_id or i in special_ids
    else vocabulary.bare_piece(i, language=code)
    for i in ids
  ]
  spans = token_offsets.token_char_spans(chunk, tokens)
  if spans is None:
    return None
  return _split_unknown_tokens(
    chunk, TokenSpans(np.asarray(ids, np.int32), *spans), unknown_id
  )


def _split_unknown_tokens(
  text: str, spans: TokenSpans, unknown_id: int
) -> TokenSpans:
  """Splits unknown tokens into single characters in unspaced scripts.

  SentencePiece merges neighboring unknown characters into one token, so that no
  answer could start or end between them. For example, one unknown token for 猫犬
  with the span [0, 2] becomes two with the spans [0, 1] and [1, 2].
  """
  counts = [
    stop - start
    if token == unknown_id
    and language_codes.TEXT_WITHOUT_SPACES.search(text, start, stop)
    else 1
    for token, start, stop in zip(*spans, strict=True)
  ]
  if all(count == 1 for count in counts):
    return spans
  ids, starts, ends = (np.repeat(array, counts) for array in spans)
  offsets = np.concatenate([np.arange(count) for count in counts])
  is_split = np.repeat(np.array(counts) > 1, counts)
  starts = np.where(is_split, starts + offsets, starts).astype(np.int32)
  ends = np.where(is_split, starts + 1, ends).astype(np.int32)
  return TokenSpans(ids, starts, ends)


def _encode_by_word(vocabulary, code, prefix: str, chunk: str) -> TokenSpans:
  """Encodes and aligns the words and other characters of a chunk separately."""
  matches = list(_WORD_OR_CHARACTER.finditer(chunk))
  texts = [match.group() for match in matches]
  token_ids = vocabulary.encode_batch(
    [prefix + texts[0], *texts[1:]], language=code
  )
  spaces = word_ids.space_ids(vocabulary, code)
  parts = []
  for index, (match, ids) in enumerate(zip(matches, token_ids, strict=True)):
    if index and len(ids) > 1 and ids[0] in spaces:
      ids = ids[1:]
    spans = _align_tokens(vocabulary, code, match.group(), ids)
    if spans is None:
      spans = _cover_text(match.group(), ids)
    parts.append((spans, match.start()))
  return _concatenate(parts)


def _cover_text(text: str, ids: Sequence[int]) -> TokenSpans:
  """Assigns the complete text to every token, as a fallback for alignment."""
  return TokenSpans(
    np.asarray(ids, np.int32),
    np.zeros(len(ids), np.int32),
    np.full(len(ids), len(text), np.int32),
  )
