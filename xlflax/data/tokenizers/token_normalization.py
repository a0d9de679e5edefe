"""Conversion of vocabulary tokens to the text that they represent.

Vocabularies mark word boundaries with different notations:

- SentencePiece writes `▁the` and `ing`.
- Byte-level BPE (GPT-2, RoBERTa) writes `Ġthe` and `ing`. It also writes bytes
  as letters: `Ã©` is `é`.
- WordPiece (BERT) writes `the` and `##ing`.
- BPE with end-of-word marks (XLM) writes `the</w>` and `in`.
"""

import enum
import functools
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from xlflax.data.corpus import language_codes


class Notation(enum.Enum):
  """Notation for word boundaries in the tokens of a vocabulary."""

  SENTENCEPIECE = '▁'
  BYTE_LEVEL = 'Ġ'
  WORDPIECE = '##'
  WORD_END = '</w>'


class PlainToken(NamedTuple):
  """Text of a token without word-boundary marks such as `▁` or `##`.

  Attributes:
    text: Text that the token represents.
    begins_word: Whether the vocabulary marks the token as the start of a word.
      In a vocabulary with end-of-word marks, whether the token ends a word.
  """

  text: str
  begins_word: bool


def notation_of(pieces: Sequence[str]) -> Notation:
  """Detects the word-boundary notation of a vocabulary from its tokens.

  For example, the notation of `['<s>', 'Ġthe', 'ing']` is
  `Notation.BYTE_LEVEL`. If no token has a mark, the result is
  `Notation.SENTENCEPIECE`.

  Args:
    pieces: Tokens as spelled in the vocabulary, with word-boundary marks.
  """
  counts = {
    notation: sum(
      piece.endswith(notation.value)
      if notation is Notation.WORD_END
      else piece.startswith(notation.value)
      for piece in pieces
    )
    for notation in Notation
  }
  return max(counts, key=lambda notation: counts[notation])


def plain_tokens(
  pieces: Sequence[str], notation: Notation | None = None
) -> list[PlainToken]:
  """Returns the text of each token and whether the token starts a word.

  For example, SentencePiece's `['▁the', 'ing', '▁New▁York']` gives `[('the',
  True), ('ing', False), ('New York', True)]`. Byte-level BPE's `['Ġthe', 'ing',
  'ĠNewĠYork']` gives the same result. WordPiece's `['the', '##ing']` gives its
  first two elements.

  Args:
    pieces: Tokens as spelled in the vocabulary, with word-boundary marks.
    notation: Notation with which the vocabulary marks word boundaries. If None,
      it is detected by `notation_of`.
  """
  parse = {
    Notation.SENTENCEPIECE: _parse_sentencepiece,
    Notation.BYTE_LEVEL: _parse_byte_level,
    Notation.WORDPIECE: _parse_wordpiece,
    Notation.WORD_END: _parse_word_end,
  }[notation or notation_of(pieces)]
  return [parse(piece) for piece in pieces]


def normalize_token(text: str) -> str:
  """Normalizes compatibility characters (NFKC) and converts text to lower case.

  For example, `normalize_token('Ｔｈｅ')` is `'the'`.
  """
  return unicodedata.normalize('NFKC', text).lower()


def script_of_token(text: str) -> str:
  """Returns the script of a text's first letter, such as 'LATIN' or 'CJK'.

  The script is the first word in the letter's Unicode name. If the text has no
  letters, the result is 'NONE'.
  """
  letter = next((c for c in text if c.isalpha()), None)
  if letter is None:
    return 'NONE'
  return _script_of(letter)


# The Ethiopic word space, which separates words in some texts.
_WORD_SPACES = ('\u1361',)
# Letters that never start a word, in addition to all combining marks: Thai and
# Lao vowels that follow their consonant, repetition marks and the Japanese
# prolonged sound mark.
_NEVER_FIRST = frozenset(
  '\u0e30\u0e32\u0e33\u0e45\u0e46\u0eb0\u0eb2\u0eb3\u0ec6\u3005\u30fc'
)


def may_be_word(token: PlainToken) -> bool:
  """Returns whether a token can start a word.

  A token can start a word if the vocabulary marks it as the start of a word, if
  it starts with an Ethiopic word space, or if its script has no spaces between
  words. A token without a mark that starts with a combining mark never starts a
  word.
  """
  if token.begins_word or token.text.startswith(_WORD_SPACES):
    return True
  first_character = token.text[:1]
  if not first_character or first_character in _NEVER_FIRST:
    return False
  if unicodedata.category(first_character).startswith('M'):
    return False
  letter = next(filter(str.isalpha, token.text), '')
  return bool(language_codes.TEXT_WITHOUT_SPACES.match(letter))


def word_starts(pieces: Iterable[str], notation: Notation) -> list[bool]:
  """Returns whether each token can start a word; see `may_be_word`.

  WordPiece vocabularies mark words in all scripts, so their marks are used
  directly.

  Args:
    pieces: Tokens as spelled in the vocabulary, with word-boundary marks.
    notation: Notation with which the vocabulary marks word boundaries.
  """
  tokens = plain_tokens(list(pieces), notation)
  if notation is Notation.WORDPIECE:
    return [token.begins_word for token in tokens]
  return [may_be_word(token) for token in tokens]


def byte_level_content(piece: str) -> bytes | None:
  """Returns the bytes that a token of byte-level BPE represents.

  The result is None for a special symbol, which is not spelled in bytes.
  """
  bytes_by_letter = _bytes_by_letter()
  if not all(letter in bytes_by_letter for letter in piece):
    return None
  return bytes(bytes_by_letter[letter] for letter in piece)


@functools.lru_cache(maxsize=1 << 16)
def _script_of(letter: str) -> str:
  return unicodedata.name(letter, 'UNNAMED').split(' ')[0]


def _parse_sentencepiece(piece: str) -> PlainToken:
  """Parses a token of SentencePiece."""
  text = piece.removeprefix(Notation.SENTENCEPIECE.value)
  return PlainToken(
    text.replace(Notation.SENTENCEPIECE.value, ' '), len(text) < len(piece)
  )


def _parse_wordpiece(piece: str) -> PlainToken:
  """Parses a token of WordPiece."""
  text = piece.removeprefix(Notation.WORDPIECE.value)
  return PlainToken(text, len(text) == len(piece))


def _parse_word_end(piece: str) -> PlainToken:
  """Parses a token of BPE with end-of-word marks.

  This notation does not mark the start of a word. A token that ends a word is
  therefore treated as a complete word.
  """
  text = piece.removesuffix(Notation.WORD_END.value)
  return PlainToken(text, len(text) < len(piece))


def _parse_byte_level(piece: str) -> PlainToken:
  """Parses a token of byte-level BPE."""
  content = byte_level_content(piece)
  if content is None:
    return PlainToken(piece, False)
  try:
    text = content.decode('utf-8')
  except UnicodeDecodeError:
    # The token is a fragment of a character. SentencePiece's spelling of bytes
    # represents it.
    return PlainToken(''.join(f'<0x{byte:02X}>' for byte in content), False)
  return PlainToken(text.removeprefix(' '), text.startswith(' '))


@functools.cache
def _bytes_by_letter() -> dict[str, int]:
  """Returns byte-level BPE's map of letters to bytes (Radford et al., 2019).

  Bytes that are printable Latin-1 characters are represented by these
  characters. The other bytes are represented, in order, by the characters that
  start at code point 256.
  """
  printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
  other_bytes = [byte for byte in range(256) if byte not in set(printable)]
  return {chr(byte): byte for byte in printable} | {
    chr(256 + i): byte for i, byte in enumerate(other_bytes)
  }
