"""Measures how much clean text the filters of `xlflax preprocess` drop.

The monolingual text is the Universal Declaration of Human Rights (UDHR) in each
language, the message catalogs of Django in languages whose scripts the UDHR
data lack, and the sentences of NTREX, Tatoeba and the Bible. Lines with an odd
index are used as training text, and lines with an even index as evaluation
text. Each filter is applied separately. The sentence pairs are from NTREX,
Tatoeba and the Bible. They are filtered with the default settings of `xlflax
preprocess`, and with the settings in the guide to large corpora.
"""

import argparse
import collections
import csv
import itertools
import pathlib
import re
from collections.abc import Iterator, Sequence

import numpy as np

from studies import command_line
from xlflax.data.corpus import language_codes
from xlflax.data.preprocessing import contamination, text_filters
from xlflax.demo import demo_corpus

_NGRAM_SIZE = 13
_MIN_CHARACTERS = 20
# Languages of Django whose scripts are missing or rare in the UDHR data.
_DJANGO_LANGUAGES = (
  'ar', 'bn', 'el', 'fa', 'he', 'hi', 'hy', 'ja', 'ka', 'km', 'kn', 'ko', 'ml',
  'mr', 'my', 'ne', 'pa', 'ru', 'ta', 'te', 'th', 'ug', 'uk', 'ur', 'zh',
)  # fmt: skip
_LATIN_LETTER = re.compile('[A-Za-z]')
_FILTERS = {
  'defaults': text_filters.TextFilters(),
  'code': text_filters.TextFilters(min_letters=0, drop_code=True),
  'script': text_filters.TextFilters(min_letters=0, min_script_share=0.5),
  'language': text_filters.TextFilters(
    min_letters=0, min_language_probability=0.5
  ),
}
# The settings of the guide on large corpora.
_PAIR_FILTERS = text_filters.TextFilters(
  min_characters=_MIN_CHARACTERS,
  max_characters=5000,
  min_script_share=0.5,
  min_language_probability=0.5,
  max_ratio=3,
)


def contamination_rate(
  training: Sequence[str], evaluation: Sequence[str]
) -> float:
  """Returns the fraction of training lines that decontamination drops."""
  keys = contamination.compute_keys(evaluation, _NGRAM_SIZE)
  return _count_contaminated(training, keys) / max(1, len(training))


def _count_contaminated(
  texts: Sequence[str], evaluation_keys: np.ndarray
) -> int:
  """Returns how many texts share an n-gram with an evaluation text."""
  keys, text_indices = contamination.hash_passages(list(texts), _NGRAM_SIZE)
  return np.unique(text_indices[np.isin(keys, evaluation_keys)]).size


def decontamination_recall(
  training: Sequence[str], evaluation: Sequence[str]
) -> float | None:
  """Returns the fraction of planted evaluation texts that are detected.

  Each evaluation text of at least 13 English words (or the equivalent in other
  languages) is planted between two copies of a training line. The result is
  None if there is no training line or no evaluation text of this length.
  """
  keys = contamination.compute_keys(evaluation, _NGRAM_SIZE)
  planted = [
    f'{line} {text} {line}'
    for line, text in zip(
      itertools.cycle(training), filter(_has_ngram, evaluation)
    )
  ]
  return _count_contaminated(planted, keys) / len(planted) if planted else None


def _has_ngram(text: str) -> bool:
  """Returns whether a text is long enough to contain an n-gram."""
  weights = map(contamination.token_weight, contamination.split_tokens(text))
  return sum(weights) >= _NGRAM_SIZE * contamination.ENGLISH_WORD


def drop_rate(
  lines: Sequence[str], code: str, filters: text_filters.TextFilters
) -> float:
  """Returns the fraction of lines that text filters drop.

  Args:
    lines: Lines of text to filter.
    code: Language code of the text.
    filters: Filters to apply.
  """
  reasons = [
    text_filters.find_drop_reason((line,), (code,), filters) for line in lines
  ]
  return sum(reason is not None for reason in reasons) / max(1, len(lines))


def read_udhr(data: pathlib.Path) -> Iterator[tuple[str, list[str]]]:
  """Yields the language code and lines of each translation in the UDHR data."""
  with (data / 'udhr/languages.tsv').open(encoding='utf-8') as file:
    for row in csv.DictReader(file, delimiter='\t'):
      path = data / 'udhr' / f'{row["key"]}.txt'
      lines = path.read_text(encoding='utf-8').splitlines()
      yield row['bcp47'].replace('-', '_'), [line for line in lines if line]


def read_django() -> Iterator[tuple[str, list[str]]]:
  """Yields the code of each language and its messages from Django's catalogs.

  Messages with Latin letters are skipped, because they contain untranslated
  text.
  """
  directory = demo_corpus.package_directory('django')
  for code in _DJANGO_LANGUAGES:
    messages = demo_corpus.read_messages(code, directory).values()
    yield (
      code,
      [
        message
        for message in dict.fromkeys(messages)
        if not _LATIN_LETTER.search(message)
      ],
    )


def read_pairs(
  data: pathlib.Path,
) -> Iterator[tuple[str, tuple[str, str], list[tuple[str, str]]]]:
  """Yields the data set, languages and sentence pairs of each parallel text.

  English is the first language of each text.
  """
  for path in sorted((data / 'ntrex').glob('en-*.tsv')):
    rows = (line.split('\t') for line in _read_lines(path))
    code = path.stem.removeprefix('en-')
    yield 'NTREX', ('en', code), [(row[0], row[1]) for row in rows]
  for path in sorted((data / 'tatoeba').glob('*.eng')):
    code = path.stem.removeprefix('tatoeba.').removesuffix('-eng')
    pairs = zip(
      _read_lines(path), _read_lines(path.with_suffix(f'.{code}')), strict=True
    )
    yield 'Tatoeba', ('en', code), list(pairs)
  verses = {
    path.stem: dict(line.split('\t')[:2] for line in _read_lines(path))
    for path in sorted((data / 'bible').glob('*.tsv'))
  }
  english = verses.pop('en', {})
  for code, translations in verses.items():
    common = [key for key in english if key in translations]
    yield (
      'Bible',
      ('en', code),
      [(english[key], translations[key]) for key in common],
    )


def _read_lines(path: pathlib.Path) -> list[str]:
  return path.read_text(encoding='utf-8').splitlines()


def print_tables(args: argparse.Namespace) -> None:
  """Prints the filters' drop rates for monolingual text and sentence pairs."""
  data = pathlib.Path(args.data)
  parallel_texts = list(read_pairs(data))
  _print_filter_table(data, parallel_texts)
  _print_pair_table(parallel_texts)


def _print_filter_table(data: pathlib.Path, parallel_texts: Sequence) -> None:
  """Prints each filter's drop rates for each language and source of text."""
  header = (
    'language',
    'script',
    'source',
    'lines',
    'decontamination',
    'recall',
  )
  print(f'| {" | ".join((*header, *_FILTERS))} |')
  print('| --- ' * (len(header) + len(_FILTERS)) + '|')
  scripts: collections.Counter[str] = collections.Counter()
  texts = [
    *(('UDHR', *text) for text in read_udhr(data)),
    *(('Django', *text) for text in read_django()),
    *(
      (source, codes[1], list(dict.fromkeys(pair[1] for pair in pairs)))
      for source, codes, pairs in parallel_texts
    ),
  ]
  for source, code, lines in texts:
    script = language_codes.parse_language_code(code).script
    if script is None:
      # The script filter does not support the language.
      continue
    scripts[script] += 1
    training, evaluation = lines[1::2], lines[::2]
    # Titles such as "Article 1" occur in both halves if numbers are ignored.
    training = [line for line in training if _has_ngram(line)]
    rates = [
      contamination_rate(training, evaluation),
      decontamination_recall(training, evaluation),
      *(drop_rate(lines, code, filters) for filters in _FILTERS.values()),
    ]
    cells = ' | '.join(
      '–' if rate is None else f'{100 * rate:.1f} %' for rate in rates
    )
    print(f'| {code} | {script} | {source} | {len(lines)} | {cells} |')
  print(f'\n{sum(scripts.values())} texts in {len(scripts)} scripts.')


def _print_pair_table(parallel_texts: Sequence) -> None:
  """Prints the fraction of pairs that the filters keep.

  Args:
    parallel_texts: Parallel texts, as returned by `read_pairs`.
  """
  print('\n| source | pair | pairs | kept by defaults | kept | reasons |')
  print('| --- ' * 6 + '|')
  for source, codes, pairs in parallel_texts:
    num_default = sum(
      text_filters.find_drop_reason(pair, codes, text_filters.TextFilters())
      is None
      for pair in pairs
    )
    reasons = collections.Counter(
      text_filters.find_drop_reason(pair, codes, _PAIR_FILTERS)
      for pair in pairs
    )
    num_kept = reasons.pop(None, 0)
    cells = (
      source,
      '-'.join(codes),
      str(len(pairs)),
      f'{100 * num_default / len(pairs):.1f} %',
      f'{100 * num_kept / len(pairs):.1f} %',
      ', '.join(f'{name} {count}' for name, count in reasons.most_common()),
    )
    print(f'| {" | ".join(cells)} |')


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the study and returns the exit status."""
  parser = command_line.create_parser('studies.text_length', __doc__)
  parser.add_argument(
    '--data',
    required=True,
    type=command_line.input_directory,
    help='Folder with udhr/, ntrex/, tatoeba/ and bible/ (see the README).',
  )
  return command_line.run_command(parser, print_tables, arguments)


if __name__ == '__main__':
  raise SystemExit(main())
