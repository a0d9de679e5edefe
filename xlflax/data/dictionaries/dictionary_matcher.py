"""Fast search for words and phrases that dictionaries can translate.

`TranslationTable` contains all dictionary entries for one language. The words
of a text are looked up by a single C-level `map` over a dict that caches the
result for each spelling. Only words that may start a multi-word entry require
additional Python code.
"""

import enum
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from xlflax.data.corpus import language_codes, word_forms, word_segmentation
from xlflax.data.dictionaries import bilingual_dictionary

_MAX_CACHED_WORDS = 1 << 20
# The code of a word is (entry + 1) * 8 + (starts a phrase) * 4 + case. The code
# of a word without an entry has entry = -1.
_BORDER_CODE = -1
_PHRASE_BIT = 4


class Case(enum.IntEnum):
  """Letter case that makes a translation match the word that it replaces."""

  AS_IS = 0
  CAPITALIZED = 1
  UPPER = 2

  def apply(self, text: str, language: str) -> str:
    """Applies the letter case to a translation with the rules of its language.

    For example, `CAPITALIZED` converts `rouge vif` to `Rouge vif`, and Turkish
    `iyi` to `İyi`.
    """
    if self is Case.UPPER:
      return word_forms.upper(text, language)
    if self is Case.CAPITALIZED:
      return word_forms.capitalize(text, language)
    return text


class DictionaryMatch(NamedTuple):
  """Words and phrases in a text that a dictionary can translate.

  A unit is a word or a multi-word phrase. The units are in the order of the
  text.

  Attributes:
    words: Index of the first word in each matched unit (word or phrase),
      counted from the start of the text, int64 [units].
    sizes: Number of words in each matched unit, int64 [units].
    entries: Dictionary entry of each matched unit, as an index into the
      `TranslationTable`, int64 [units].
    cases: Letter case (`Case`) to apply to the translation of each matched
      unit, int64 [units].
    lines: Index of the line that contains each word, int64 [all words]. The
      separator between two lines counts as a word of the line that it ends.
    places: Position of each word in its line, int64 [all words].
    num_words: Number of words in the text, without the separators between
      lines.
  """

  words: np.ndarray
  sizes: np.ndarray
  entries: np.ndarray
  cases: np.ndarray
  lines: np.ndarray
  places: np.ndarray
  num_words: int


class TranslationTable:
  """Table of all translations for the words in one language.

  Words are compared after `word_forms.normalize_word`. A word is looked up
  first in its original spelling, and then in lower case with the rules of its
  language. A word in capitals is finally looked up in any case. If a word was
  found in a different case, its translation is capitalized or converted to
  capitals like the word. If several multi-word entries match, the longest entry
  is used.

  Attributes:
    texts: Texts of all translations, grouped by entry.
    languages: Language code of each translation.
    costs: Number of words in each translation, int64 [translations]. These
      words count toward the limit of replaced words.
    spaced: Whether each translation is in a language that separates words with
      spaces, bool [translations].
    skipped: Number of entries that were omitted because they contain no letter
      or digit.
  """

  def __init__(
    self,
    language: str,
    translations: Mapping[str, Sequence[bilingual_dictionary.Translation]],
  ):
    """Creates the table.

    Args:
      language: Language code of the words.
      translations: Translations of each word, as returned by
        `bilingual_dictionary.translations_by_word`.
    """
    merged = _merge_entries(language, translations)
    num_merged = sum(count for _, count in merged.values())
    self.skipped = len(translations) - num_merged
    self._language = language
    self._entries = {key: i for i, key in enumerate(merged)}
    self._folded: dict[str, int] = {}
    for key, i in self._entries.items():
      self._folded.setdefault(word_forms.fold(key, language), i)
    self._segmenter = word_segmentation.Segmenter(
      language, [key for key in merged if ' ' not in key]
    )
    self._phrase_lengths = self._find_phrase_lengths()
    flat = [
      t for entry_translations, _ in merged.values() for t in entry_translations
    ]
    self.texts = [t.text for t in flat]
    self.languages = [t.language for t in flat]
    self.costs = np.array(
      [word_segmentation.count_words(t.text, t.language) for t in flat],
      np.int64,
    )
    self.spaced = np.array(
      [language_codes.uses_spaces(t.language) for t in flat], bool
    )
    self._cumulative, self._last = _cumulate_probabilities(
      [
        [t.probability for t in entry_translations]
        for entry_translations, _ in merged.values()
      ]
    )
    self._codes = _CodeCache(self._resolve)

  def __len__(self) -> int:
    return len(self._entries)

  def split(self, texts: Sequence[str]) -> list[str]:
    """Splits texts into alternating separators and words.

    Args:
      texts: Texts to split, which must not contain `BORDER`.
    """
    return self._segmenter.split(word_segmentation.BORDER.join(texts))

  def find(self, parts: Sequence[str]) -> DictionaryMatch:
    """Finds the words and phrases that have translations.

    Args:
      parts: Alternating separators and words, as returned by `split`.
    """
    text_words = parts[1::2]
    codes = np.fromiter(
      map(self._codes.__getitem__, text_words), np.int64, len(text_words)
    )
    sizes = np.ones(len(text_words), np.int64)
    if self._phrase_lengths:
      self._match_phrases(parts, codes, sizes)
    is_border = codes == _BORDER_CODE
    lines = np.cumsum(is_border) - is_border
    starts = np.searchsorted(lines, np.arange(int(is_border.sum()) + 1))
    units = np.flatnonzero(codes >= 8)
    return DictionaryMatch(
      words=units,
      sizes=sizes[units],
      entries=codes[units] // 8 - 1,
      cases=codes[units] % 4,
      lines=lines,
      places=np.arange(len(text_words)) - starts[lines],
      num_words=len(text_words) - int(is_border.sum()),
    )

  def choose(self, entries: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Randomly selects one translation for each dictionary entry.

    Args:
      entries: Indices of dictionary entries in the `TranslationTable`, [n].
      uniform: Uniform random number in [0, 1) for each entry, [n].

    Returns:
      Indices of the chosen translations, [n].
    """
    chosen = np.searchsorted(self._cumulative, entries + uniform, side='right')
    return np.minimum(chosen, self._last[entries])

  def _match_phrases(self, parts, codes, sizes):
    """Finds multi-word entries in a text and updates the words' codes in place.

    The entry's first word gets the code and size of the entry, and its other
    words get the code 0.
    """
    next_word = 0
    may_start_phrase = (codes > 0) & (codes & _PHRASE_BIT > 0)
    for i in np.flatnonzero(may_start_phrase).tolist():
      if i < next_word:
        continue
      for size in self._phrase_lengths[self._fold(parts[2 * i + 1])]:
        phrase = ''.join(parts[2 * i + 1 : 2 * (i + size)])
        code = self._look_up(word_forms.normalize_word(phrase))
        if code and i + size <= len(codes):
          codes[i : i + size] = 0
          codes[i] = code
          sizes[i] = size
          next_word = i + size
          break

  def _find_phrase_lengths(self) -> dict[str, list[int]]:
    """Returns the lengths of multi-word entries, by their first word.

    For each word, the lengths are in descending order.
    """
    lengths: dict[str, set[int]] = {}
    for key in self._entries:
      key_words = self._segmenter.split(key)[1::2]
      if len(key_words) > 1:
        lengths.setdefault(self._fold(key_words[0]), set()).add(len(key_words))
    return {
      first: sorted(word_counts, reverse=True)
      for first, word_counts in lengths.items()
    }

  def _resolve(self, word: str) -> int:
    """Returns the code of a word: its dictionary entry and its letter case."""
    if word == word_segmentation.BORDER:
      return _BORDER_CODE
    key = word_forms.normalize_word(word)
    starts_phrase = self._fold(key) in self._phrase_lengths
    return self._look_up(key) + (_PHRASE_BIT if starts_phrase else 0)

  def _look_up(self, key: str) -> int:
    """Returns the code of a word or phrase, or 0 if it has no translation."""
    if key in self._entries:
      return (self._entries[key] + 1) * 8 + Case.AS_IS
    is_upper = key.isupper() and len(key) > 1
    entry = self._entries.get(word_forms.lower(key, self._language))
    if entry is None and is_upper:
      entry = self._folded.get(self._fold(key))
    if entry is None:
      return 0
    case = Case.AS_IS
    if is_upper:
      case = Case.UPPER
    elif key[:1].isupper():
      case = Case.CAPITALIZED
    return (entry + 1) * 8 + case

  def _fold(self, text: str) -> str:
    return word_forms.fold(text, self._language)


class _CodeCache(dict):
  """Cache that maps the spelling of each word to its dictionary code."""

  def __init__(self, resolve):
    super().__init__()
    self._resolve = resolve

  def __missing__(self, word: str) -> int:
    code = self._resolve(word)
    if len(self) < _MAX_CACHED_WORDS:
      self[word] = code
    return code


def _merge_entries(
  language: str, translations
) -> dict[str, tuple[list[bilingual_dictionary.Translation], int]]:
  """Merges dictionary entries whose words differ only in punctuation.

  Punctuation around a word is removed if its translation has the same
  punctuation. For example, `etc.` with `usw.` becomes `etc` with `usw`. This is
  possible because the text's punctuation is preserved.

  Returns:
    Normalized word -> its translations and its number of merged words.
  """
  pattern = word_segmentation.word_pattern(language)
  merged: dict[str, tuple[list, int]] = {}
  for word, options in translations.items():
    spans = [match.span() for match in pattern.finditer(word)]
    if not spans:
      continue
    before, after = word[: spans[0][0]].strip(), word[spans[-1][1] :].strip()
    key = word_forms.normalize_word(word[spans[0][0] : spans[-1][1]])
    stripped_options = [
      option._replace(text=_strip_punctuation(option.text, before, after))
      for option in options
    ]
    key_options, count = merged.get(key, ([], 0))
    merged[key] = key_options + stripped_options, count + 1
  return {
    key: (
      [
        option._replace(probability=option.probability / count)
        for option in key_options
      ],
      count,
    )
    for key, (key_options, count) in merged.items()
  }


def _strip_punctuation(text: str, before: str, after: str) -> str:
  """Strips punctuation from a text, unless no letter or digit would remain."""
  stripped = text.removeprefix(before).removesuffix(after).strip()
  return stripped if re.search(r'\w', stripped) else text


def _cumulate_probabilities(
  groups: Sequence[Sequence[float]],
) -> tuple[np.ndarray, np.ndarray]:
  """Returns cumulative probabilities, from which translations are drawn.

  Args:
    groups: Probabilities of each entry's translations. The translations of
      entry i have consecutive intervals between i and i + 1, each as long as
      the translation's probability.

  Returns:
    The end of each translation's interval, float64 [translations], and the
    index of each entry's last translation, int64 [entries].
  """
  sizes = np.array([len(group) for group in groups], np.int64)
  last = np.cumsum(sizes) - 1
  ends = [
    i + end
    for i, group in enumerate(groups)
    for end in itertools.accumulate(group)
  ]
  cumulative = np.array(ends, np.float64)
  # The last intervals end at integers exactly, without rounding errors.
  cumulative[last] = np.arange(1, len(groups) + 1)
  return cumulative, last
