"""Writing systems: the letters of invented words, and how words are joined.

Nothing is taken from a real vocabulary: words are strings of syllables, or of
signs in the script without spaces.
"""

import dataclasses
import enum
from collections.abc import Iterable

from studies.synthetic.draws import Draws


class Script(enum.Enum):
  """How a language is written."""

  LATIN = 'latin'
  CYRILLIC = 'cyrillic'
  GREEK = 'greek'
  ARABIC = 'arabic'
  DEVANAGARI = 'devanagari'
  HAN = 'han'


@dataclasses.dataclass(frozen=True)
class Letters:
  """The syllables of a script.

  Attributes:
    onsets: what a syllable begins with.
    vowels: what follows; '' where vowels are not written.
    full_stop: ends a statement.
    question_mark: ends a question.
    has_case: whether names are capitalised.
    has_spaces: whether spaces stand between words.
  """

  onsets: tuple[str, ...]
  vowels: tuple[str, ...]
  full_stop: str
  question_mark: str
  has_case: bool = False
  has_spaces: bool = True


LETTERS = {
  Script.LATIN: Letters(
    tuple('b d f g k l m n p r s t v z'.split()),
    tuple('aeiou'),
    '.',
    '?',
    has_case=True,
  ),
  Script.CYRILLIC: Letters(
    tuple('бвгджзклмнпрстф'), tuple('аеиоу'), '.', '?', has_case=True
  ),
  Script.GREEK: Letters(
    tuple('βγδζθκλμνπρτφχ'), tuple('αεηιο'), '.', ';', has_case=True
  ),
  Script.ARABIC: Letters(
    tuple('بتجدرزسشطفقكلمن'), ('ا', 'و', 'ي', 'ا', 'و'), '.', '؟'
  ),
  Script.DEVANAGARI: Letters(
    tuple('कगचजटडतदनपबमरलस'), ('', 'ा', 'ि', 'ु', 'े'), '।', '?'
  ),
  Script.HAN: Letters((), (), '。', '？', has_spaces=False),
}
# Three separate ranges of signs, so that text without spaces has one reading:
# a content word is a first sign and a last one, a function word one sign.
_FIRST = tuple(map(chr, range(0x4E10, 0x4E10 + 40)))
_LAST = tuple(map(chr, range(0x5E10, 0x5E10 + 40)))
_SINGLE = tuple(map(chr, range(0x6E10, 0x6E10 + 160)))


def content_word(script: Script, draws: Draws) -> str:
  """An invented word of two or three syllables; of two signs in Han."""
  if script is Script.HAN:
    return draws.choice(_FIRST) + draws.choice(_LAST)
  count = 2 + draws.below(2)
  return ''.join(affix(script, draws) for _ in range(count))


def function_word(script: Script, draws: Draws) -> str:
  """An invented word of one closed syllable, or of one sign."""
  if script is Script.HAN:
    return draws.choice(_SINGLE)
  return affix(script, draws) + draws.choice(LETTERS[script].onsets)


def affix(script: Script, draws: Draws) -> str:
  """An open syllable, or one sign."""
  if script is Script.HAN:
    return draws.choice(_SINGLE)
  letters = LETTERS[script]
  return draws.choice(letters.onsets) + draws.choice(letters.vowels)


def join(words: Iterable[str], script: Script) -> str:
  """The text of words: `a b c`, or `abc` in a script without spaces."""
  return (' ' if LETTERS[script].has_spaces else '').join(words)
