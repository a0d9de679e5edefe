"""Finds the words of a text that a dictionary translates, fast.

`TranslationTable` holds every entry out of one language. Words of a text are
looked up by one C-level `map` over a dict that remembers how each spelling was
resolved; only words that may begin a multi-word entry cost Python steps.
"""

import enum
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from xlflax.data.corpus import language_codes, word_forms, word_segmentation
from xlflax.data.dictionaries import bilingual_dictionary

_MAX_REMEMBERED = 1 << 20
_BORDER_CODE = -1
_PHRASE_BIT = 4  # codes are (entry + 1) * 8 + starts a phrase * 4 + case


class Case(enum.IntEnum):
  """How the letters of a translation follow those of the word."""

  AS_IS = 0
  CAPITALIZED = 1
  UPPER = 2

  def apply(self, text: str, language: str) -> str:
    """Applies the case to a translation by the rules of its language.

    `CAPITALIZED` turns `rouge vif` into `Rouge vif`, and Turkish `iyi` into
    `İyi`.
    """
    if self is Case.UPPER:
      return word_forms.upper(text, language)
    if self is Case.CAPITALIZED:
      return word_forms.capitalize(text, language)
    return text


class Found(NamedTuple):
  """The units of a text that have translations, in order.

  Attributes:
    words: int64 [units], number of each unit's first word.
    sizes: int64 [units], words of each.
    entries: int64 [units], entries of the table.
    cases: int64 [units], a `Case` each.
    lines: int64 [all words], the text that each word is in; borders count to
      the text that they end.
    places: int64 [all words], number of the word in its text.
    num_words: words of all texts, borders left out.
  """

  words: np.ndarray
  sizes: np.ndarray
  entries: np.ndarray
  cases: np.ndarray
  lines: np.ndarray
  places: np.ndarray
  num_words: int


class TranslationTable:
  """The translations out of one language, numbered.

  Entries are compared by `word_forms.normalize_word`. A word is looked up as it
  is spelled, then in lower case by the rules of its language, and a word in
  capitals then in any case; the translation gets the word's capital or capitals
  then. Of several entries of several words, the longest is used.

  Attributes:
    texts: translations, each entry's in one run.
    languages: Language code of each translation.
    costs: int64 [translations], words of each.
    spaced: bool [translations], whether of a language with spaces.
    skipped: entries without a letter or digit, which are left out.
  """

  def __init__(
    self,
    language: str,
    translations: Mapping[str, Sequence[bilingual_dictionary.Translation]],
  ):
    """Makes the table.

    Args:
      language: of the words.
      translations: by word, from `dictionaries.translations`.
    """
    merged = _merge(language, translations)
    self.skipped = len(translations) - sum(n for _, n in merged.values())
    self._language = language
    self._entries = {key: i for i, key in enumerate(merged)}
    self._folded: dict[str, int] = {}
    for key, i in self._entries.items():
      self._folded.setdefault(word_forms.fold(key, language), i)
    self._segmenter = word_segmentation.Segmenter(
      language, [key for key in merged if ' ' not in key]
    )
    self._lengths = self._phrase_lengths()
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
    self._cumulative, self._last = _cumulate(
      [
        [t.probability for t in entry_translations]
        for entry_translations, _ in merged.values()
      ]
    )
    self._known = _Known(self._resolve)

  def __len__(self) -> int:
    return len(self._entries)

  def split(self, texts: Sequence[str]) -> list[str]:
    """Texts, which hold no `BORDER`, to separators and words in turn."""
    return self._segmenter.split(word_segmentation.BORDER.join(texts))

  def find(self, parts: Sequence[str]) -> Found:
    """The units of `parts`, from `split`, that have translations."""
    text_words = parts[1::2]
    codes = np.fromiter(
      map(self._known.__getitem__, text_words), np.int64, len(text_words)
    )
    sizes = np.ones(len(text_words), np.int64)
    if self._lengths:
      self._match_phrases(parts, codes, sizes)
    is_border = codes == _BORDER_CODE
    lines = np.cumsum(is_border) - is_border
    starts = np.searchsorted(lines, np.arange(int(is_border.sum()) + 1))
    units = np.flatnonzero(codes >= 8)
    return Found(
      words=units,
      sizes=sizes[units],
      entries=codes[units] // 8 - 1,
      cases=codes[units] % 4,
      lines=lines,
      places=np.arange(len(text_words)) - starts[lines],
      num_words=len(text_words) - int(is_border.sum()),
    )

  def choose(self, entries: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Numbers of translations of `entries` [n], by draws from [0, 1) [n]."""
    chosen = np.searchsorted(self._cumulative, entries + uniform, side='right')
    return np.minimum(chosen, self._last[entries])

  def _match_phrases(self, parts, codes, sizes):
    """Joins the words of multi-word entries: one code, the others 0."""
    free = 0
    for i in np.flatnonzero((codes > 0) & (codes & _PHRASE_BIT > 0)).tolist():
      if i < free:
        continue
      for size in self._lengths[self._fold(parts[2 * i + 1])]:
        code = self._look_up(
          word_forms.normalize_word(''.join(parts[2 * i + 1 : 2 * (i + size)]))
        )
        if code and i + size <= len(codes):
          codes[i : i + size] = 0
          codes[i], sizes[i], free = code, size, i + size
          break

  def _phrase_lengths(self) -> dict[str, list[int]]:
    """First word of multi-word entries -> their numbers of words, falling."""
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
    """The code of a single word."""
    if word == word_segmentation.BORDER:
      return _BORDER_CODE
    key = word_forms.normalize_word(word)
    starts = self._fold(key) in self._lengths
    return self._look_up(key) + (_PHRASE_BIT if starts else 0)

  def _look_up(self, key: str) -> int:
    """The code of an entry of any number of words; 0 where there is none."""
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


class _Known(dict):
  """Codes by spelling; resolves and remembers what is new."""

  def __init__(self, resolve):
    super().__init__()
    self._resolve = resolve

  def __missing__(self, word: str) -> int:
    code = self._resolve(word)
    if len(self) < _MAX_REMEMBERED:
      self[word] = code
    return code


def _merge(language: str, translations) -> dict[str, tuple[list, int]]:
  """Key -> its translations and how many words of the dictionary it stands for.

  Punctuation around a word is left out, and the same around its translation:
  `etc.` with `usw.` becomes `etc` with `usw`, since the text's own stays.
  """
  pattern = word_segmentation.word_pattern(language)
  merged: dict[str, tuple[list, int]] = {}
  for word, options in translations.items():
    spans = [match.span() for match in pattern.finditer(word)]
    if not spans:
      continue
    before, after = word[: spans[0][0]].strip(), word[spans[-1][1] :].strip()
    key = word_forms.normalize_word(word[spans[0][0] : spans[-1][1]])
    bare = [t._replace(text=_strip(t.text, before, after)) for t in options]
    options_of_key, count = merged.get(key, ([], 0))
    merged[key] = options_of_key + bare, count + 1
  return {
    key: (
      [t._replace(probability=t.probability / n) for t in options_of_key],
      n,
    )
    for key, (options_of_key, n) in merged.items()
  }


def _strip(text: str, before: str, after: str) -> str:
  """`text` without the edges, if something with a letter is left."""
  bare = text.removeprefix(before).removesuffix(after).strip()
  return bare if re.search(r'\w', bare) else text


def _cumulate(
  groups: Sequence[Sequence[float]],
) -> tuple[np.ndarray, np.ndarray]:
  """Upper ends of the translations' intervals; entry i has i .. i + 1."""
  sizes = np.array([len(group) for group in groups], np.int64)
  last = np.cumsum(sizes) - 1
  ends = [
    i + end
    for i, group in enumerate(groups)
    for end in itertools.accumulate(group)
  ]
  cumulative = np.array(ends, np.float64)
  cumulative[last] = np.arange(1, len(groups) + 1)  # not a rounding less
  return cumulative, last
