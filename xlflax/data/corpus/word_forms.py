"""Spellings of a word: normalization and the case rules of its language.

Everything that looks up or counts words compares `normalize_word`, and changes
case by `lower`, `upper` and `capitalize`. They follow the language-specific
rules of Unicode's SpecialCasing.txt and of CLDR.

- Turkish, Azerbaijani, Crimean Tatar, Gagauz, Tatar and Kazakh in Latin
  letters: `I` is the capital of `ı`, and `İ` of `i`.
- Greek: capitals have no accents (`Άθήνα`, `ΑΘΗΝΑ`), and a word ends in `ς`.
- Dutch: `ij` at the beginning of a word has two capitals (`IJsland`).
- Georgian: words do not begin with a capital.
- Lithuanian: `i`, `j` and `į` keep their dot below an accent.
"""

import functools
import unicodedata
from collections.abc import Iterable

from xlflax.data.corpus import language_codes

_PLAIN = str.maketrans('’‐‑', "'--")
_DOTTED_I_LANGUAGES = frozenset(('az', 'crh', 'gag', 'kk', 'tr', 'tt'))
_DOT_ABOVE = '\u0307'
_GREEK_ACCENTS = frozenset('\u0300\u0301\u0304\u0306\u0313\u0314\u0342\u0345')
_DIALYTIKA = '\u0308'


def normalize_word(word: str) -> str:
  """Returns a word in the spelling in which words are compared.

  This is Unicode's NFC with plain apostrophes and hyphens and single spaces.
  Case is kept. Every consumer of words applies it to both sides of a
  comparison.
  """
  if not word.isascii():
    word = unicodedata.normalize('NFC', word).translate(_PLAIN)
  return ' '.join(word.split())


def lower(text: str, language: str) -> str:
  """Returns a text in lower case.

  `lower('IŞIK İNSAN', 'tr')` is `ışık insan`; `lower('ΛΌΓΟΣ', 'el')` is
  `λόγος`.

  Args:
    text: Any text.
    language: Language code; an empty string applies the common rules.
  """
  if text.isascii() and 'I' not in text:
    return text.lower()
  if _rules(language) == 'dotted_i':
    text = text.replace('I' + _DOT_ABOVE, 'i').replace('İ', 'i')
    return text.replace('I', 'ı').lower()
  return text.lower()


def upper(text: str, language: str) -> str:
  """Returns a text in upper case.

  `upper('iyi', 'tr')` is `İYİ`; `upper('Αθήνα', 'el')` is `ΑΘΗΝΑ`.

  Args:
    text: Any text.
    language: Language code; an empty string applies the common rules.
  """
  rules = _rules(language)
  if rules == 'dotted_i':
    return text.replace('i', 'İ').upper()
  if rules == 'greek':
    return _without_greek_accents(text).upper()
  if rules == 'lithuanian':
    text = text.replace('i' + _DOT_ABOVE, 'i').replace('j' + _DOT_ABOVE, 'j')
  return text.upper()


def capitalize(text: str, language: str) -> str:
  """Returns a text whose first letter is a capital; the rest stays.

  `capitalize('iyi gün', 'tr')` is `İyi gün`; `capitalize('ijs', 'nl')` is
  `IJs`.

  Args:
    text: Any text.
    language: Language code; an empty string applies the common rules.
  """
  first, tail = text[:1], text[1:]
  rules = _rules(language)
  if rules == 'dotted_i' and first == 'i':
    return 'İ' + tail
  if rules == 'dutch' and first == 'i' and tail.startswith('j'):
    return 'IJ' + tail[1:]
  return first.title() + tail


def fold(text: str, language: str) -> str:
  """Returns a key that all spellings of a text in any case have in common.

  `STRASSE` and `Straße` have the same key, and so have Greek `ΑΘΗΝΑ` and
  `Αθήνα`, which `lower` cannot bring together.

  Args:
    text: Any text.
    language: Language code; an empty string applies the common rules.
  """
  text = lower(normalize_word(text), language)
  if _rules(language) == 'greek':
    text = _without_greek_accents(text, _GREEK_ACCENTS | {_DIALYTIKA})
  return unicodedata.normalize('NFC', text.casefold())


class WordIndex:
  """Positions of words in a list, for any spelling of a word."""

  def __init__(self, words: Iterable[str], language: str):
    """Creates an index.

    Args:
      words: Words of one language. Of several spellings that `normalize_word`
        unifies, the first is found.
      language: Language code; an empty string applies the common rules.
    """
    self._language = language
    self._positions: dict[str, int] = {}
    for position, word in enumerate(words):
      self._positions.setdefault(normalize_word(word), position)

  def find(self, word: str) -> int | None:
    """Returns the position of a word.

    A word is looked up as it is spelled, then in lower case. If neither is in
    the list, the result is None.
    """
    word = normalize_word(word)
    position = self._positions.get(word)
    if position is None:
      position = self._positions.get(lower(word, self._language))
    return position


def _without_greek_accents(
  text: str, accents: frozenset[str] = _GREEK_ACCENTS
) -> str:
  """Removes accents and breathings of Greek letters."""
  decomposed = unicodedata.normalize('NFD', text)
  letters, is_greek = [], False
  for character in decomposed:
    if unicodedata.category(character)[0] != 'M':
      is_greek = '\u0370' <= character <= '\u03ff'
    elif is_greek and character in accents:
      continue
    letters.append(character)
  return unicodedata.normalize('NFC', ''.join(letters))


@functools.lru_cache(maxsize=1024)
def _rules(language: str) -> str:
  """Returns the name of a language's case rules; '' for the common ones."""
  if not language:
    return ''
  code = language_codes.parse_language_code(language)
  if code.language in _DOTTED_I_LANGUAGES:
    # Kazakh and Tatar are mostly written in Cyrillic letters, which the rules
    # of Latin letters do not touch.
    return 'dotted_i'
  return {'el': 'greek', 'grc': 'greek', 'nl': 'dutch', 'lt': 'lithuanian'}.get(
    code.language, ''
  )
