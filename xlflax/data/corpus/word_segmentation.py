"""Segmentation of text into words, for scripts with and without spaces.

`Segmenter.split` splits text into alternating separators and words, so that
words can be replaced while all other bytes are preserved. No word begins with a
combining mark.

- Scripts with spaces: A word is a run of letters, digits and combining marks,
  which may contain apostrophes and hyphens (`don't`, `well-known`). In French,
  Italian and similar languages an apostrophe ends a word (`l'`, `homme`). The
  Ethiopic word space (`፡`) and the Tibetan tsheg (`་`) are separators, so that
  Tibetan words are syllables.
- Chinese: The words are those of jieba.
- Japanese, Thai, Lao, Khmer, Burmese: The words are those in ICU's
  dictionaries. A known word that consists of several ICU words remains one
  word.
- Other scripts without spaces (Javanese, Balinese, Tai Tham, New Tai Lue): ICU
  has no dictionary for them. A run is split at known words that begin and end
  at grapheme clusters. The text between two known words is one word.
"""

import functools
import importlib
import importlib.metadata
import itertools
import logging
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence

from xlflax.data.corpus import language_codes
from xlflax.utils import user_modules

# Separates several texts that are split in one call. It does not occur in text.
BORDER = '\0'

_ELIDING_LANGUAGES = frozenset(
  ('fr', 'it', 'ca', 'oc', 'co', 'fur', 'lij', 'lmo', 'pms', 'scn', 'vec', 'wa')
)
_LAST_BMP, _LAST_MARK = 0xFFFF, 0x1FFFF
_BEYOND_BMP = re.compile('[\U00010000-\U0010ffff]')
_SEGMENT_CACHE_SIZE = 1 << 16
_LETTER = re.compile(r'\w')
# Scripts without spaces for which ICU has a dictionary of words.
_ICU_SCRIPTS = frozenset(
  ('Hira', 'Jpan', 'Kana', 'Khmr', 'Laoo', 'Mymr', 'Thai')
)


@functools.cache
def word_pattern(language: str) -> re.Pattern[str]:
  """Returns a regular expression that matches the words of a text.

  It also matches `BORDER`, which separates texts that are processed together.
  For 'en', the matches in `don't re-read it - now` are `don't`, `re-read`,
  `it`, `now`. For 'fr', the matches in `l'au-delà` are `l'` and `au-delà`.
  """
  return _pattern(
    language_codes.short_code(language) in _ELIDING_LANGUAGES, _LAST_MARK
  )


@functools.cache
def _pattern(eliding: bool, last_mark: int) -> re.Pattern[str]:
  """Returns a word pattern that includes combining marks up to a code point.

  Matching is much faster if the text contains few marks or none.
  """
  inner = '‐‑-' if eliding else "'’‐‑-"
  continuation = rf'[{inner}](?=\w)'
  if last_mark:
    continuation += f'|[{combining_marks(last_mark)}]'
  word = rf'\w+(?:(?:{continuation})\w*)*'
  if eliding:
    word += r"(?:['’](?=\w))?"
  return re.compile(f'({word}|{BORDER})')


def count_words(text: str, language: str) -> int:
  """Counts the words in a text.

  In scripts without spaces, text is not segmented: a run of letters counts as
  one word.
  """
  return len(word_pattern(language).findall(text))


class Segmenter:
  """Segmenter that splits text in one language into separators and words."""

  def __init__(self, language: str, words: Collection[str] = ()):
    """Creates a segmenter.

    Args:
      language: Language code of the text.
      words: Known words, such as a dictionary's entries. These words are not
        split in scripts without spaces other than Chinese. In all other
        scripts, they have no effect.

    Raises:
      ConfigError: If the language is written without spaces and the package
        that segments it into words (jieba or icu4py) is not installed.
    """
    self._eliding = language_codes.short_code(language) in _ELIDING_LANGUAGES
    self._segment_run: Callable[[str], tuple[str, ...]] | None = None
    code = language_codes.parse_language_code(language)
    if code.is_chinese:
      cut = chinese_words()
      self._segment_run = functools.lru_cache(_SEGMENT_CACHE_SIZE)(
        lambda run: tuple(_attach_marks(cut(run)))
      )
    elif not code.uses_spaces:
      _icu_breakers()
      known_words = KnownWords(words)
      atoms = icu_words if code.script in _ICU_SCRIPTS else grapheme_clusters
      merge_rest = code.script not in _ICU_SCRIPTS
      self._segment_run = functools.lru_cache(_SEGMENT_CACHE_SIZE)(
        lambda run: tuple(known_words.join(atoms(run), merge_rest=merge_rest))
      )

  def split(self, text: str) -> list[str]:
    """Splits a text into separators and words.

    For example, `'A cat, no?'` becomes `['', 'A', ' ', 'cat', ', ', 'no',
    '?']`. `BORDER` is treated as a separate word.

    Args:
      text: Any text.

    Returns:
      Separators at even positions and words at odd positions. Their
      concatenation equals `text`.
    """
    parts = _pattern(self._eliding, _last_mark(text)).split(text)
    return parts if self._segment_run is None else self._split_runs(parts)

  def _split_runs(self, parts: list[str]) -> list[str]:
    """Splits runs of characters from scripts that do not use spaces."""
    out = [parts[0]]
    for run, separator in zip(parts[1::2], parts[2::2], strict=True):
      if not language_codes.TEXT_WITHOUT_SPACES.search(run):
        out += (run, separator)
        continue
      for segment in self._segment_run(run):  # type: ignore[misc]
        if _LETTER.search(segment):
          out += (segment, '')
        else:  # A hyphen or a joiner between two words.
          out[-1] += segment
      out[-1] += separator
    return out


def icu_words(text: str) -> list[str]:
  """Splits a sequence of letters and combining marks at ICU's word boundaries.

  For example, `ผมชื่อสมชาย` becomes `ผม`, `ชื่อ`, `สมชาย`. The concatenated
  words equal `text`.
  """
  return _attach_marks(_icu_breakers().WordBreaker(text, 'en'))


def grapheme_clusters(text: str) -> list[str]:
  """Splits a text into grapheme clusters (Unicode Standard Annex 29)."""
  return _attach_marks(_icu_breakers().CharacterBreaker(text, 'en'))


def icu_version() -> str:
  """Returns the version of icu4py, which determines the word boundaries."""
  return importlib.metadata.version('icu4py')


@functools.cache
def _icu_breakers():
  """Imports icu4py, which segments text by the rules of ICU.

  Raises:
    ConfigError: If icu4py is not installed.
  """
  return user_modules.import_optional(
    'icu4py.breakers',
    'Word segmentation of a language that is written without spaces requires '
    'the package icu4py',
    fix='Run `pip install icu4py`.',
  )


def _attach_marks(parts: Iterable[str]) -> list[str]:
  """Appends each part that begins with a combining mark to its predecessor."""
  attached: list[str] = []
  for part in parts:
    if attached and unicodedata.category(part[0])[0] == 'M':
      attached[-1] += part
    else:
      attached.append(part)
  return attached


class KnownWords:
  """Set of known words that are rejoined if a segmenter has split them.

  With the known words `ab` and `abc`, the segments `a`, `b`, `c`, `d` become
  `abc`, `d`. If several known words begin at the same segment, the longest is
  used.
  """

  def __init__(self, words: Iterable[str]):
    self._words = frozenset(words)
    lengths: dict[str, set[int]] = {}
    for word in self._words:
      if word:
        lengths.setdefault(word[0], set()).add(len(word))
    self._lengths = {
      first: sorted(sizes, reverse=True) for first, sizes in lengths.items()
    }

  def join(
    self, segments: Sequence[str], *, merge_rest: bool = False
  ) -> list[str]:
    """Joins consecutive segments that form known words.

    Args:
      segments: Consecutive segments of a text.
      merge_rest: Whether to also join the remaining segments. All segments
        between two known words then become one word.

    Returns:
      The words. Their concatenation equals the concatenation of the segments.
    """
    if not self._words and not merge_rest:
      return list(segments)
    text = ''.join(segments)
    boundaries = [0, *itertools.accumulate(map(len, segments))]
    index_of_boundary = {boundary: i for i, boundary in enumerate(boundaries)}
    joined: list[str] = []
    unmatched, i = '', 0
    while i < len(segments):
      longest_word = self._longest(text, boundaries[i], index_of_boundary)
      word = longest_word or segments[i]
      if longest_word or not merge_rest:
        if unmatched:
          joined.append(unmatched)
        joined.append(word)
        unmatched = ''
      else:
        unmatched += word
      i = index_of_boundary[boundaries[i] + len(word)]
    return [*joined, unmatched] if unmatched else joined

  def _longest(self, text: str, start: int, ends: Collection[int]) -> str:
    """Returns the longest known word at a position, or an empty string."""
    for size in self._lengths.get(text[start], ()):
      word = text[start : start + size]
      if start + size in ends and word in self._words:
        return word
    return ''


@functools.cache
def chinese_words():
  """Returns the jieba function that splits a text into a list of words.

  Raises:
    ConfigError: If jieba is not installed.
  """
  jieba = user_modules.import_optional(
    'jieba',
    'Word segmentation of Chinese requires the package jieba',
    fix='Run `pip install jieba`.',
  )
  jieba.setLogLevel(logging.WARNING)
  return jieba.Tokenizer().lcut


def chinese_version() -> str:
  """Returns the version of jieba, which determines the word boundaries."""
  chinese_words()
  return str(importlib.import_module('jieba').__version__)


def _last_mark(text: str) -> int:
  """Returns an upper bound of the code points of a text's combining marks."""
  if text.isascii():
    return 0
  if _BEYOND_BMP.search(text):
    return _LAST_MARK
  return _LAST_BMP if _bmp_mark().search(text) else 0


@functools.cache
def _bmp_mark() -> re.Pattern[str]:
  return re.compile(f'[{combining_marks(_LAST_BMP)}]')


@functools.cache
def combining_marks(last: int = _LAST_MARK) -> str:
  r"""Returns combining marks and joiners for use in a regex character class.

  Vowel signs in Indic and Thai text and decomposed accents are marks, but they
  are not included in the class `\w`.

  Args:
    last: Largest Unicode code point to include.
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
