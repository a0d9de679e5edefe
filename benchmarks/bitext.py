"""Error rates of `xlflax preprocess` filters for lines and sentence pairs.

  python -m benchmarks.bitext languages --data=DATA
  python -m benchmarks.bitext copies --data=DATA

`languages` builds files of sentences (Tatoeba, NTREX) and of short messages
(Django's catalogs) in ten languages, and mixes lines from the other nine
languages into each file. For each range of line lengths, it counts the good
lines that are dropped and the foreign lines that are kept. Two filters with a
threshold of 0.5 are compared: the language probability of a line alone, and its
probability given the languages in its file (`--min_language_probability=0.5`).
`declarations` are the texts of the Universal Declaration of Human Rights, with
one file per language.

`copies` counts the correct translation pairs that are classified as copies, and
the detected copies among English sentences in which some words were replaced.
"""

import argparse
import json
import pathlib
import random
from collections.abc import Callable, Iterator, Sequence

from benchmarks import large_text, web_text
from xlflax.data.corpus import text_similarity
from xlflax.data.preprocessing import language_id
from xlflax.demo import demo_corpus

_CODES = ('ar', 'de', 'en', 'es', 'fr', 'hi', 'ru', 'sw', 'tr', 'zh')
_MAX_LINES = 1000  # Maximum number of lines per language.
_LENGTH_BINS = (0, 15, 25, 50, 100, 10_000)
_FOREIGN_FRACTIONS = (0.0, 0.01, 0.1, 0.5)
_MIN_PROBABILITY = 0.5
_REPLACED_FRACTIONS = (0.0, 0.05, 0.1, 0.2, 0.3)

LineFilter = Callable[[str], bool]
Lines = dict[str, list[str]]


def load_sentences(data: pathlib.Path) -> Lines:
  """Returns the sentences in NTREX and Tatoeba, grouped by language."""
  sentences: dict[str, dict[str, None]] = {code: {} for code in _CODES}
  for codes, rows in large_text.read_parallel(data):
    # Larger files contain tokenized, lowercased text.
    if len(rows) <= 2000:
      for code, texts in zip(codes, zip(*rows, strict=True), strict=True):
        sentences.get(code, {}).update(dict.fromkeys(texts))
  return {code: _sample_lines(list(lines)) for code, lines in sentences.items()}


def load_messages() -> Lines:
  """Returns user-interface messages by language."""
  directory = demo_corpus.package_directory('django')
  messages = {
    code: demo_corpus.read_messages(code, directory)
    for code in _CODES
    if code not in ('en', 'sw')
  }
  lines = {code: list(texts.values()) for code, texts in messages.items()}
  lines['en'] = list(
    dict.fromkeys(message for texts in messages.values() for message in texts)
  )
  return {code: _sample_lines(texts) for code, texts in lines.items()}


def _sample_lines(lines: list[str]) -> list[str]:
  """Returns a sample of the lines that contain a letter."""
  lines = [line for line in lines if any(map(str.isalpha, line))]
  return random.Random(0).sample(lines, min(_MAX_LINES, len(lines)))


def measure_language_filters(lines: Lines) -> dict:
  """Measures error rates of language filters on text in mixed languages.

  Lines from other languages (foreign lines) are mixed into each language's
  text. A filter makes an error if it keeps a foreign line or drops a line in
  the correct language.

  Args:
    lines: Map from language to lines that are known to be in this language.

  Returns:
    Nested map from the fraction of foreign lines to the group of lines to the
    error rate.
  """
  rng = random.Random(1)
  return {
    f'{fraction:.0%} foreign': _count_errors(lines, fraction, rng)
    for fraction in _FOREIGN_FRACTIONS
  }


def _count_errors(lines: Lines, fraction: float, rng: random.Random) -> dict:
  """Counts the errors of language filters on text with some foreign lines."""
  counts: dict[str, list[int]] = {}
  for code, good in sorted(lines.items()):
    others = [line for other in lines if other != code for line in lines[other]]
    foreign = rng.sample(others, int(len(good) * fraction / (1 - fraction)))
    mixed = rng.sample(good + foreign, len(good) + len(foreign))
    for filter_name, should_keep in _make_filters(code, mixed).items():
      for error_type, texts in (
        ('good refused', good),
        ('foreign kept', foreign),
      ):
        for text in texts:
          is_error = should_keep(text) == (error_type == 'foreign kept')
          for group in _group_names(code, text, error_type):
            counter = counts.setdefault(f'{group}, {filter_name}', [0, 0])
            counter[0] += is_error
            counter[1] += 1
  return {
    name: f'{is_error / total:.2%} of {total}'
    for name, (is_error, total) in sorted(counts.items())
  }


def _group_names(code: str, text: str, error_type: str) -> Iterator[str]:
  """Yields the names of the groups whose error rates include a given line."""
  min_length = max(length for length in _LENGTH_BINS if length <= len(text))
  yield f'{error_type}, from {min_length:3} characters'
  if min_length < 25 and error_type == 'good refused':
    yield f'{error_type}, below 25, {code}'
  yield f'{error_type}, all'


def _make_filters(code: str, file: Sequence[str]) -> dict[str, LineFilter]:
  """Returns a language filter for single lines and one for lines of a file."""
  expected_languages = language_id.expected_languages(
    code, file[: language_id._SAMPLE_LINES]
  )
  assert expected_languages is not None

  def accepts_line(text: str) -> bool:
    language, probability = language_id.identify_language(text)
    return language == code and probability >= _MIN_PROBABILITY

  return {
    'by itself': accepts_line,
    'in its file': lambda text: expected_languages.accepts(
      text, _MIN_PROBABILITY
    ),
  }


def measure_declarations(folder: pathlib.Path) -> dict:
  """Measures the fraction of UDHR lines that language filters drop by mistake.

  The UDHR texts are translations of the Universal Declaration of Human Rights.
  All of their lines are in the correct language, so that each dropped line is
  an error.
  """
  counts: dict[str, list[int]] = {}
  for text in web_text.read_declarations(folder, longer_than=0):
    if text.language in language_id.supported_languages():
      for filter_name, should_keep in _make_filters(
        text.language, text.lines
      ).items():
        num_refused = sum(not should_keep(line) for line in text.lines)
        for group in (f'all, {filter_name}', f'{text.tag}, {filter_name}'):
          counter = counts.setdefault(group, [0, 0])
          counter[0] += num_refused
          counter[1] += len(text.lines)
  return {
    name: f'{num_dropped / total:.2%} of {total}'
    for name, (num_dropped, total) in sorted(counts.items())
    if name.startswith('all') or num_dropped > 0.05 * total
  }


def measure_copies(data: pathlib.Path) -> dict:
  """Measures how reliably copied lines are detected in sentence pairs.

  False positives are correct translations that are classified as copies. Recall
  is the fraction of English lines that are recognized as copies of the original
  lines after some of their words were replaced.
  """
  rng = random.Random(0)
  pairs = [
    pair
    for codes, rows in large_text.read_parallel(data)
    if 'ja' not in codes
    for pair in rows
    if 'en' in codes
  ]
  words = [word for _, translation in pairs for word in translation.split()]
  english = _sample_lines(sorted({source for source, _ in pairs}))
  results = {
    'pairs': len(pairs),
    'detected_as_copies': sum(
      text_similarity.ngram_similarity(*pair) > text_similarity.COPIED
      for pair in pairs
    ),
  }
  for fraction in _REPLACED_FRACTIONS:
    num_detected = 0
    for line in english:
      copy = ' '.join(
        rng.choice(words) if rng.random() < fraction else word
        for word in line.split()
      )
      num_detected += (
        text_similarity.ngram_similarity(line, copy) > text_similarity.COPIED
      )
    results[f'found of copies with {fraction:.0%} of words replaced'] = round(
      num_detected / len(english), 3
    )
  return results


def main(arguments: list[str] | None = None) -> None:
  """Prints the measurements of the selected benchmark as JSON."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument(
    'part', choices=('languages', 'copies'), help='Filters to measure.'
  )
  parser.add_argument(
    '--data',
    type=pathlib.Path,
    required=True,
    help='Folder that contains public data sets.',
  )
  args = parser.parse_args(arguments)
  results = (
    measure_copies(args.data)
    if args.part == 'copies'
    else {
      'sentences': measure_language_filters(load_sentences(args.data)),
      'messages': measure_language_filters(load_messages()),
      'declarations': measure_declarations(args.data / 'udhr'),
    }
  )
  print(json.dumps(results, indent=2, ensure_ascii=False))


if __name__ == '__main__':
  main()
