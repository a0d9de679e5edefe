"""Languages and scripts of short texts, estimated from their characters."""

import collections
import math
import unicodedata
from collections.abc import Mapping, Sequence

from xlflax.data.corpus import language_codes

# Number of trigrams below which a text is too short to identify its language.
MIN_TRIGRAMS = 200
# Columns count as swapped if exchanging them raises the sum of the similarities
# by more than this.
_MARGIN = 0.05

# Scripts whose letters have another first word in their Unicode names.
_SCRIPTS = {'HIRAGANA': 'JAPANESE', 'KATAKANA': 'JAPANESE'}
# Map from ISO 15924 code to the first word of the Unicode names of its letters.
_UNICODE_NAMES = {
  'Arab': 'ARABIC',
  'Armn': 'ARMENIAN',
  'Beng': 'BENGALI',
  'Cyrl': 'CYRILLIC',
  'Deva': 'DEVANAGARI',
  'Ethi': 'ETHIOPIC',
  'Geor': 'GEORGIAN',
  'Grek': 'GREEK',
  'Gujr': 'GUJARATI',
  'Guru': 'GURMUKHI',
  'Hang': 'HANGUL',
  'Hans': 'CJK',
  'Hant': 'CJK',
  'Hebr': 'HEBREW',
  'Jpan': 'JAPANESE',
  'Khmr': 'KHMER',
  'Knda': 'KANNADA',
  'Kore': 'HANGUL',
  'Laoo': 'LAO',
  'Latn': 'LATIN',
  'Mlym': 'MALAYALAM',
  'Mymr': 'MYANMAR',
  'Orya': 'ORIYA',
  'Sinh': 'SINHALA',
  'Taml': 'TAMIL',
  'Telu': 'TELUGU',
  'Thai': 'THAI',
  'Tibt': 'TIBETAN',
}

Counts = collections.Counter[str]


def are_columns_swapped(
  pair: Sequence[str], columns: Sequence[str], profiles: Mapping[str, Counts]
) -> bool:
  """Returns whether each column seems to be in the other column's language.

  Args:
    pair: Codes of the languages of the first and second column.
    columns: Text of the first and second column.
    profiles: Character trigram counts by language, for languages with known
      text.
  """
  exchanged = scripts_are_exchanged(pair, columns)
  if exchanged is not None:
    return exchanged

  column_counts = [count_trigrams(column) for column in columns]
  if min(sum(counts.values()) for counts in column_counts) < MIN_TRIGRAMS:
    return False
  similarity = swapped_similarity = 0.0
  for side, language in enumerate(pair):
    if language in profiles:
      profile = profiles[language]
      similarity += trigram_similarity(column_counts[side], profile)
      swapped_similarity += trigram_similarity(column_counts[1 - side], profile)
  return swapped_similarity > similarity + _MARGIN


def scripts_are_exchanged(
  pair: Sequence[str], columns: Sequence[str]
) -> bool | None:
  """Returns whether each column is in a script of the other column's language.

  Args:
    pair: Codes of the two languages.
    columns: Text in each of the two columns.

  Returns:
    True if the scripts are exchanged, False if they are not, and None if the
    scripts are unknown or both columns have the same script.
  """
  column_scripts = [dominant_script(column) for column in columns]
  expected_scripts = [scripts_of_language(language) for language in pair]
  if (
    None in (*column_scripts, *expected_scripts)
    or column_scripts[0] == column_scripts[1]
  ):
    return None

  first_script, second_script = column_scripts
  expected_first, expected_second = (
    scripts or () for scripts in expected_scripts
  )
  some_match = (
    first_script in expected_first or second_script in expected_second
  )
  both_exchanged = (
    first_script in expected_second and second_script in expected_first
  )
  return both_exchanged and not some_match


def dominant_script(text: str) -> str | None:
  """Returns the script to which most letters of a text belong.

  Text is Japanese if more than a tenth of its letters are kana.

  Args:
    text: Text in any script.

  Returns:
    The first word of the Unicode names of the script's letters, such as
    'LATIN', or None if the text has fewer than 20 letters.
  """
  counts: Counts = collections.Counter()
  for letter, count in collections.Counter(text).items():
    if letter.isalpha():
      name = unicodedata.name(letter, 'UNKNOWN').split()[0]
      counts[_SCRIPTS.get(name, name)] += count
  total = sum(counts.values())
  if total < 20:
    return None
  if counts['JAPANESE'] > total / 10:
    return 'JAPANESE'
  return max(counts, key=lambda name: counts[name])


def scripts_of_language(language: str) -> tuple[str, ...] | None:
  """Returns the Unicode names of a language's scripts.

  Returns:
    The names in sorted order, or None if the language is unknown or has a
    script that is not in the table.
  """
  scripts = sorted(language_codes.parse_language_code(language).scripts)
  if not scripts or not all(script in _UNICODE_NAMES for script in scripts):
    return None
  return tuple(_UNICODE_NAMES[script] for script in scripts)


def count_trigrams(text: str) -> Counts:
  """Counts the character trigrams of a text.

  The text is converted to lower case. Runs of characters other than letters
  count as one space.
  """
  lower = text.lower()
  spaces = {ord(c): ' ' for c in set(lower) if not c.isalpha()}
  padded = f' {" ".join(lower.translate(spaces).split())} '
  return collections.Counter(padded[i : i + 3] for i in range(len(padded) - 2))


def trigram_similarity(first: Counts, second: Counts) -> float:
  """Returns the cosine similarity of two trigram counts."""
  return dot_product(normalize_counts(first), normalize_counts(second))


def normalize_counts(counts: Counts) -> dict[str, float]:
  """Returns trigram counts divided by their Euclidean norm."""
  norm = math.sqrt(sum(count**2 for count in counts.values()))
  return {gram: count / norm for gram, count in counts.items()}


def dot_product(
  first: Mapping[str, float], second: Mapping[str, float]
) -> float:
  """Returns the dot product of two normalized trigram counts."""
  return sum(value * second.get(gram, 0.0) for gram, value in first.items())
