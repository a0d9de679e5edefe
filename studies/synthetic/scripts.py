"""Scripts (writing systems) of the synthetic languages.

No words from real languages are used. Words consist of syllables or, in the
script without spaces, of characters.
"""

import dataclasses
import enum
from collections.abc import Iterable

from studies.synthetic.random_generator import RandomGenerator


class Script(enum.Enum):
  """Script in which a synthetic language is written."""

  LATIN = 'latin'
  CYRILLIC = 'cyrillic'
  GREEK = 'greek'
  ARABIC = 'arabic'
  DEVANAGARI = 'devanagari'
  HAN = 'han'


@dataclasses.dataclass(frozen=True)
class Letters:
  """The syllables and the punctuation of a script.

  Attributes:
    onsets: Letters with which a syllable can start.
    vowels: Vowels that a syllable can contain, or '' if vowels are not written.
    full_stop: Punctuation mark at the end of a statement.
    question_mark: Punctuation mark at the end of a question.
    has_case: Whether names are capitalized.
    has_spaces: Whether words are separated by spaces.
  """

  onsets: tuple[str, ...]
  vowels: tuple[str, ...]
  full_stop: str
  question_mark: str
  has_case: bool = False
  has_spaces: bool = True


LETTERS = {
  Script.LATIN: Letters(
    tuple('bdfgklmnprstvz'), tuple('aeiou'), '.', '?', has_case=True
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
# Three disjoint ranges of Han characters, so that text without spaces has a
# unique segmentation. A content word is a first and a last character. A
# function word or an affix is a single character.
_FIRST_CHARACTERS = tuple(map(chr, range(0x4E10, 0x4E10 + 40)))
_LAST_CHARACTERS = tuple(map(chr, range(0x5E10, 0x5E10 + 40)))
_SINGLE_CHARACTERS = tuple(map(chr, range(0x6E10, 0x6E10 + 160)))


def draw_content_word(script: Script, rng: RandomGenerator) -> str:
  """Samples a word of two or three syllables, or of two Han characters."""
  if script is Script.HAN:
    return rng.choice(_FIRST_CHARACTERS) + rng.choice(_LAST_CHARACTERS)
  num_syllables = 2 + rng.integer(2)
  return ''.join(draw_affix(script, rng) for _ in range(num_syllables))


def draw_function_word(script: Script, rng: RandomGenerator) -> str:
  """Samples a short word: one closed syllable or one Han character."""
  if script is Script.HAN:
    return rng.choice(_SINGLE_CHARACTERS)
  return draw_affix(script, rng) + rng.choice(LETTERS[script].onsets)


def draw_affix(script: Script, rng: RandomGenerator) -> str:
  """Samples a syllable without a final consonant, or one Han character."""
  if script is Script.HAN:
    return rng.choice(_SINGLE_CHARACTERS)
  letters = LETTERS[script]
  return rng.choice(letters.onsets) + rng.choice(letters.vowels)


def join_words(words: Iterable[str], script: Script) -> str:
  """Joins words with spaces, or without spaces if the script has none."""
  return (' ' if LETTERS[script].has_spaces else '').join(words)
