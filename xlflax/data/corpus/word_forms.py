"""Spelling variants of words: normalization and language-specific case rules.

All code that looks up or counts words compares the results of `normalize_word`,
and changes case with `lower`, `upper` and `capitalize`. These functions follow
the language-specific rules in Unicode's SpecialCasing.txt and in CLDR.

- Turkish, Azerbaijani, Crimean Tatar, Gagauz, Tatar and Kazakh in Latin
  letters: `I` is the capital of `ı`, and `İ` is the capital of `i`.
- Greek: capitals have no accents (`Άθήνα`, `ΑΘΗΝΑ`), and a word ends in `ς`.
- Dutch: `ij` at the beginning of a word has two capitals (`IJsland`).
- Georgian: words do not begin with a capital.
- Lithuanian: `i`, `j` and `į` keep their dot below an accent.
"""

import functools
import unicodedata
from collections.abc import Iterable

from xlflax.data.corpus import language_codes

_PLAIN_PUNCTUATION = str.maketrans('’‐‑', "'--")
_DOTTED_I_LANGUAGES = frozenset(('az', 'crh', 'gag', 'kk', 'tr', 'tt'))
_DOT_ABOVE = '\u0307'
_GREEK_ACCENTS = frozenset('\u0300\u0301\u0304\u0306\u0313\u0314\u0342\u0345')
_DIALYTIKA = '\u0308'


def normalize_word(word: str) -> str:
  """Normalizes a word's spelling so that it can be compared with other words.

  The normalized spelling is in Unicode's NFC, with plain apostrophes, plain
  hyphens and single spaces. Case is preserved. Normalize both words before you
  compare them.
  """
  if not word.isascii():
    word = unicodedata.normalize('NFC', word).translate(_PLAIN_PUNCTUATION)
  return ' '.join(word.split())


def lower(text: str, language: str) -> str:
  """Converts a text to lower case with the case rules of a language.

  `lower('IŞIK İNSAN', 'tr')` is `ışık insan`, and `lower('ΛΌΓΟΣ', 'el')` is
  `λόγος`.

  Args:
    text: Text in any script.
    language: Language code. If it is an empty string, the language-independent
      rules are applied.
  """
  if text.isascii() and 'I' not in text:
    return text.lower()
  if _case_rules(language) == 'dotted_i':
    text = text.replace('I' + _DOT_ABOVE, 'i').replace('İ', 'i')
    return text.replace('I', 'ı').lower()
  return text.lower()


def upper(text: str, language: str) -> str:
  """Converts a text to upper case with the case rules of a language.

  `upper('iyi', 'tr')` is `İYİ`, and `upper('Αθήνα', 'el')` is `ΑΘΗΝΑ`.

  Args:
    text: Text in any script.
    language: Language code. If it is an empty string, the language-independent
      rules are applied.
  """
  rules = _case_rules(language)
  if rules == 'dotted_i':
    return text.replace('i', 'İ').upper()
  if rules == 'greek':
    return _without_greek_accents(text).upper()
  if rules == 'lithuanian':
    text = text.replace('i' + _DOT_ABOVE, 'i').replace('j' + _DOT_ABOVE, 'j')
  return text.upper()


def capitalize(text: str, language: str) -> str:
  """Capitalizes a text's first letter and leaves all other letters unchanged.

  `capitalize('iyi gün', 'tr')` is `İyi gün`, and `capitalize('ijs', 'nl')` is
  `IJs`.

  Args:
    text: Text in any script.
    language: Language code. If it is an empty string, the language-independent
      rules are applied.
  """
  first, tail = text[:1], text[1:]
  rules = _case_rules(language)
  if rules == 'dotted_i' and first == 'i':
    return 'İ' + tail
  if rules == 'dutch' and first == 'i' and tail.startswith('j'):
    return 'IJ' + tail[1:]
  return first.title() + tail


def fold(text: str, language: str) -> str:
  """Folds case: returns the same key for all case variants of a text.

  For example, `STRASSE` and `Straße` have the same key. The Greek words `ΑΘΗΝΑ`
  and `Αθήνα`, which `lower` does not unify, also have the same key.

  Args:
    text: Text in any script.
    language: Language code. If it is an empty string, the language-independent
      rules are applied.
  """
  text = lower(normalize_word(text), language)
  if _case_rules(language) == 'greek':
    text = _without_greek_accents(text, _GREEK_ACCENTS | {_DIALYTIKA})
  return unicodedata.normalize('NFC', text.casefold())


class WordIndex:
  """Index that finds any spelling variant of a word in a word list."""

  def __init__(self, words: Iterable[str], language: str):
    """Creates an index.

    Args:
      words: Words in the same language. If `normalize_word` maps several words
        to the same spelling, the index contains the first of them.
      language: Language code. If it is an empty string, the
        language-independent rules are applied.
    """
    self._language = language
    self._positions: dict[str, int] = {}
    for position, word in enumerate(words):
      self._positions.setdefault(normalize_word(word), position)

  def find(self, word: str) -> int | None:
    """Returns the position of a word or one of its variants in the word list.

    The word is looked up first in its given spelling and then in lower case. If
    the list contains neither spelling, the result is None.
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
def _case_rules(language: str) -> str:
  """Returns the name of a language's case rules, or '' for the common rules."""
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
