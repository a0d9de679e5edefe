"""Pieces of a vocabulary laid over the characters that they are made of.

Pieces differ from text by marks (`▁`, `Ġ`, `##`, `</w>`), by being bytes, and
by the vocabulary's normalisation of text. What the vocabulary does is not
asked: each kind of marks and each normalisation is tried, and the one counts
by which the pieces put together are the text.
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
# What an unknown piece stands for in WordPiece: a Han character, another word,
# or one other character.
_WORD = re.compile('[\u3400-\u9fff\uf900-\ufaff]|[^\\W_]+|.', re.DOTALL)


def token_char_spans(text: str, pieces: Sequence[str | None]) -> Spans | None:
  """The characters that each piece stands for.

  Before: 'Dogs' and the pieces ['dog', '##s']; after: [0, 3] and [3, 4].

  Args:
    text: without white space.
    pieces: T entries of a vocabulary; None where it has none (unknown).

  Returns:
    (starts int32 [T], ends int32 [T]), or None where no reading of the pieces
    is the text. Neighbouring unknown pieces are told apart arbitrarily.
  """
  targets = [
    normalize(text).encode(errors='replace') for normalize in _NORMALIZERS
  ]
  for read in _READINGS:
    surfaces = [None if piece is None else read(piece) for piece in pieces]
    if any(
      surface is None and piece is not None
      for surface, piece in zip(surfaces, pieces, strict=True)
    ):
      continue
    normalized = (
      None
      if None in pieces
      else b''.join(surface for surface in surfaces if surface is not None)
    )
    for normalize, expected in zip(_NORMALIZERS, targets, strict=True):
      if normalized not in (None, expected):
        continue
      target, starts, ends = _normalized(text, normalize)
      bounds = _bounds(target, surfaces)
      if bounds is not None:
        return _characters(bounds, starts, ends, len(text))
  return None


def _bounds(
  target: bytes, surfaces: Sequence[bytes | None]
) -> Sequence[int] | None:
  """Where pieces begin, and the end: T + 1 places in `target`."""
  if None not in surfaces:
    if b''.join(s for s in surfaces if s is not None) != target:
      return None
    return [0, *itertools.accumulate(len(s) for s in surfaces if s is not None)]
  try:
    char_bounds = _around_unknown(
      target.decode(), [None if s is None else s.decode() for s in surfaces]
    )
  except UnicodeDecodeError:
    return None
  if char_bounds is None:
    return None
  sizes = [len(c.encode()) for c in target.decode()]
  places = [0, *itertools.accumulate(sizes)]
  return [places[bound] for bound in char_bounds]


def _around_unknown(
  text: str, surfaces: Sequence[str | None]
) -> list[int] | None:
  """As `_bounds`, in characters: known pieces are found from the left.

  Neighbouring unknown pieces share what lies between as `_shared` says.
  """
  bounds = [0]
  position = waiting = (
    0  # characters that are taken; unknown pieces before them
  )
  for is_known, group in itertools.groupby(surfaces, lambda s: s is not None):
    if not is_known:
      waiting = len(list(group))
      continue
    pieces = [piece for piece in group if piece is not None]
    match_start = _find(
      text,
      ''.join(pieces),
      position,
      waiting,
      last=len(bounds) + waiting + len(pieces) > len(surfaces),
    )
    if match_start is None:
      return None
    bounds += _shared(text, position, match_start, waiting)
    bounds += [
      match_start + end for end in itertools.accumulate(map(len, pieces))
    ]
    position, waiting = bounds[-1], 0
  if len(text) - position < waiting or (position < len(text) and not waiting):
    return None
  return bounds + _shared(text, position, len(text), waiting)


def _find(
  text: str, part: str, place: int, waiting: int, *, last: bool
) -> int | None:
  """Where a part lies after at least `waiting` more characters."""
  if not waiting:
    return place if text.startswith(part, place) else None
  match_start = (
    len(text) - len(part)
    if last and text.endswith(part)
    else text.find(part, place + waiting)
  )
  return match_start if match_start >= place + waiting else None


def _shared(text: str, start: int, stop: int, count: int) -> list[int]:
  """Where each of `count` unknown pieces of text[start:stop] ends.

  At the ends of words if there are as many; else each has a character, and
  the last has the rest.
  """
  if not count:
    return []
  ends = [start + match.end() for match in _WORD.finditer(text[start:stop])]
  if len(ends) != count:
    ends = list(range(start + 1, start + count))
    ends.append(stop)
  return ends


def _characters(bounds, starts, ends, length: int) -> Spans:
  """Characters of bytes; those of no byte are an empty span."""
  edges = np.append(starts, length)
  bounds = np.asarray(bounds)
  first = edges[bounds[:-1]]
  some = bounds[1:] > bounds[:-1]
  last = np.where(some, ends[np.maximum(bounds[1:] - 1, 0)], first)
  return first.astype(np.int32), last.astype(np.int32)


# How pieces are read: the bytes they stand for, or None if not that way.


def _sentencepiece(piece: str) -> bytes | None:
  match = _BYTE.fullmatch(piece)
  if match:
    return bytes([int(match.group(1), 16)])
  return piece.replace(_SPACE, '').encode()


def _wordpiece(piece: str) -> bytes | None:
  return piece.removeprefix('##').encode()


def _byte_level(piece: str) -> bytes | None:
  codes = _byte_alphabet()
  if any(character not in codes for character in piece):
    return None
  return bytes(codes[character] for character in piece).strip()


def _word_end(piece: str) -> bytes | None:
  return piece.removesuffix('</w>').encode()


@functools.cache
def _byte_alphabet() -> dict[str, int]:
  """The characters that stand for bytes (Radford et al. 2019).

  Bytes that are printable characters of Latin-1 stand for themselves, the
  others for the characters from U+0100 on, in their order.
  """
  printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
  replacements = itertools.count(0x100)
  return {
    chr(byte if byte in printable else next(replacements)): byte
    for byte in range(0x100)
  }


_READINGS: tuple[Callable[[str], bytes | None], ...] = (
  _sentencepiece,
  _wordpiece,
  _byte_level,
  _word_end,
)


# What vocabularies make of text before they cut it into pieces.


def _compatible(text: str) -> str:
  return _visible(unicodedata.normalize('NFKC', text))


def _lower(text: str) -> str:
  return _visible(text.lower())


def _compatible_lower(text: str) -> str:
  return _compatible(text).lower()


def _without_marks(text: str) -> str:
  """Lower case without combining marks, as uncased BERT reads text."""
  decomposed = unicodedata.normalize('NFD', text.lower())
  return _visible(
    ''.join(c for c in decomposed if unicodedata.category(c) != 'Mn')
  )


def _visible(text: str) -> str:
  """Without white space and characters of control and format."""
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


def _normalized(
  text: str, normalize: Callable[[str], str]
) -> tuple[bytes, np.ndarray, np.ndarray]:
  """Normalised UTF-8 [N], and each byte's first character and last plus one.

  Before: 'ﬁx' by NFKC; after: b'fix', [0, 0, 1], [1, 1, 2].
  """
  parts: list[bytes] = []
  starts: list[int] = []
  ends: list[int] = []
  for start, stop in _clusters(text, normalize):
    part = normalize(text[start:stop]).encode(errors='replace')
    parts.append(part)
    starts += [start] * len(part)
    ends += [stop] * len(part)
  return b''.join(parts), np.array(starts, np.int64), np.array(ends, np.int64)


def _clusters(text: str, normalize) -> list[tuple[int, int]]:
  """Runs of characters that are normalised independently of the others."""
  if normalize is str or text.isascii():
    return [(i, i + 1) for i in range(len(text))]
  clusters = []
  start = 0
  for stop in range(1, len(text) + 1):
    if stop < len(text) and _joins(text[stop]):
      continue
    cluster = text[start:stop]
    if stop - start > 1 and ''.join(map(normalize, cluster)) == normalize(
      cluster
    ):
      clusters += [(i, i + 1) for i in range(start, stop)]
    else:
      clusters.append((start, stop))
    start = stop
  return clusters


def _joins(character: str) -> bool:
  """Whether it may become one character with the one before."""
  return (
    unicodedata.combining(character) != 0
    or 'ᅠ' <= character <= 'ᇿ'
    or character in 'ﾞﾟ'
  )
