"""Typological properties of synthetic languages, and predefined languages."""

import dataclasses
import enum
import re
from collections.abc import Iterable, Sequence
from typing import Any

from studies.synthetic.scripts import Script
from xlflax.data.corpus import corpus_files
from xlflax.utils import errors


class WordOrder(enum.Enum):
  """Order of subject (S), verb (V) and object (O)."""

  SVO = 'svo'
  SOV = 'sov'
  VSO = 'vso'


class Side(enum.Enum):
  """Position of a modifier relative to its head."""

  BEFORE = 'before'
  AFTER = 'after'


class Morphology(enum.Enum):
  """Morphological marking of tense, case and number.

  Isolating languages use particles and word order. Suffixing and prefixing
  languages add affixes to verbs (tense) and nouns (object case, plural).
  In languages with agreement, adjectives have the same suffixes as their noun,
  and verbs mark plural subjects.
  """

  ISOLATING = 'isolating'
  SUFFIXING = 'suffixing'
  PREFIXING = 'prefixing'
  AGREEING = 'agreeing'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Language:
  """Typological properties of a language.

  Enum members can be given by their values.

  Attributes:
    code: Language code.
    script: Script of the language.
    word_order: Order of subject, verb and object.
    adjective: Position of adjectives relative to the noun.
    adposition: Position of adpositions relative to the noun: before
      (prepositions) or after (postpositions). Possessors and relative clauses
      follow the noun in languages with prepositions, and precede it in
      languages with postpositions.
    determiner: Position of determiners and numerals relative to the noun.
    morphology: Morphological marking of tense, case and number.

  Raises:
    ConfigError: If the code is malformed or a value is unknown.
  """

  code: str
  script: Script = Script.LATIN
  word_order: WordOrder = WordOrder.SVO
  adjective: Side = Side.BEFORE
  adposition: Side = Side.BEFORE
  determiner: Side = Side.BEFORE
  morphology: Morphology = Morphology.ISOLATING

  def __post_init__(self):
    if not re.fullmatch(corpus_files.LANGUAGE_PATTERN, self.code):
      raise errors.ConfigError(
        'The language code is invalid',
        got=repr(self.code),
        expected=corpus_files.LANGUAGE_RULE,
        where='Language.code',
      )
    for factor, enum_type in FACTORS.items():
      member = _parse_member(enum_type, getattr(self, factor), factor)
      object.__setattr__(self, factor, member)


def _parse_member(
  enum_type: type[enum.Enum], value: Any, field: str
) -> enum.Enum:
  """Returns the enum member with the given value."""
  try:
    return enum_type(value)
  except ValueError as error:
    values = ', '.join(repr(member.value) for member in enum_type)
    raise errors.ConfigError(
      f'The field `{field}` must be one of {values}',
      got=repr(value),
      where=f'Language.{field}',
    ) from error


FACTORS: dict[str, type[enum.Enum]] = {
  'script': Script,
  'word_order': WordOrder,
  'adjective': Side,
  'adposition': Side,
  'determiner': Side,
  'morphology': Morphology,
}


_PRESETS = (
  Language(code='en'),
  Language(code='aa', adjective=Side.AFTER, morphology=Morphology.SUFFIXING),
  Language(
    code='bb',
    script=Script.CYRILLIC,
    word_order=WordOrder.SOV,
    adposition=Side.AFTER,
    morphology=Morphology.AGREEING,
  ),
  Language(
    code='cc',
    script=Script.GREEK,
    word_order=WordOrder.VSO,
    adjective=Side.AFTER,
    morphology=Morphology.PREFIXING,
  ),
  Language(
    code='dd',
    script=Script.ARABIC,
    word_order=WordOrder.VSO,
    adjective=Side.AFTER,
    determiner=Side.AFTER,
    morphology=Morphology.AGREEING,
  ),
  Language(code='ee', script=Script.HAN, adposition=Side.AFTER),
  Language(
    code='ff',
    script=Script.DEVANAGARI,
    word_order=WordOrder.SOV,
    adposition=Side.AFTER,
    morphology=Morphology.SUFFIXING,
  ),
  Language(
    code='gg',
    word_order=WordOrder.SOV,
    adjective=Side.AFTER,
    adposition=Side.AFTER,
    determiner=Side.AFTER,
  ),
)
PRESETS = {language.code: language for language in _PRESETS}


def parse_languages(
  codes: Sequence[str], changes: Iterable[str] = ()
) -> tuple[Language, ...]:
  """Returns predefined languages after changing some of their properties.

  A language whose code is not predefined has the same factors as `en`, except
  for its changes.

  Args:
    codes: Codes of the languages.
    changes: Changed properties in the form CODE.PROPERTY=VALUE, such as
      'bb.script=latin'.

  Raises:
    ConfigError: If a code is not predefined and has no changes, or if a change
      is malformed or has an unknown factor or value.
  """
  changes_by_code: dict[str, dict[str, str]] = {}
  for change in changes:
    match = re.fullmatch(r'(\w+)\.(\w+)=(\w+)', change)
    if not match or match[2] not in FACTORS or match[1] not in codes:
      raise errors.ConfigError(
        'The change of a synthetic language is invalid',
        got=change,
        expected='<language>.<factor>=<value>, with a language of '
        f'{", ".join(codes)} and a factor of {", ".join(FACTORS)}',
      )
    code, factor, value = match.groups()
    changes_by_code.setdefault(code, {})[factor] = value
  return tuple(
    _make_language(code, changes_by_code.get(code, {})) for code in codes
  )


def _make_language(code: str, changes: dict[str, Any]) -> Language:
  """Applies changes to a predefined language, or to `en` for a new code."""
  if code not in PRESETS and not changes:
    raise errors.ConfigError(
      'No predefined synthetic language has the requested code',
      got=code,
      expected=', '.join(PRESETS),
      fix=(
        'To define another language, change at least one factor, for example '
        f'with --change {code}.word_order=sov.'
      ),
    )
  base = PRESETS.get(code, PRESETS['en'])
  return dataclasses.replace(base, code=code, **changes)
