"""Filters of web text.

Lines are dropped by their letters, lengths, scripts and languages, pairs also by
the ratio of their lengths and the similarity of their sides. Scripts of characters come from fontTools, those of
languages from `language_codes`. fontTools is in the extra `web`.
"""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Annotated, Any

import annotated_types

from xlflax.data.corpus import language_codes, text_length, text_similarity
from xlflax.data.preprocessing import language_id
from xlflax.data.preprocessing.language_id import Prior
from xlflax.utils import errors, validation

# What Unicode calls scripts of Chinese, Japanese and Korean, by their codes.
_JOINT = {
  'Jpan': {'Hani', 'Hira', 'Kana'},
  'Kore': {'Hang', 'Hani'},
  'Hans': {'Hani'},
  'Hant': {'Hani'},
}
_NO_SCRIPT = {'Zyyy', 'Zinh', 'Zzzz'}  # digits, punctuation, marks


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFilters:
  """What a line must be to be kept; each side of a pair by itself.

  Attributes:
    min_letters: lines with fewer, such as numbers, are dropped; 0: none are.
    max_similarity: pairs whose sides are equal, or more alike than this, were
      not translated and are dropped: the share of character trigrams that the
      sides have in common (`text_similarity.ngram_similarity`). Two varieties of one
      language, such as en and en_GB, are not compared; 1: no pair is.
    min_characters: Minimum length of a line in Latin characters; a character
      of another script counts as many as carry the same amount of text
      (`text_length.latin_length`).
    max_characters: Maximum length of a line in the same unit. If None, there is
      no maximum.
    min_script_share: Minimum fraction of the letters of a line that belong to
      the scripts of its language, weighted by the text that they carry. A code
      with a script (`sr_Latn`) has this script alone; without one, all scripts
      are accepted that the language is commonly written in.
    min_language_probability: that the line is of its language, given what
      the languages of its file are (`language_id.expected_languages`). Lines of a language
      that the identifier does not know are not judged; 0: none are.
    max_ratio: Maximum ratio of the lengths of the two sides of a pair, in Latin
      characters. If None, there is no maximum.
  """

  min_letters: validation.NonNegativeInt = 1
  max_similarity: validation.Fraction = text_similarity.COPIED
  min_characters: validation.NonNegativeInt = 0
  max_characters: validation.PositiveInt | None = None
  min_script_share: validation.Fraction = 0.0
  min_language_probability: validation.Fraction = 0.0
  max_ratio: Annotated[float, annotated_types.Ge(1)] | None = None

  def __post_init__(self):
    max_characters = self.max_characters
    if max_characters is not None and max_characters < self.min_characters:
      raise errors.ConfigError(
        'TextFilters would keep no line',
        got=f'min_characters={self.min_characters}, max_characters={max_characters}',
        expected='max_characters of at least min_characters',
      )

  @property
  def does_nothing(self) -> bool:
    """Whether every line is kept."""
    return self == TextFilters(min_letters=0, max_similarity=1)


def find_drop_reason(
  texts: Sequence[str],
  languages: Sequence[str],
  filters: TextFilters,
  priors: Sequence[Prior | None] | None = None,
) -> str | None:
  """Why a line, or a pair, is dropped; None: it is kept.

  With `min_script_share=0.5`, `('привет мир',)` of `('en',)` is dropped for
  'another script'; with `max_ratio=3`, `('yes', 'that is so, I think')` for
  'unequal lengths'.

  Args:
    texts: the line, or the two sides of a pair.
    languages: of these.
    filters: what is asked of them.
    priors: which languages are expected of each, None where the identifier
      does not know its language; by default what the languages' names say.
  """
  if not all(_has_letters(text, filters.min_letters) for text in texts):
    return 'no letters' if filters.min_letters == 1 else 'few letters'
  lengths = [text_length.latin_length(text) for text in texts]
  if min(lengths) < filters.min_characters:
    return 'too short'
  if filters.max_characters and max(lengths) > filters.max_characters:
    return 'too long'
  if filters.max_ratio and max(lengths) > filters.max_ratio * min(lengths):
    return 'unequal lengths'
  if why := _copied(texts, languages, filters.max_similarity):
    return why
  sides = list(zip(texts, languages, strict=True))
  threshold = filters.min_script_share
  if threshold and any(script_share(*side) < threshold for side in sides):
    return 'another script'
  threshold = filters.min_language_probability
  if threshold:
    priors = priors or list(map(language_id.of_name, languages))
    for text, prior in zip(texts, priors, strict=True):
      if prior and not prior.accepts(text, threshold):
        return 'another language'
  return None


def _has_letters(text: str, least: int) -> bool:
  letters = filter(str.isalpha, text)
  return len(list(itertools.islice(letters, least))) == least


def _copied(texts, languages, most: float) -> str | None:
  """Whether one side of a pair is the other, rather than its translation."""
  if most == 1 or len(set(map(language_codes.short_code, languages))) < 2:
    return None
  similarity = text_similarity.ngram_similarity(*texts)
  if similarity == 1:
    return 'equal sides'
  return 'nearly equal sides' if similarity > most else None


def script_share(text: str, language: str) -> float:
  """Share of the letters that are of a language's scripts; 1 without any."""
  scripts: dict[str, float] = collections.defaultdict(float)
  for character in text:
    scripts[_script_of()(character)] += text_length.WEIGHTS[character]
  for name in _NO_SCRIPT:
    scripts.pop(name, None)
  letters = sum(scripts.values())
  num_in_script = sum(scripts[name] for name in scripts_of(language))
  return num_in_script / letters if letters else 1.0


@functools.cache
def scripts_of(language: str) -> frozenset[str]:
  """The scripts of a language: ISO 15924 codes, as Unicode has them.

  Those of `zh_Hans` are {'Hani'}, of `ja` {'Hani', 'Hira', 'Kana'}.

  Raises:
    CorpusError: If no script of the language is known.
  """
  scripts = language_codes.parse_language_code(language).scripts
  if not scripts:
    raise errors.CorpusError(
      'The script of a language is not known',
      got=language,
      expected='a language with a script, such as sr_Cyrl',
      fix='rename its files, or leave out --min_script_share',
    )
  return frozenset().union(*(_JOINT.get(name, {name}) for name in scripts))


@functools.cache
def _script_of() -> Any:
  return functools.cache(
    language_id.import_filter_package(
      'fontTools.unicodedata', 'fonttools'
    ).script
  )
