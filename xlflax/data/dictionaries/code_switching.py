"""Code-switching of text with bilingual dictionaries.

By default, each word with a dictionary entry is replaced with probability 0.3
by one of its translations, and at most 15 % of the words in a batch are
replaced. These are the "extra anchors" of ECS. Source: Wu, Conneau et al.,
"Emerging Cross-lingual Structure in Pretrained Language Models" (2020), section
4.2.

Each random draw is a hash of (seed, task name, example number, word number).
Every reader therefore switches a text identically, regardless of the number of
processes and the order in which they read.
"""

import dataclasses
import fractions
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from xlflax.data.corpus import language_codes, word_segmentation
from xlflax.data.corpus.word_segmentation import BORDER
from xlflax.data.dictionaries import bilingual_dictionary
from xlflax.data.dictionaries.bilingual_dictionary import Dictionary
from xlflax.data.dictionaries.code_switching_config import CodeSwitching
from xlflax.data.dictionaries.dictionary_matcher import (
  Case,
  DictionaryMatch,
  TranslationTable,
)
from xlflax.data.sampling import hashing
from xlflax.utils import errors, validation

STEP = 'code_switch'  # Name of the preprocessor in fingerprints.
_VERSION = 2  # Version of the algorithm. Changing it makes caches stale.
# Number of random numbers per unit: for the replacement, for the choice of the
# translation, and for the rank under the limit.
_NUM_DRAWS = 3


class Switched(NamedTuple):
  """Code-switched lines and their statistics.

  Attributes:
    lines: Code-switched lines, in the order of the input.
    words: Number of words in the lines before code-switching.
    candidates: Number of words and phrases with a dictionary entry.
    changed: Number of words that were replaced by translations.
  """

  lines: list[str]
  words: int
  candidates: int
  changed: int


class Switcher:
  """Code-switcher for text in one language.

  For example, with the dictionary `cat Katze`, a probability of 1 and a maximum
  fraction of 1, `['The cat sees a Cat.', 'CAT!']` becomes `['The Katze sees a
  Katze.', 'KATZE!']`.
  """

  @validation.validate_call
  def __init__(
    self,
    language: str,
    dictionaries: Iterable[Dictionary],
    settings: CodeSwitching = CodeSwitching(),  # noqa: B008
  ):
    """Creates a switcher.

    Args:
      language: Language code of the text.
      dictionaries: Dictionaries that contain the language. All other
        dictionaries are ignored.
      settings: Settings for code-switching.

    Raises:
      CorpusError: If no dictionary translates words in the language.
      ConfigError: If the language is Chinese and jieba is not installed.
    """
    self.language, self.settings = language, settings
    self._translations = bilingual_dictionary.translations_by_word(
      language, dictionaries, into=settings.languages
    )
    self.table = TranslationTable(language, self._translations)
    if not self.table:
      targets = (
        'other languages'
        if settings.languages is None
        else ', '.join(settings.languages)
      )
      raise errors.CorpusError(
        f'No dictionary translates words in {language} into {targets}',
        fix='Add a dictionary with entries, such as '
        f'dictionaries/{language}-<other>.tsv or '
        f'dictionaries/<other>-{language}.tsv.',
      )
    self._max_fraction = fractions.Fraction(
      str(settings.max_replaced_ratio)
    ).limit_denominator(10**6)
    self._is_unsegmented = not language_codes.uses_spaces(language)

  def switch(
    self, lines: Sequence[str], *, name: str = '', first: int = 0
  ) -> Switched:
    """Code-switches consecutive examples of a task.

    Args:
      lines: Texts of the examples to switch.
      name: Name of the task. The random draws differ between tasks with
        different names.
      first: Index in the task of the first example in `lines`. It must be a
        multiple of `group_lines`.
    """
    size = self.settings.group_lines
    assert first % size == 0, '`first` must be a multiple of `group_lines`.'
    groups = [
      self._switch_group(lines[i : i + size], name, first + i)
      for i in range(0, len(lines), size)
    ]
    return Switched(
      lines=[line for group in groups for line in group.lines],
      words=sum(group.words for group in groups),
      candidates=sum(group.candidates for group in groups),
      changed=sum(group.changed for group in groups),
    )

  def fingerprint(self) -> dict:
    """Returns JSON data that determines how a text is code-switched.

    The data consists of the settings, a hash of the dictionaries, and the
    version of the word segmenter if one is used.
    """
    fingerprint = dataclasses.asdict(self.settings) | {
      'version': _VERSION,
      'dictionaries': _hash_translations(self.language, self._translations),
    }
    if language_codes.parse_language_code(self.language).is_chinese:
      fingerprint['jieba'] = word_segmentation.chinese_version()
    elif self._is_unsegmented:
      fingerprint['icu4py'] = word_segmentation.icu_version()
    return json.loads(json.dumps(fingerprint))

  def _switch_group(self, lines, name: str, first: int) -> Switched:
    """Code-switches one group of lines."""
    parts = self.table.split(
      [line.replace(BORDER, ' ') if BORDER in line else line for line in lines]
    )
    matches = self.table.find(parts)
    draws = self._draw(matches, name, first)
    chosen = np.flatnonzero(draws[0] < self.settings.probability)
    translations = self.table.choose(matches.entries[chosen], draws[1][chosen])
    sizes = matches.sizes[chosen]
    is_kept = _select_under_limit(
      sizes,
      self.table.costs[translations],
      draws[2][chosen],
      max_fraction=self._max_fraction,
      num_words=matches.num_words,
    )
    self._replace(parts, matches, chosen[is_kept], translations[is_kept])
    return Switched(
      lines=''.join(parts).split(BORDER),
      words=matches.num_words,
      candidates=matches.words.size,
      changed=int(sizes[is_kept].sum()),
    )

  def _draw(
    self, matches: DictionaryMatch, name: str, first: int
  ) -> np.ndarray:
    """Draws random numbers in [0, 1) for each replaceable word or phrase.

    Args:
      matches: Words and phrases of the text that have translations.
      name: Name of the task.
      first: Index of the group's first example among all examples of the task.

    Returns:
      Random numbers, float64 [_NUM_DRAWS, units].
    """
    key = hashing.make_key(self.settings.seed, 'code_switching', name)
    examples = hashing.draw_words(key, first + matches.lines[matches.words])
    counters = matches.places[matches.words] * _NUM_DRAWS
    random_words = [
      hashing.draw_words(examples, counters + i) for i in range(_NUM_DRAWS)
    ]
    return (np.stack(random_words) >> np.uint64(11)) * 2.0**-53

  def _replace(
    self,
    parts: list[str],
    matches: DictionaryMatch,
    units: np.ndarray,
    translations: np.ndarray,
  ) -> None:
    """Replaces words and phrases with translations in place.

    Args:
      parts: Alternating separators and words, as returned by
        `TranslationTable.split`.
      matches: Words and phrases of the text that have translations.
      units: Words and phrases to replace, as indices into `matches`, [n].
      translations: Translation of each replaced word or phrase, as an index
        into the `TranslationTable`, [n].
    """
    for word, size, case, number in zip(
      matches.words[units].tolist(),
      matches.sizes[units].tolist(),
      matches.cases[units].tolist(),
      translations.tolist(),
      strict=True,
    ):
      text = self.table.texts[number]
      language = self.table.languages[number]
      end = 2 * (word + size)
      parts[2 * word + 1] = Case(case).apply(text, language) if case else text
      if size > 1:
        parts[2 * word + 2 : end] = [''] * (2 * size - 2)
      if self._is_unsegmented and self.table.spaced[number]:
        _insert_spaces(parts, 2 * word, end)


def dictionary_hash(
  language: str,
  dictionaries: Iterable[Dictionary],
  *,
  into: Sequence[str] | None = None,
) -> str:
  """Returns a hash of the translations that a code-switcher uses.

  Args:
    language: Language code of the text.
    dictionaries: Dictionaries that the switcher uses.
    into: Languages into which words are translated. If None, all languages are
      used.
  """
  return _hash_translations(
    language,
    bilingual_dictionary.translations_by_word(
      language, dictionaries, into=into
    ),
  )


def _hash_translations(language: str, translations) -> str:
  """Returns the SHA-256 of the translations of a language."""
  content = json.dumps([language, translations], ensure_ascii=False)
  return hashlib.sha256(content.encode()).hexdigest()


def _select_under_limit(
  old_sizes: np.ndarray,
  new_sizes: np.ndarray,
  ranks: np.ndarray,
  *,
  max_fraction: fractions.Fraction,
  num_words: int,
) -> np.ndarray:
  """Selects random replacements up to the maximum fraction of words.

  The first replacements in the order of `ranks` are selected. Let W be the
  total number of words, S the number of words that the selected replacements
  replace, T the number of words in their translations, and c the maximum
  fraction. The limits are S <= c W and T <= c (W - S + T).

  Args:
    old_sizes: Number of words that each replacement removes, int64 [n].
    new_sizes: Number of words that each replacement inserts, int64 [n].
    ranks: Random number of each replacement, [n]. Replacements with the
      smallest numbers are kept.
    max_fraction: Maximum fraction c of replaced words.
    num_words: Number W of words in the text.

  Returns:
    Whether each replacement is selected, bool [n].
  """
  # The limit is compared in integers, which is exact.
  numerator, denominator = max_fraction.numerator, max_fraction.denominator
  order = np.argsort(ranks, kind='stable')
  replaced = np.cumsum(old_sizes[order])
  added = np.cumsum(new_sizes[order])
  limit = numerator * num_words
  fits = (denominator * replaced <= limit) & (
    (denominator - numerator) * added + numerator * replaced <= limit
  )
  is_kept = np.zeros(old_sizes.size, bool)
  is_kept[order[fits]] = True
  return is_kept


def _insert_spaces(parts: list[str], before: int, after: int) -> None:
  """Replaces empty separators with spaces, except at the ends of a line.

  Args:
    parts: Alternating separators and words.
    before: Index of the separator before the translation.
    after: Index of the separator after the translation.
  """
  if not parts[before] and before and parts[before - 1] != BORDER:
    parts[before] = ' '
  if not parts[after] and after + 1 < len(parts) and parts[after + 1] != BORDER:
    parts[after] = ' '
