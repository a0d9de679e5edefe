"""Token normalisation: the text of a token, however its vocabulary writes it.

Vocabularies mark the borders of words in different ways: `▁the` and `ing`
(SentencePiece), `Ġthe` and `ing` (byte-level BPE, as GPT-2 and RoBERTa have
it, which also writes bytes as letters: `Ã©` is `é`), `the` and `##ing`
(WordPiece, as BERT has it), `the</w>` and `in` (BPE with ends of words, as
XLM has it).
"""

import enum
import functools
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from xlflax.data.corpus import language_codes


class Notation(enum.Enum):
  """How a vocabulary marks the borders of words; the value is its mark."""

  SENTENCEPIECE = '▁'
  BYTE_LEVEL = 'Ġ'
  WORDPIECE = '##'
  WORD_END = '</w>'


class PlainToken(NamedTuple):
  """A token's characters, and whether it begins a word."""

  text: str
  begins_word: bool


def notation_of(pieces: Sequence[str]) -> Notation:
  """The notation whose mark most pieces have; SentencePiece's if none.

  Before: ['<s>', 'Ġthe', 'ing']; after: Notation.BYTE_LEVEL.
  """
  counts = {
    kind: sum(
      p.endswith(kind.value)
      if kind is Notation.WORD_END
      else p.startswith(kind.value)
      for p in pieces
    )
    for kind in Notation
  }
  return max(counts, key=lambda kind: counts[kind])


def plain_tokens(
  pieces: Sequence[str], notation: Notation | None = None
) -> list[PlainToken]:
  """Returns the text of each piece, and whether it begins a word.

  Before: ['▁the', 'ing', '▁New▁York'] of SentencePiece, ['Ġthe', 'ing',
  'ĠNewĠYork'] of byte-level BPE, or ['the', '##ing'] of WordPiece; after:
  [('the', True), ('ing', False), ('New York', True)].

  Args:
    pieces: in the vocabulary's own writing.
    notation: None finds it out by `notation_of`.
  """
  read = {
    Notation.SENTENCEPIECE: _of_sentencepiece,
    Notation.BYTE_LEVEL: _of_byte_level,
    Notation.WORDPIECE: _of_wordpiece,
    Notation.WORD_END: _of_word_end,
  }[notation or notation_of(pieces)]
  return [read(piece) for piece in pieces]


def normalize_token(text: str) -> str:
  """Compatibility characters unified (NFKC), then lower case.

  Before: 'Ｔｈｅ'; after: 'the'.
  """
  return unicodedata.normalize('NFKC', text).lower()


def script_of_token(text: str) -> str:
  """The script of a text's first letter, such as 'LATIN' or 'CJK'.

  It is the first word of the character's Unicode name; 'NONE' for a text
  without letters.
  """
  letter = next((c for c in text if c.isalpha()), None)
  if letter is None:
    return 'NONE'
  return _script_of(letter)


# The Ethiopic word space, which some texts have in place of a space.
_WORD_SPACES = ('\u1361',)
# Letters that are never the first of a word, besides all combining marks: the
# Thai and Lao vowels that follow their consonant, marks of repetition and the
# Japanese mark of a long vowel.
_NEVER_FIRST = frozenset(
  '\u0e30\u0e32\u0e33\u0e45\u0e46\u0eb0\u0eb2\u0eb3\u0ec6\u3005\u30fc'
)


def may_be_word(token: PlainToken) -> bool:
  """Returns whether a token can begin a word.

  This is the case if the vocabulary marks the token as the first of a word, if
  the token begins with an Ethiopic word space, or if its script has no spaces
  between words. A token without a space that begins with a combining mark never
  begins a word.
  """
  if token.begins_word or token.text.startswith(_WORD_SPACES):
    return True
  first = token.text[:1]
  if (
    not first or first in _NEVER_FIRST or unicodedata.category(first)[0] == 'M'
  ):
    return False
  letter = next(filter(str.isalpha, token.text), '')
  return bool(language_codes.TEXT_WITHOUT_SPACES.match(letter))


def word_starts(pieces: Iterable[str], notation: Notation) -> list[bool]:
  """Returns for each token whether it can begin a word; see `may_be_word`.

  Vocabularies in WordPiece's notation mark words of all scripts.
  """
  tokens = plain_tokens(list(pieces), notation)
  if notation is Notation.WORDPIECE:
    return [token.begins_word for token in tokens]
  return [may_be_word(token) for token in tokens]


@functools.lru_cache(maxsize=1 << 16)
def _script_of(letter: str) -> str:
  return unicodedata.name(letter, 'UNNAMED').split(' ')[0]


def _of_sentencepiece(piece: str) -> PlainToken:
  text = piece.removeprefix(Notation.SENTENCEPIECE.value)
  return PlainToken(
    text.replace(Notation.SENTENCEPIECE.value, ' '), len(text) < len(piece)
  )


def _of_wordpiece(piece: str) -> PlainToken:
  text = piece.removeprefix(Notation.WORDPIECE.value)
  return PlainToken(text, len(text) == len(piece))


def _of_word_end(piece: str) -> PlainToken:
  """What ends a word is taken to be all of it: where a word begins is not
  written."""
  text = piece.removesuffix(Notation.WORD_END.value)
  return PlainToken(text, len(text) < len(piece))


def _of_byte_level(piece: str) -> PlainToken:
  table = _bytes_of_letters()
  if not all(letter in table for letter in piece):
    return PlainToken(piece, False)  # not written in bytes: a special symbol
  code = bytes(table[letter] for letter in piece)
  try:
    text = code.decode('utf-8')
  except UnicodeDecodeError:  # part of a character, as SentencePiece writes it
    return PlainToken(''.join(f'<0x{byte:02X}>' for byte in code), False)
  return PlainToken(text.removeprefix(' '), text.startswith(' '))


@functools.cache
def _bytes_of_letters() -> dict[str, int]:
  """Letter -> byte of byte-level BPE (Radford et al. 2019).

  Printable bytes of Latin-1 are written as themselves, the others as the
  characters from 256 on, in order.
  """
  printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
  other_bytes = [byte for byte in range(256) if byte not in set(printable)]
  return {chr(byte): byte for byte in printable} | {
    chr(256 + i): byte for i, byte in enumerate(other_bytes)
  }
