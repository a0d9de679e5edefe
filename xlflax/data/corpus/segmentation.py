"""Words of text as it is written, also where no spaces stand between them.

`Segmenter.split` cuts text into separators and words in turn, so that words
can be replaced and everything else stays byte for byte.

- Scripts with spaces: a word is a run of letters, digits and combining marks,
  with apostrophes and hyphens inside (`don't`, `well-known`); in French,
  Italian and the like an apostrophe ends a word (`l'`, `homme`).
- Chinese: jieba's words.
- Japanese, Thai, Lao, Khmer, Burmese: the longest of the given words from the
  left; a stretch in which none begins is one word.
"""

import functools
import importlib
import logging
import re
import unicodedata
from collections.abc import Collection, Iterable

from xlflax.data.corpus import language_codes
from xlflax.foundation import user_modules

# Stands between texts that are split in one call; never a character of text.
BORDER = '\0'

_ELIDING = frozenset(
  ('fr', 'it', 'ca', 'oc', 'co', 'fur', 'lij', 'lmo', 'pms', 'scn', 'vec', 'wa')
)
_LAST_BMP, _LAST_MARK = 0xFFFF, 0x1FFFF
_BEYOND_BMP = re.compile('[\U00010000-\U0010ffff]')
_MAX_REMEMBERED = 1 << 16


@functools.cache
def word_pattern(language: str) -> re.Pattern[str]:
  """Matches the words of a text, and `BORDER`.

  With 'en', the matches in `don't re-read it - now` are `don't`, `re-read`,
  `it`, `now`; with 'fr', those in `l'au-delà` are `l'` and `au-delà`.
  """
  return _pattern(language_codes.short_code(language) in _ELIDING, _LAST_MARK)


@functools.cache
def _pattern(eliding: bool, last_mark: int) -> re.Pattern[str]:
  """Knows marks up to a code point: with few or none it is much faster."""
  inner = '‐‑-' if eliding else "'’‐‑-"
  more = rf'[{inner}](?=\w)'
  if last_mark:
    more += f'|[{_marks(last_mark)}]'
  word = rf'\w+(?:(?:{more})\w*)*'
  if eliding:
    word += r"(?:['’](?=\w))?"
  return re.compile(f'({word}|{BORDER})')


def count_words(text: str, language: str) -> int:
  """Words of a text by `word_pattern`; a run without spaces is one."""
  return len(word_pattern(language).findall(text))


class Segmenter:
  """Splits the text of one language into separators and words."""

  def __init__(self, language: str, words: Collection[str] = ()):
    """Makes a segmenter.

    Args:
      language: code; subtags do not matter.
      words: known words, for longest-match segmentation; others ignore them.

    Raises:
      ConfigError: jieba, which Chinese needs, is not installed.
    """
    self._eliding = language_codes.short_code(language) in _ELIDING
    self._cut = None
    code = language_codes.parse(language)
    if not code.uses_spaces:
      cut = chinese_words() if code.is_chinese else LongestMatch(words)
      self._cut = functools.lru_cache(_MAX_REMEMBERED)(
        lambda run: tuple(cut(run))
      )

  def split(self, text: str) -> list[str]:
    """Separators at even places, words at odd ones; joined, they are `text`.

    Before: `'A cat, no?'`; after: `['', 'A', ' ', 'cat', ', ', 'no', '?']`.
    `BORDER` is a word of its own.
    """
    parts = _pattern(self._eliding, _last_mark(text)).split(text)
    return parts if self._cut is None else self._expand(parts)

  def _expand(self, parts: list[str]) -> list[str]:
    """Cuts the runs of characters of unsegmented scripts."""
    out: list[str] = []
    for separator, run in zip(parts[::2], parts[1::2], strict=False):
      out.append(separator)
      if language_codes.TEXT_WITHOUT_SPACES.search(run):
        for word in self._cut(run):  # type: ignore[misc]
          out += (word, '')
        out.pop()
      else:
        out.append(run)
    out.append(parts[-1])
    return out


class LongestMatch:
  """Cuts runs of characters at known words, the longest first.

  With `['ab', 'abc', 'd']`, `abcxyd` becomes `abc`, `xy`, `d`. A word does
  not end before a combining mark.
  """

  def __init__(self, words: Iterable[str]):
    self._words = frozenset(words)
    lengths: dict[str, set[int]] = {}
    for word in self._words:
      if word:
        lengths.setdefault(word[0], set()).add(len(word))
    self._lengths = {
      first: sorted(found, reverse=True) for first, found in lengths.items()
    }

  def __call__(self, run: str) -> list[str]:
    out, start, place = [], 0, 0
    while place < len(run):
      size = self._match(run, place)
      if size:
        if start < place:
          out.append(run[start:place])
        out.append(run[place : place + size])
        start = place + size
      place += size or 1
    if start < len(run):
      out.append(run[start:])
    return out

  def _match(self, run: str, place: int) -> int:
    for size in self._lengths.get(run[place], ()):
      end = place + size
      if run[place:end] in self._words and (
        end == len(run) or unicodedata.category(run[end])[0] != 'M'
      ):
        return size
    return 0


@functools.cache
def chinese_words():
  """jieba's function from a text to a list of its words.

  Raises:
    ConfigError: jieba is not installed.
  """
  jieba = user_modules.optional(
    'jieba', 'Chinese words need jieba', fix='pip install jieba'
  )
  jieba.setLogLevel(logging.WARNING)
  return jieba.Tokenizer().lcut


def chinese_version() -> str:
  """That of jieba: another one may cut differently."""
  chinese_words()
  return str(importlib.import_module('jieba').__version__)


def _last_mark(text: str) -> int:
  """A code point up to which marks have to be known for this text."""
  if text.isascii():
    return 0
  if _BEYOND_BMP.search(text):
    return _LAST_MARK
  return _LAST_BMP if _bmp_mark().search(text) else 0


@functools.cache
def _bmp_mark() -> re.Pattern[str]:
  return re.compile(f'[{_marks(_LAST_BMP)}]')


@functools.cache
def _marks(last: int) -> str:
  r"""Combining marks as ranges for a character class; `\w` lacks them.

  Vowel signs of Indic and Thai text are marks, as are decomposed accents.
  """
  ranges: list[list[int]] = []
  for code in range(0x300, last + 1):
    if unicodedata.category(chr(code))[0] == 'M':
      if ranges and ranges[-1][1] == code - 1:
        ranges[-1][1] = code
      else:
        ranges.append([code, code])
  joiners = '\u200c\u200d'
  return joiners + ''.join(f'{chr(a)}-{chr(b)}' for a, b in ranges)
