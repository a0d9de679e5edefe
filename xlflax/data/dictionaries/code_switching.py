"""Dictionary code-switching: the "extra anchors" of ECS, section 4.2.

Each word that a dictionary has is replaced with probability 0.3 by one of its
translations, and at most 15 % of the words of a batch are. Source: Wu, Conneau
et al., "Emerging Cross-lingual Structure in Pretrained Language Models"
(2020), section 4.2.

Every draw is a hash of (seed, name of the task, number of the example, number
of the word), so a text is switched alike by every reader, in any order of its
parts and any number of processes.
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
  Found,
  TranslationTable,
)
from xlflax.data.sampling import hashing
from xlflax.utils import errors, validation

STEP = 'code_switch'  # name of the preprocessor, in fingerprints
_VERSION = 2  # of the switching; another one makes caches stale
_DRAWS = 3  # random words of a unit: replaced? by what? rank under the cap


class Switched(NamedTuple):
  """Lines after switching, and counts.

  Attributes:
    lines: as many as there were.
    words: of the lines before.
    candidates: words, and multi-word units, that have an entry.
    changed: words that were replaced.
  """

  lines: list[str]
  words: int
  candidates: int
  changed: int


class Switcher:
  """Switches the text of one language.

  With the dictionary `cat Katze` and a probability and a share of 1, before:
  `['The cat sees a Cat.', 'CAT!']`; after:
  `['The Katze sees a Katze.', 'KATZE!']`.
  """

  @validation.validate_call
  def __init__(
    self,
    language: str,
    dictionaries: Iterable[Dictionary],
    settings: CodeSwitching = CodeSwitching(),  # noqa: B008
  ):
    """Makes a switcher.

    Args:
      language: of the text.
      dictionaries: those of other languages are passed over.
      settings: see `CodeSwitching`.

    Raises:
      CorpusError: no dictionary has an entry out of the language.
      ConfigError: Chinese text, and jieba is not installed.
    """
    self.language, self.settings = language, settings
    self._translations = bilingual_dictionary.translations_by_word(
      language, dictionaries, into=settings.languages
    )
    self.table = TranslationTable(language, self._translations)
    if not self.table:
      into = settings.languages
      raise errors.CorpusError(
        f'No dictionary translates words of {language}'
        + (f' into {", ".join(into)}' if into is not None else ''),
        expected=f'dictionaries/{language}-<other>.tsv, or the other way '
        'round, with entries',
      )
    self._max_share = fractions.Fraction(
      str(settings.max_share)
    ).limit_denominator(10**6)
    self._is_unsegmented = not language_codes.uses_spaces(language)

  def switch(
    self, lines: Sequence[str], *, name: str = '', first: int = 0
  ) -> Switched:
    """Switches consecutive examples of a task.

    Args:
      lines: their texts.
      name: of the task; another one, other draws.
      first: number of the first example; a group begins there.
    """
    size = self.settings.group_lines
    assert first % size == 0, 'groups begin at multiples of group_lines'
    groups = [
      self._switch_group(lines[i : i + size], name, first + i)
      for i in range(0, len(lines), size)
    ]
    return (
      Switched(
        [line for group in groups for line in group.lines],
        *(
          sum(counts)
          for counts in zip(*(group[1:] for group in groups), strict=True)
        ),
      )
      if groups
      else Switched([], 0, 0, 0)
    )

  def fingerprint(self) -> dict:
    """What the switched text depends on besides the text, as JSON data."""
    out = dataclasses.asdict(self.settings) | {
      'version': _VERSION,
      'dictionaries': _hash(self.language, self._translations),
    }
    if language_codes.parse_language_code(self.language).is_chinese:
      out['jieba'] = word_segmentation.chinese_version()
    elif self._is_unsegmented:
      out['icu4py'] = word_segmentation.icu_version()
    return json.loads(json.dumps(out))

  def _switch_group(self, lines, name: str, first: int) -> Switched:
    parts = self.table.split(
      [line.replace(BORDER, ' ') if BORDER in line else line for line in lines]
    )
    matches = self.table.find(parts)
    draws = self._draws(matches, name, first)
    chosen = np.flatnonzero(draws[0] < self.settings.probability)
    new = self.table.choose(matches.entries[chosen], draws[1][chosen])
    sizes = matches.sizes[chosen]
    is_kept = _under_cap(
      sizes,
      self.table.costs[new],
      draws[2][chosen],
      share=self._max_share,
      num_words=matches.num_words,
    )
    self._replace(parts, matches, chosen[is_kept], new[is_kept])
    return Switched(
      ''.join(parts).split(BORDER),
      matches.num_words,
      matches.words.size,
      int(sizes[is_kept].sum()),
    )

  def _draws(self, found: Found, name: str, first: int) -> np.ndarray:
    """Numbers in [0, 1), float64 [_DRAWS, units]."""
    key = hashing.make_key(self.settings.seed, 'code_switching', name)
    examples = hashing.draw_words(key, first + found.lines[found.words])
    counters = found.places[found.words] * _DRAWS
    random_words = [
      hashing.draw_words(examples, counters + i) for i in range(_DRAWS)
    ]
    return (np.stack(random_words) >> np.uint64(11)) * 2.0**-53

  def _replace(
    self, parts: list[str], found: Found, units: np.ndarray, new: np.ndarray
  ) -> None:
    """Puts translations `new` [n] in the place of `units` [n]."""
    for word, size, case, number in zip(
      found.words[units].tolist(),
      found.sizes[units].tolist(),
      found.cases[units].tolist(),
      new.tolist(),
      strict=True,
    ):
      text, end = self.table.texts[number], 2 * (word + size)
      language = self.table.languages[number]
      parts[2 * word + 1] = Case(case).apply(text, language) if case else text
      if size > 1:
        parts[2 * word + 2 : end] = [''] * (2 * size - 2)
      if self._is_unsegmented and self.table.spaced[number]:
        _put_spaces(parts, 2 * word, end)


def dictionary_hash(
  language: str,
  dictionaries: Iterable[Dictionary],
  *,
  into: Sequence[str] | None = None,
) -> str:
  """`dictionaries` in the fingerprint of a switcher of these."""
  return _hash(
    language,
    bilingual_dictionary.translations_by_word(
      language, dictionaries, into=into
    ),
  )


def _hash(language: str, translations) -> str:
  content = json.dumps([language, translations], ensure_ascii=False)
  return hashlib.sha256(content.encode()).hexdigest()


def _under_cap(
  old: np.ndarray,
  new: np.ndarray,
  ranks: np.ndarray,
  *,
  share: fractions.Fraction,
  num_words: int,
) -> np.ndarray:
  """Which replacements to keep: the first in the order of `ranks` that fit.

  With S the replaced and T the new words of the kept ones, W all words and c
  the share: S <= c W, and T <= c (W - S + T).

  Args:
    old: words that each replaces, int64 [n].
    new: words that come instead, int64 [n].
    ranks: random numbers, [n].
    share: c.
    num_words: W.

  Returns:
    bool [n].
  """
  part, denominator = share.numerator, share.denominator
  order = np.argsort(ranks, kind='stable')
  replaced, added = np.cumsum(old[order]), np.cumsum(new[order])
  limit = part * num_words
  fits = (denominator * replaced <= limit) & (
    (denominator - part) * added + part * replaced <= limit
  )
  is_kept = np.zeros(old.size, bool)
  is_kept[order[fits]] = True
  return is_kept


def _put_spaces(parts: list[str], before: int, after: int) -> None:
  """Makes empty separators spaces, except at the ends of a line."""
  if not parts[before] and before and parts[before - 1] != BORDER:
    parts[before] = ' '
  if not parts[after] and after + 1 < len(parts) and parts[after + 1] != BORDER:
    parts[after] = ' '
