"""Alignment of tokens with the characters that they represent.

Tokens differ from text in markers (`▁`, `Ġ`, `##`, `</w>`), in byte
representations, and in the normalization of the vocabulary. The alignment does
not depend on the vocabulary's type. Instead, it tries all combinations of a
token format and a normalization, and uses the first combination for which the
concatenated tokens equal the normalized text.
"""

import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Sequence

import numpy as np

Spans = tuple[np.ndarray, np.ndarray]

_BYTE = re.compile(r'<0x([0-9A-Fa-f]{2})>')
_SPACE = '▁'
# Text of one unknown token in WordPiece: a Han character, another word, or one
# other character.
_WORD = re.compile('[\u3400-\u9fff\uf900-\ufaff]|[^\\W_]+|.', re.DOTALL)


def token_char_spans(text: str, tokens: Sequence[str | None]) -> Spans | None:
  """Returns the character span of each token.

  For example, 'Dogs' and the tokens ['dog', '##s'] give the starts [0, 3] and
  the ends [3, 4].

  Args:
    text: Text without white space.
    tokens: T tokens of the text. An unknown token is None.

  Returns:
    A pair (starts, ends), each int32 of shape [T]. None if no token format
    reproduces the text. The boundary between neighboring unknown tokens is
    arbitrary.
  """
  targets = [
    normalize(text).encode(errors='replace') for normalize in _NORMALIZERS
  ]
  for decode in _TOKEN_DECODERS:
    surfaces = [None if token is None else decode(token) for token in tokens]
    if any(
      surface is None and token is not None
      for surface, token in zip(surfaces, tokens, strict=True)
    ):
      continue
    normalized = (
      None
      if None in tokens
      else b''.join(surface for surface in surfaces if surface is not None)
    )
    for normalize, expected in zip(_NORMALIZERS, targets, strict=True):
      if normalized not in (None, expected):
        continue
      target, starts, ends = _normalize_with_offsets(text, normalize)
      bounds = _token_bounds(target, surfaces)
      if bounds is not None:
        return _char_spans(bounds, starts, ends, len(text))
  return None


def _token_bounds(
  target: bytes, surfaces: Sequence[bytes | None]
) -> Sequence[int] | None:
  """Returns byte offsets of tokens in a text, or None if they do not match.

  Args:
    target: UTF-8 bytes of the text after normalization.
    surfaces: Text of each of the T tokens. The text of an unknown token is
      None.

  Returns:
    The offsets in `target` at which tokens start, followed by its length: T + 1
    numbers.
  """
  if None not in surfaces:
    if b''.join(s for s in surfaces if s is not None) != target:
      return None
    return [0, *itertools.accumulate(len(s) for s in surfaces if s is not None)]
  try:
    char_bounds = _token_bounds_with_unknown(
      target.decode(), [None if s is None else s.decode() for s in surfaces]
    )
  except UnicodeDecodeError:
    return None
  if char_bounds is None:
    return None
  sizes = [len(character.encode()) for character in target.decode()]
  byte_offsets = [0, *itertools.accumulate(sizes)]
  return [byte_offsets[bound] for bound in char_bounds]


def _token_bounds_with_unknown(
  text: str, surfaces: Sequence[str | None]
) -> list[int] | None:
  """Aligns known and unknown tokens with a text; returns None if this fails.

  The text is searched from left to right for runs of known tokens. The text
  between two runs is divided among the unknown tokens by `_divide_unknown`.
  """
  bounds = [0]
  position = 0  # Number of characters that are aligned.
  num_unknown = 0  # Number of unknown tokens that start at `position`.
  for is_known, group in itertools.groupby(
    surfaces, lambda surface: surface is not None
  ):
    if not is_known:
      num_unknown = len(list(group))
      continue
    tokens = [token for token in group if token is not None]
    match_start = _find_known(
      text,
      ''.join(tokens),
      position,
      num_unknown,
      is_last=len(bounds) + num_unknown + len(tokens) > len(surfaces),
    )
    if match_start is None:
      return None
    bounds += _divide_unknown(text, position, match_start, num_unknown)
    bounds += [
      match_start + end for end in itertools.accumulate(map(len, tokens))
    ]
    position = bounds[-1]
    num_unknown = 0
  remaining = len(text) - position
  if remaining < num_unknown or (remaining and not num_unknown):
    return None
  return bounds + _divide_unknown(text, position, len(text), num_unknown)


def _find_known(
  text: str, surface: str, position: int, num_unknown: int, *, is_last: bool
) -> int | None:
  """Finds the position of known tokens that follow unknown tokens.

  Args:
    text: Text in which to search for the known tokens.
    surface: Concatenated text of the known tokens, which are in the vocabulary.
    position: Index of the first character that is not aligned yet.
    num_unknown: Number of unknown tokens directly before the known tokens.
    is_last: Whether the known tokens are the last tokens of the text.

  Returns:
    The index of the first character of the known tokens, or None.
  """
  if not num_unknown:
    return position if text.startswith(surface, position) else None
  min_start = position + num_unknown
  if is_last and text.endswith(surface):
    match_start = len(text) - len(surface)
  else:
    match_start = text.find(surface, min_start)
  return match_start if match_start >= min_start else None


def _divide_unknown(text: str, start: int, stop: int, count: int) -> list[int]:
  """Divides text[start:stop] among unknown tokens and returns their ends.

  If the text has `count` words, each token is one word. Otherwise, each token
  is one character, and the last token also gets the remaining characters.
  """
  if not count:
    return []
  ends = [start + match.end() for match in _WORD.finditer(text[start:stop])]
  if len(ends) != count:
    ends = list(range(start + 1, start + count))
    ends.append(stop)
  return ends


def _char_spans(bounds, starts, ends, length: int) -> Spans:
  """Converts token bounds in bytes to character spans.

  Tokens without bytes have an empty span.

  Args:
    bounds: T + 1 byte offsets at which tokens start and end.
    starts: For each byte of the normalized text, the index of the first
      original character from which the byte was computed.
    ends: For each byte of the normalized text, the index after the last
      original character from which the byte was computed.
    length: Number of characters in the original text.
  """
  char_starts = np.append(starts, length)
  bounds = np.asarray(bounds)
  first = char_starts[bounds[:-1]]
  has_bytes = bounds[1:] > bounds[:-1]
  last = np.where(has_bytes, ends[np.maximum(bounds[1:] - 1, 0)], first)
  return first.astype(np.int32), last.astype(np.int32)


# Token decoders. Each returns the bytes that a token represents, or None if the
# token does not have the decoder's format.


def _sentencepiece(token: str) -> bytes | None:
  match = _BYTE.fullmatch(token)
  if match:
    return bytes([int(match.group(1), 16)])
  return token.replace(_SPACE, '').encode()


def _wordpiece(token: str) -> bytes | None:
  return token.removeprefix('##').encode()


def _byte_level(token: str) -> bytes | None:
  codes = _byte_alphabet()
  if any(character not in codes for character in token):
    return None
  return bytes(codes[character] for character in token).strip()


def _word_end(token: str) -> bytes | None:
  return token.removesuffix('</w>').encode()


@functools.cache
def _byte_alphabet() -> dict[str, int]:
  """Returns GPT-2's mapping from characters to bytes (Radford et al., 2019).

  Bytes that are printable Latin-1 characters are represented by these
  characters. The other bytes, in ascending order, are represented by the
  characters that start at U+0100.
  """
  printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
  replacements = itertools.count(0x100)
  return {
    chr(byte if byte in printable else next(replacements)): byte
    for byte in range(0x100)
  }


_TOKEN_DECODERS: tuple[Callable[[str], bytes | None], ...] = (
  _sentencepiece,
  _wordpiece,
  _byte_level,
  _word_end,
)


# Normalizations that vocabularies apply to text before they split it.


def _compatible(text: str) -> str:
  """Normalizes a text to NFKC and removes invisible characters."""
  return _visible(unicodedata.normalize('NFKC', text))


def _lower(text: str) -> str:
  return _visible(text.lower())


def _compatible_lower(text: str) -> str:
  return _compatible(text).lower()


def _without_marks(text: str) -> str:
  """Lowercases text and removes combining marks, as uncased BERT does."""
  decomposed = unicodedata.normalize('NFD', text.lower())
  return _visible(
    ''.join(c for c in decomposed if unicodedata.category(c) != 'Mn')
  )


def _visible(text: str) -> str:
  """Removes white space, control characters and format characters."""
  return ''.join(
    c
    for c in text
    if not c.isspace() and unicodedata.category(c) not in ('Cc', 'Cf')
  )


_NORMALIZERS: tuple[Callable[[str], str], ...] = (
  str,
  _visible,
  functools.partial(unicodedata.normalize, 'NFC'),
  _compatible,
  _lower,
  _compatible_lower,
  _without_marks,
)


def _normalize_with_offsets(
  text: str, normalize: Callable[[str], str]
) -> tuple[bytes, np.ndarray, np.ndarray]:
  """Normalizes text and returns the characters that each byte stems from.

  For example, 'ﬁx' in NFKC gives b'fix', starts [0, 0, 1] and ends [1, 1, 2].

  Returns:
    A triple: the normalized text in UTF-8 with N bytes, the index of the first
    character of each byte, and the index after its last character.
  """
  encoded_clusters: list[bytes] = []
  starts: list[int] = []
  ends: list[int] = []
  for start, stop in _clusters(text, normalize):
    encoded = normalize(text[start:stop]).encode(errors='replace')
    encoded_clusters.append(encoded)
    starts += [start] * len(encoded)
    ends += [stop] * len(encoded)
  return (
    b''.join(encoded_clusters),
    np.array(starts, np.int64),
    np.array(ends, np.int64),
  )


def _clusters(text: str, normalize) -> list[tuple[int, int]]:
  """Splits a text into spans that can be normalized independently."""
  if normalize is str or text.isascii():
    return [(i, i + 1) for i in range(len(text))]
  clusters = []
  start = 0
  for stop in range(1, len(text) + 1):
    if stop < len(text) and _can_combine(text[stop]):
      continue
    cluster = text[start:stop]
    is_separable = stop - start > 1 and (
      ''.join(map(normalize, cluster)) == normalize(cluster)
    )
    if is_separable:
      clusters += [(i, i + 1) for i in range(start, stop)]
    else:
      clusters.append((start, stop))
    start = stop
  return clusters


def _can_combine(character: str) -> bool:
  """Returns whether a character may combine with the preceding one."""
  return (
    unicodedata.combining(character) != 0
    or 'ᅠ' <= character <= 'ᇿ'
    or character in 'ﾞﾟ'
  )
