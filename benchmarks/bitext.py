"""What `xlflax preprocess` makes of good and of bad lines and pairs.

  python -m benchmarks.bitext languages --data=DATA
  python -m benchmarks.bitext copies --data=DATA

`languages` makes files of sentences (Tatoeba, NTREX) and of short messages
(Django's catalogs) of ten languages, mixes lines of the other nine into them,
and counts by length which good lines are refused and which foreign ones are
kept: by a line's own probability of 0.5, and by that given the languages of its
file (`--min_language_probability=0.5`). `declarations` are the texts of the
Universal Declaration of Human Rights, one file each.

`copies` counts which good pairs are taken for copies, and which copies of the
English side are found, of which some words were replaced by others.
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
_MAX_LINES = 1000  # lines of a language
_LENGTH_BINS = (0, 15, 25, 50, 100, 10_000)
_FOREIGN_FRACTIONS = (0.0, 0.01, 0.1, 0.5)
_MIN_PROBABILITY = 0.5
_REPLACED_FRACTIONS = (0.0, 0.05, 0.1, 0.2, 0.3)

LineFilter = Callable[[str], bool]
Lines = dict[str, list[str]]


def load_sentences(data: pathlib.Path) -> Lines:
  """Those of NTREX and Tatoeba."""
  found: dict[str, dict[str, None]] = {code: {} for code in _CODES}
  for codes, rows in large_text.read_parallel(data):
    if len(rows) <= 2000:  # the others are tokenised, in lower case
      for code, side in zip(codes, zip(*rows, strict=True), strict=True):
        found.get(code, {}).update(dict.fromkeys(side))
  return {code: _sample_lines(list(lines)) for code, lines in found.items()}


def load_messages() -> Lines:
  """Texts of a user interface."""
  directory = demo_corpus.package_directory('django')
  found = {
    code: demo_corpus.read_messages(code, directory)
    for code in _CODES
    if code not in ('en', 'sw')
  }
  lines = {code: list(texts.values()) for code, texts in found.items()}
  lines['en'] = list(
    dict.fromkeys(x for texts in found.values() for x in texts)
  )
  return {code: _sample_lines(texts) for code, texts in lines.items()}


def _sample_lines(lines: list[str]) -> list[str]:
  lines = [line for line in lines if any(map(str.isalpha, line))]
  return random.Random(0).sample(lines, min(_MAX_LINES, len(lines)))


def measure_language_filters(lines: Lines) -> dict:
  """Good lines that are refused and foreign ones that are kept, by length."""
  draw = random.Random(1)
  return {
    f'{share:.0%} foreign': _count_errors(lines, share, draw)
    for share in _FOREIGN_FRACTIONS
  }


def _count_errors(lines: Lines, share: float, draw: random.Random) -> dict:
  counts: dict[str, list[int]] = {}
  for code, good in sorted(lines.items()):
    others = [x for other in lines if other != code for x in lines[other]]
    foreign = draw.sample(others, int(len(good) * share / (1 - share)))
    mixed = draw.sample(good + foreign, len(good) + len(foreign))
    for way, keeps in _make_filters(code, mixed).items():
      for kind, texts in (('good refused', good), ('foreign kept', foreign)):
        for text in texts:
          bad = keeps(text) == (kind == 'foreign kept')
          for group in _group_names(code, text, kind):
            count = counts.setdefault(f'{group}, {way}', [0, 0])
            count[0] += bad
            count[1] += 1
  return {
    name: f'{bad / total:.2%} of {total}'
    for name, (bad, total) in sorted(counts.items())
  }


def _group_names(code: str, text: str, kind: str) -> Iterator[str]:
  low = max(length for length in _LENGTH_BINS if length <= len(text))
  yield f'{kind}, from {low:3} characters'
  if low < 25 and kind == 'good refused':
    yield f'{kind}, below 25, {code}'
  yield f'{kind}, all'


def _make_filters(code: str, file: Sequence[str]) -> dict[str, LineFilter]:
  prior = language_id.expected_languages(
    code, file[: language_id._SAMPLE_LINES]
  )
  assert prior is not None

  def alone(text: str) -> bool:
    found, probability = language_id.identify_language(text)
    return found == code and probability >= _MIN_PROBABILITY

  return {
    'by itself': alone,
    'in its file': lambda text: prior.accepts(text, _MIN_PROBABILITY),
  }


def measure_declarations(folder: pathlib.Path) -> dict:
  """Lines refused of texts of which every line is good."""
  counts: dict[str, list[int]] = {}
  for text in web_text.read_declarations(folder, longer_than=0):
    if text.language in language_id.supported_languages():
      for way, keeps in _make_filters(text.language, text.lines).items():
        refused = sum(not keeps(line) for line in text.lines)
        for group in (f'all, {way}', f'{text.tag}, {way}'):
          count = counts.setdefault(group, [0, 0])
          count[0] += refused
          count[1] += len(text.lines)
  return {
    name: f'{bad / total:.2%} of {total}'
    for name, (bad, total) in sorted(counts.items())
    if name.startswith('all') or bad > 0.05 * total
  }


def measure_copies(data: pathlib.Path) -> dict:
  """Similarities of the sides of translations, and of copies."""
  draw = random.Random(0)
  pairs = [
    pair
    for codes, rows in large_text.read_parallel(data)
    if 'ja' not in codes
    for pair in rows
    if 'en' in codes
  ]
  words = [word for _, side in pairs for word in side.split()]
  english = _sample_lines(sorted({one for one, _ in pairs}))
  out = {
    'pairs': len(pairs),
    'taken for copies': sum(
      text_similarity.ngram_similarity(*pair) > text_similarity.COPIED
      for pair in pairs
    ),
  }
  for share in _REPLACED_FRACTIONS:
    found = 0
    for line in english:
      copy = ' '.join(
        draw.choice(words) if draw.random() < share else word
        for word in line.split()
      )
      found += (
        text_similarity.ngram_similarity(line, copy) > text_similarity.COPIED
      )
    out[f'found of copies with {share:.0%} of words replaced'] = round(
      found / len(english), 3
    )
  return out


def main(arguments: list[str] | None = None) -> None:
  """Prints the figures of one part as JSON."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument('part', choices=('languages', 'copies'))
  parser.add_argument('--data', type=pathlib.Path, required=True)
  args = parser.parse_args(arguments)
  found = (
    measure_copies(args.data)
    if args.part == 'copies'
    else {
      'sentences': measure_language_filters(load_sentences(args.data)),
      'messages': measure_language_filters(load_messages()),
      'declarations': measure_declarations(args.data / 'udhr'),
    }
  )
  print(json.dumps(found, indent=2, ensure_ascii=False))


if __name__ == '__main__':
  main()
