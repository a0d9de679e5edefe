"""Text as tokens that know which characters they stand for.

An answer is a span of characters; models point at tokens. Text is encoded
between white space (vocabularies encode such chunks independently of one
another), and the pieces of a chunk are laid over its characters. So the same
code serves SentencePiece, WordPiece, byte-level BPE and unions of
vocabularies, and an answer's text is always taken from the text itself, never
from pieces put together.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xlflax.data.corpus import language_codes
from xlflax.data.supervised.featurizers import token_offsets, word_ids
from xlflax.data.tokenizers import base_vocabulary

_CHUNK = re.compile(r'\S+')
# Words, or other characters one by one.
_PART = re.compile(r'[^\W_]+|.', re.DOTALL)


class TokenSpans(NamedTuple):
  """The T tokens of a text.

  Attributes:
    token_ids: int32 [T], without special symbols.
    starts: int32 [T], the first of a token's characters.
    ends: int32 [T], one past its last; `starts` where it has none, such as a
      mere `▁`. Tokens that share a character (byte pieces) have it all.
  """

  token_ids: np.ndarray
  starts: np.ndarray
  ends: np.ndarray

  def cover(self, start: int, stop: int) -> tuple[int, int] | None:
    """The first and the last of the tokens that hold characters start:stop.

    They begin and end there exactly if any tokens do; where tokens share
    characters, others may hold a part of these, too. None where no token holds
    any.
    """
    visible = np.flatnonzero(self.starts < self.ends)
    starts, ends = self.starts[visible], self.ends[visible]
    first = int(np.searchsorted(starts, start, side='left'))
    if first == len(starts) or starts[first] != start:
      first = int(np.searchsorted(ends, start, side='right'))
    last = int(np.searchsorted(ends, stop, side='right')) - 1
    if last < 0 or ends[last] != stop:
      last = int(np.searchsorted(starts, stop, side='left')) - 1
    return (int(visible[first]), int(visible[last])) if first <= last else None


def encode_with_offsets(
  vocabulary: base_vocabulary.Vocabulary, texts: Sequence[str], language: str
) -> list[TokenSpans]:
  """The tokens of texts of one language, with their characters.

  Before: `the dogs` with the pieces `▁the ▁dog s`; after: starts [0, 4, 7],
  ends [3, 7, 8]. Unknown characters of scripts without spaces have a token
  each.

  The characters of a chunk whose pieces cannot be laid over it (an unusual
  normalisation) are found for parts of it: words and single characters.

  Args:
    vocabulary: of any kind.
    texts: N texts.
    language: code of their language.

  Raises:
    VocabularyError: the language is needed and the vocabulary lacks it.
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
  once = dict.fromkeys(
    (before, chunk) for row in chunks for before, chunk, _ in row
  )
  chunk_spans = _chunks(vocabulary, code, list(once))
  return [
    _joined(
      [(chunk_spans[before, chunk], start) for before, chunk, start in row]
    )
    for row in chunks
  ]


def _joined(parts: Sequence[tuple[TokenSpans, int]]) -> TokenSpans:
  """Tokens of parts that begin at these characters, one after the other."""
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


def _chunks(
  vocabulary, code, keys: list[tuple[str, str]]
) -> dict[tuple[str, str], TokenSpans]:
  """(what stands before, chunk) -> tokens, characters counted in the chunk."""
  rows = vocabulary.encode_batch(
    [before + chunk for before, chunk in keys], language=code
  )
  return {
    key: _laid(vocabulary, code, key[1], ids)
    or _by_part(vocabulary, code, *key)
    for key, ids in zip(keys, rows, strict=True)
  }


def _laid(
  vocabulary, code, chunk: str, ids: Sequence[int]
) -> TokenSpans | None:
  """The pieces laid over the chunk, if they fit."""
  hidden = vocabulary.spec.special_ids
  unknown = vocabulary.spec.unk_id
  pieces = [
    None
    if i == unknown or i in hidden
    else vocabulary.bare_piece(i, language=code)
    for i in ids
  ]
  spans = token_offsets.token_char_spans(chunk, pieces)
  if spans is None:
    return None
  return _unknown_apart(
    chunk, TokenSpans(np.asarray(ids, np.int32), *spans), unknown
  )


def _unknown_apart(text: str, spans: TokenSpans, unknown: int) -> TokenSpans:
  """The tokens, with an unknown one for each character of unspaced scripts.

  SentencePiece joins neighbouring unknown characters to one piece, at which
  no answer could begin or end.

  Before: one unknown token for 猫犬, [0, 2]; after: two, [0, 1] and [1, 2].
  """
  counts = [
    stop - start
    if token == unknown
    and language_codes.TEXT_WITHOUT_SPACES.search(text, start, stop)
    else 1
    for token, start, stop in zip(*spans, strict=True)
  ]
  if all(count == 1 for count in counts):
    return spans
  ids, starts, ends = (np.repeat(array, counts) for array in spans)
  within = np.concatenate([np.arange(count) for count in counts])
  apart = np.repeat(np.array(counts) > 1, counts)
  starts = np.where(apart, starts + within, starts).astype(np.int32)
  ends = np.where(apart, starts + 1, ends).astype(np.int32)
  return TokenSpans(ids, starts, ends)


def _by_part(vocabulary, code, before: str, chunk: str) -> TokenSpans:
  """As `_laid`, for the parts of a chunk, each of which has tokens."""
  matches = list(_PART.finditer(chunk))
  texts = [match.group() for match in matches]
  rows = vocabulary.encode_batch([before + texts[0], *texts[1:]], language=code)
  spaces = word_ids.space_ids(vocabulary, code)
  parts = []
  for number, (match, ids) in enumerate(zip(matches, rows, strict=True)):
    if number and len(ids) > 1 and ids[0] in spaces:
      ids = ids[1:]
    parts.append(
      (
        _laid(vocabulary, code, match.group(), ids)
        or _whole(match.group(), ids),
        match.start(),
      )
    )
  return _joined(parts)


def _whole(part: str, ids: Sequence[int]) -> TokenSpans:
  """Every token stands for all of the part."""
  return TokenSpans(
    np.asarray(ids, np.int32),
    np.zeros(len(ids), np.int32),
    np.full(len(ids), len(part), np.int32),
  )
