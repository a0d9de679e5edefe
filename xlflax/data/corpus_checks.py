"""What is probably wrong with a corpus: swapped columns, copies, two codes.

Nothing here is an error: text may be as odd as it looks. The first lines of
each file are read, and pairs from all over a file that is not compressed.
"""

import collections
import itertools
import logging
import math
import pathlib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence

from xlflax.data.corpus import (
  corpus_directory,
  corpus_files,
  language_codes,
  text_similarity,
)
from xlflax.data.corpus.line_reader import Span

LINES = 100  # read of each language, and of each column
_PAIRS, _PLACES = 500, 10  # read of each pair, from so many places of a file
_FEW, _FEW_SHARE = 4, 0.05  # odd pairs of which nothing is said
_LETTERS = 200  # fewer say nothing about a language
_MARGIN = 0.05  # by which swapped columns must be the better ones

# First word of a letter's Unicode name -> the script; others are their own.
_SCRIPTS = {'HIRAGANA': 'JAPANESE', 'KATAKANA': 'JAPANESE'}
# ISO 15924 code -> first word of the Unicode names of its letters.
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


def find_anomalies(corpus: corpus_directory.Corpus) -> list[str]:
  """Returns a sentence on each oddity of a corpus directory."""
  anomalies = list(_two_codes(corpus.languages))
  profiles = _profiles(corpus)
  for file in corpus.files:
    if file.kind is corpus_files.Kind.MONOLINGUAL:
      text = _text(corpus_directory.read_monolingual(file.path))
      anomalies += _wrong_script(file, text)
    elif file.kind is corpus_files.Kind.PARALLEL:
      pairs = _sample(file.path)
      columns = [' '.join(side) for side in zip(*pairs[:LINES], strict=True)]
      if pairs and _swapped(file.languages, columns, profiles):
        anomalies.append(_tell_swapped(file))
      anomalies += _copied(file, pairs)
      anomalies += _numbers(file, pairs)
  return anomalies


def log_anomalies(corpus: corpus_directory.Corpus) -> None:
  """Logs `find_anomalies`."""
  for oddity in find_anomalies(corpus):
    logging.warning('%s', oddity)


def _two_codes(languages: Iterable[str]) -> Iterator[str]:
  groups: dict[tuple, list[str]] = {}
  for code in languages:
    parsed = language_codes.parse_language_code(code)
    meaning = parsed.language, parsed.script, parsed.region
    groups.setdefault(meaning, []).append(code)
  for codes in groups.values():
    if len(codes) > 1:
      yield (
        f'{" and ".join(codes)} are codes of one language, but count as '
        f'{len(codes)}: give all of its files the same code.'
      )


def _sample(path: pathlib.Path) -> list[corpus_directory.Pair]:
  """Pairs from evenly spread places of a file; the first of a compressed one."""
  spans: list[Span | None] = [None]
  if not corpus_files.is_sequential(path):
    size = path.stat().st_size
    places = [size * n // _PLACES for n in range(_PLACES + 1)]
    spans = [Span(*ends) for ends in itertools.pairwise(places)]
  return [
    pair
    for span in spans
    for pair in itertools.islice(
      corpus_directory.read_parallel(path, span), _PAIRS // len(spans)
    )
  ]


def _copied(
  file: corpus_files.TextFile, pairs: Sequence[corpus_directory.Pair]
) -> Iterator[str]:
  if len(set(map(language_codes.short_code, file.languages))) < 2:
    return
  count = sum(
    text_similarity.ngram_similarity(*pair) > text_similarity.COPIED
    for pair in pairs
  )
  if count > max(_FEW, _FEW_SHARE * len(pairs)):
    yield (
      f'{file.path} has sides that are equal, or nearly, in {count:,} of '
      f'{len(pairs):,} pairs that were looked at. They were not translated: '
      'xlflax preprocess drops them.'
    )


def _numbers(
  file: corpus_files.TextFile, pairs: Sequence[corpus_directory.Pair]
) -> Iterator[str]:
  count = sum(not all(any(map(str.isalpha, x)) for x in pair) for pair in pairs)
  if count > max(_FEW, _FEW_SHARE * len(pairs)):
    yield (
      f'{file.path} has a side without a letter in {count:,} of {len(pairs):,} '
      'pairs that were looked at: xlflax preprocess drops them.'
    )


def _tell_swapped(file: corpus_files.TextFile) -> str:
  first, second = file.languages
  return (
    f'The columns of {file.path} look swapped: the first is more like '
    f'{second}, the second like {first}. Swap them, or name the file '
    f'{second}-{first}.'
  )


def _wrong_script(file: corpus_files.TextFile, text: str) -> list[str]:
  [language] = file.languages
  script, expected_scripts = dominant_script(text), scripts_of(language)
  if script is None or expected_scripts is None or script in expected_scripts:
    return []
  return [
    f'{file.path} is written in {script.title()} letters, and {language} in '
    f'{" or ".join(expected_scripts).title()}: is it another language?'
  ]


def _swapped(
  pair: Sequence[str], columns: Sequence[str], known: Mapping[str, Counts]
) -> bool:
  """Whether each column is rather of the other column's language."""
  crossed = scripts_are_exchanged(pair, columns)
  if crossed is not None:
    return crossed
  grams = [count_trigrams(column) for column in columns]
  if min(sum(counts.values()) for counts in grams) < _LETTERS:
    return False
  as_filed = crosswise = 0.0
  for side, language in enumerate(pair):
    if language in known:
      as_filed += trigram_similarity(grams[side], known[language])
      crosswise += trigram_similarity(grams[1 - side], known[language])
  return crosswise > as_filed + _MARGIN


def scripts_are_exchanged(
  pair: Sequence[str], columns: Sequence[str]
) -> bool | None:
  """Whether each column has the script of the other's language.

  Args:
    pair: codes of the two languages.
    columns: text that is filed as theirs.

  Returns:
    None where scripts do not tell: they are unknown, or the same.
  """
  column_scripts = [dominant_script(column) for column in columns]
  expected_scripts = [scripts_of(language) for language in pair]
  if (
    None in (*column_scripts, *expected_scripts)
    or column_scripts[0] == column_scripts[1]
  ):
    return None
  fits = column_scripts[0] in (expected_scripts[0] or ()) or column_scripts[
    1
  ] in (expected_scripts[1] or ())
  crossed = column_scripts[0] in (expected_scripts[1] or ()) and column_scripts[
    1
  ] in (expected_scripts[0] or ())
  return crossed and not fits


def dominant_script(text: str) -> str | None:
  """The script of most letters; None of a short text.

  Japanese is what has kana among its characters: a tenth are enough.
  """
  counts: Counts = collections.Counter()
  for letter in text:
    if letter.isalpha():
      name = unicodedata.name(letter, 'UNKNOWN').split()[0]
      counts[_SCRIPTS.get(name, name)] += 1
  total = sum(counts.values())
  if total < 20:
    return None
  if counts['JAPANESE'] > total / 10:
    return 'JAPANESE'
  return max(counts, key=lambda name: counts[name])


def scripts_of(language: str) -> tuple[str, ...] | None:
  """Returns the scripts of a language by their Unicode names.

  None if the language is unknown or has a script that is not in the table.
  """
  scripts = sorted(language_codes.parse_language_code(language).scripts)
  if not scripts or not all(script in _UNICODE_NAMES for script in scripts):
    return None
  return tuple(_UNICODE_NAMES[script] for script in scripts)


def count_trigrams(text: str) -> Counts:
  """Counts of three characters in a row, in lower case, of letters only."""
  letter_runs = ''.join(c if c.isalpha() else ' ' for c in text.lower()).split()
  padded = f' {" ".join(letter_runs)} '
  return collections.Counter(padded[i : i + 3] for i in range(len(padded) - 2))


def trigram_similarity(first: Counts, second: Counts) -> float:
  """Cosine of two counts."""
  dot_product = sum(count * second[gram] for gram, count in first.items())
  norms = (
    math.sqrt(sum(count**2 for count in counts.values()))
    for counts in (first, second)
  )
  return dot_product / max(math.prod(norms), 1e-9)


def _text(lines: Iterable[corpus_directory.Line]) -> str:
  return ' '.join(line.text for line in itertools.islice(lines, LINES))


def _profiles(corpus: corpus_directory.Corpus) -> dict[str, Counts]:
  """Trigrams of each language with monolingual training text."""
  profiles = {}
  for language in corpus.monolingual_languages():
    counts = count_trigrams(_text(corpus.monolingual(language)))
    if sum(counts.values()) >= _LETTERS:
      profiles[language] = counts
  return profiles
