"""What languages differ in, and the languages that are ready made."""

import dataclasses
import enum
import re
from collections.abc import Iterable, Sequence
from typing import Any

from studies.synthetic.scripts import Script
from xlflax.data.corpus import corpus_files as corpus_files
from xlflax.utils import errors


class WordOrder(enum.Enum):
  """Order of subject, verb and object."""

  SVO = 'svo'
  SOV = 'sov'
  VSO = 'vso'


class Side(enum.Enum):
  """Where a modifier stands: before or after what it belongs to."""

  BEFORE = 'before'
  AFTER = 'after'


class Morphology(enum.Enum):
  """How tense, case and number are marked.

  isolating: by particles and order. suffixing and prefixing: by affixes of
  verbs (tense) and nouns (object case, plural). agreeing: by suffixes, which
  adjectives share with their noun; verbs also mark a plural subject.
  """

  ISOLATING = 'isolating'
  SUFFIXING = 'suffixing'
  PREFIXING = 'prefixing'
  AGREEING = 'agreeing'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Language:
  """The typology of a language; enums may be given by their values.

  Attributes:
    code: its language code.
    script: how it is written.
    word_order: of subject, verb and object.
    adjective: the side of the noun on which adjectives stand.
    adposition: before (prepositions) or after (postpositions) the noun; an
      owner stands after its noun with the former, before it with the latter,
      relative clauses likewise.
    determiner: the side of determiners and numerals.
    morphology: how words are inflected.

  Raises:
    ConfigError: an unknown value, or a malformed code.
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
        'Not a language code',
        got=repr(self.code),
        expected=corpus_files.LANGUAGE_RULE,
        where='Language.code',
      )
    for field, kind in FACTORS.items():
      object.__setattr__(
        self, field, _member(kind, getattr(self, field), field)
      )


def _member(kind: type[enum.Enum], value: Any, field: str) -> enum.Enum:
  """Returns the member that a value names."""
  try:
    return kind(value)
  except ValueError as error:
    raise errors.ConfigError(
      f'Language.{field} has no such value',
      got=repr(value),
      expected='one of ' + ', '.join(repr(member.value) for member in kind),
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


# A code and the values of `FACTORS`, in their order.
_READY_MADE = """
en latin svo before before before isolating
aa latin svo after before before suffixing
bb cyrillic sov before after before agreeing
cc greek vso after before before prefixing
dd arabic vso after before after agreeing
ee han svo before after before isolating
ff devanagari sov before after before suffixing
gg latin sov after after after isolating
"""


def _ready_made(line: str) -> Language:
  code, *values = line.split()
  factors: dict[str, Any] = dict(zip(FACTORS, values, strict=True))
  return Language(code=code, **factors)


PRESETS = {
  language.code: language
  for language in map(_ready_made, _READY_MADE.strip().splitlines())
}


def parse_languages(
  codes: Sequence[str], changes: Iterable[str] = ()
) -> tuple[Language, ...]:
  """Languages by their codes, with changes such as 'bb.script=latin'.

  A code that is not ready made is like `en` but for its changes.

  Raises:
    ConfigError: an unknown code without changes, a malformed change, a
      factor or value that there is not.
  """
  changed: dict[str, dict[str, str]] = {}
  for change in changes:
    match = re.fullmatch(r'(\w+)\.(\w+)=(\w+)', change)
    if not match or match[2] not in FACTORS or match[1] not in codes:
      raise errors.ConfigError(
        'A change of a language cannot be read',
        got=change,
        expected='<language>.<factor>=<value>, with a language of '
        f'{", ".join(codes)} and a factor of {", ".join(FACTORS)}',
      )
    changed.setdefault(match[1], {})[match[2]] = match[3]
  return tuple(_language(code, changed.get(code, {})) for code in codes)


def _language(code: str, changes: dict) -> Language:
  if code not in PRESETS and not changes:
    raise errors.ConfigError(
      'There is no ready-made synthetic language of this code',
      got=code,
      expected=', '.join(PRESETS),
      fix=f"say what it is like, for instance '{code}.word_order=sov'",
    )
  base = PRESETS.get(code, PRESETS['en'])
  return dataclasses.replace(base, code=code, **changes)
