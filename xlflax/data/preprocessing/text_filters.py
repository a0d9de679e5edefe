"""Filters for lines and sentence pairs of web text.

Lines are filtered by their letters, lengths, scripts and languages. Pairs are
also filtered by the length ratio and the similarity between source and target.
The scripts of characters are provided by fontTools (extra `web`), and the
scripts of languages by `language_codes`.
"""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Annotated, Any

import annotated_types

from xlflax.data.corpus import (
  language_codes,
  text_encoding,
  text_length,
  text_similarity,
)
from xlflax.data.preprocessing import language_id, markup
from xlflax.data.preprocessing.language_id import Prior
from xlflax.utils import errors, validation

# Map from ISO 15924 codes that Unicode does not assign to characters (scripts
# of several scripts, and variants of a script) to the scripts of the characters.
_UNICODE_SCRIPTS = {
  'Aran': {'Arab'},
  'Cyrs': {'Cyrl'},
  'Geok': {'Geor'},
  'Hanb': {'Bopo', 'Hani'},
  'Hans': {'Hani'},
  'Hant': {'Hani'},
  'Hrkt': {'Hira', 'Kana'},
  'Jamo': {'Hang'},
  'Jpan': {'Hani', 'Hira', 'Kana'},
  'Kore': {'Hang', 'Hani'},
  'Latf': {'Latn'},
  'Latg': {'Latn'},
  'Qaag': {'Mymr'},
  'Syre': {'Syrc'},
  'Syrj': {'Syrc'},
  'Syrn': {'Syrc'},
}
# Scripts of digits, punctuation marks and combining marks.
_NO_SCRIPT = {'Zyyy', 'Zinh', 'Zzzz'}


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFilters:
  """Requirements that each line, or both texts of a pair, must meet.

  Attributes:
    min_letters: Minimum number of letters in a line. Lines with fewer letters,
      such as numbers, are dropped. If 0, there is no minimum.
    max_similarity: Maximum similarity between source and target, measured as
      the fraction of common character trigrams
      (`text_similarity.ngram_similarity`). More similar pairs were probably not
      translated and are dropped. Varieties of the same language, such as en and
      en_GB, are not compared. If 1, no pairs are compared.
    min_characters: Minimum length of a line in Latin characters. A character in
      a different script counts as the number of Latin characters that carry the
      same amount of text (`text_length.latin_length`).
    max_characters: Maximum length of a line in Latin characters. If None, there
      is no maximum.
    min_script_share: Minimum fraction of a line's letters that belong to the
      scripts of its language. As in all length rules, each letter counts as the
      number of Latin letters that carry the same amount of text
      (`text_length`). For a code with a script (`sr_Latn`), only this script is
      accepted. For other codes, all scripts in which the language is commonly
      written are accepted.
    min_language_probability: Minimum probability that a line is in its file's
      language, given all languages in the file
      (`language_id.expected_languages`). Lines in a language that the
      identifier does not support are kept. If 0, there is no minimum.
    max_ratio: Maximum ratio between the lengths of source and target, in Latin
      characters. If None, there is no maximum.
    drop_code: Whether to drop lines that contain JavaScript, a CSS rule or a
      JSON object (`markup.is_code`).
    drop_wrong_encoding: Whether to drop lines with characters that result from
      a wrong encoding (`text_encoding.find_wrong_characters`).
  """

  min_letters: validation.NonNegativeInt = 1
  max_similarity: validation.Fraction = text_similarity.COPIED
  min_characters: validation.NonNegativeInt = 0
  max_characters: validation.PositiveInt | None = None
  min_script_share: validation.Fraction = 0.0
  min_language_probability: validation.Fraction = 0.0
  max_ratio: Annotated[float, annotated_types.Ge(1)] | None = None
  drop_code: bool = False
  drop_wrong_encoding: bool = False

  def __post_init__(self):
    max_characters = self.max_characters
    if max_characters is not None and max_characters < self.min_characters:
      raise errors.ConfigError(
        '`TextFilters.max_characters` must be at least '
        f'`TextFilters.min_characters` ({self.min_characters})',
        got=max_characters,
      )

  @property
  def does_nothing(self) -> bool:
    """True if the filters do not drop any line."""
    return self == TextFilters(min_letters=0, max_similarity=1)


def find_drop_reason(
  texts: Sequence[str],
  languages: Sequence[str],
  filters: TextFilters,
  priors: Sequence[Prior | None] | None = None,
) -> str | None:
  """Returns the reason to drop a line or a pair, or None to keep it.

  For example, with `min_script_share=0.5`, `('привет мир',)` in `('en',)` is
  dropped for 'another script'. With `max_ratio=3`, `('yes', 'that is so, I
  think')` is dropped for 'unequal lengths'.

  Args:
    texts: Text of the line, or source and target of the pair.
    languages: Languages of the texts.
    filters: Requirements that the texts must meet.
    priors: Prior distribution over languages for each text, or None for a
      language that the language identifier does not support. By default, the
      priors depend only on the languages.

  Returns:
    A short description of the violated requirement, or None if the texts meet
    all requirements.
  """
  if not all(_has_letters(text, filters.min_letters) for text in texts):
    return 'no letters' if filters.min_letters == 1 else 'few letters'
  if filters.drop_code and any(map(markup.is_code, texts)):
    return 'code'
  if filters.drop_wrong_encoding and any(
    map(text_encoding.find_wrong_characters, texts)
  ):
    return 'wrong encoding'
  lengths = [text_length.latin_length(text) for text in texts]
  if min(lengths) < filters.min_characters:
    return 'too short'
  if filters.max_characters and max(lengths) > filters.max_characters:
    return 'too long'
  if filters.max_ratio and max(lengths) > filters.max_ratio * min(lengths):
    return 'unequal lengths'
  copy_reason = _find_copy_reason(texts, languages, filters.max_similarity)
  if copy_reason:
    return copy_reason

  min_share = filters.min_script_share
  if min_share:
    for text, language in zip(texts, languages, strict=True):
      if script_share(text, language) < min_share:
        return 'another script'

  min_probability = filters.min_language_probability
  if min_probability:
    priors = priors or list(map(language_id.name_prior, languages))
    for text, prior in zip(texts, priors, strict=True):
      if prior and not prior.accepts(text, min_probability):
        return 'another language'
  return None


def _has_letters(text: str, min_letters: int) -> bool:
  letters = filter(str.isalpha, text)
  return len(list(itertools.islice(letters, min_letters))) == min_letters


def _find_copy_reason(texts, languages, max_similarity: float) -> str | None:
  """Returns the reason to drop a pair whose texts are too similar, or None."""
  short_codes = set(map(language_codes.short_code, languages))
  if max_similarity == 1 or len(short_codes) < 2:
    return None
  similarity = text_similarity.ngram_similarity(*texts)
  if similarity == 1:
    return 'equal sides'
  return 'nearly equal sides' if similarity > max_similarity else None


def script_share(text: str, language: str) -> float:
  """Returns the fraction of letters that belong to a language's scripts.

  Each letter counts as the number of Latin letters that carry the same amount
  of text (`text_length`). The fraction is 1 if the text has no letters.
  """
  get_script = _script_function()
  weights: dict[str, float] = collections.defaultdict(float)
  for character in text:
    weights[get_script(character)] += text_length.WEIGHTS[character]
  for script in _NO_SCRIPT:
    weights.pop(script, None)
  total = sum(weights.values())
  weight_in_scripts = sum(
    weights[script] for script in scripts_of_language(language)
  )
  return weight_in_scripts / total if total else 1.0


@functools.cache
def scripts_of_language(language: str) -> frozenset[str]:
  """Returns the ISO 15924 codes of the Unicode scripts that a language uses.

  For example, the scripts of `zh_Hans` are {'Hani'}, and the scripts of `ja`
  are {'Hani', 'Hira', 'Kana'}.

  Raises:
    CorpusError: If no script of the language is known.
  """
  scripts = language_codes.parse_language_code(language).scripts
  if not scripts:
    raise errors.CorpusError(
      'The script of a language is unknown. The language code must contain a '
      'script, such as sr_Cyrl',
      got=language,
      fix='Rename the files in this language, or remove --min_script_share.',
    )
  return frozenset().union(
    *(_UNICODE_SCRIPTS.get(script, {script}) for script in scripts)
  )


@functools.cache
def _script_function() -> Any:
  """Returns a cached function that maps a character to its script."""
  return functools.cache(
    language_id.import_filter_package(
      'fontTools.unicodedata', 'fonttools'
    ).script
  )
