"""Measures what the filters of `xlflax preprocess` drop of clean text.

Monolingual text: the Universal Declaration of Human Rights in each language.
Lines with an odd number train, and those with an even number are evaluation
text. Each filter is applied alone. Pairs: NTREX, with the settings of the guide
on large corpora.
"""

import argparse
import collections
import csv
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from studies import command_line
from xlflax.data.corpus import language_codes
from xlflax.data.preprocessing import contamination, text_filters

_WORDS = 13
_MIN_CHARACTERS = 20
_FILTERS = {
  'script': text_filters.TextFilters(min_letters=0, min_script_share=0.5),
  'language': text_filters.TextFilters(
    min_letters=0, min_language_probability=0.5
  ),
}
# The settings of the guide on large corpora.
_RECIPE = text_filters.TextFilters(
  min_characters=_MIN_CHARACTERS,
  max_characters=5000,
  min_script_share=0.5,
  min_language_probability=0.5,
  max_ratio=3,
)


def contaminated(training: Sequence[str], evaluation: Sequence[str]) -> float:
  """Returns the fraction of training lines that decontamination drops."""
  known = contamination.compute_keys(evaluation, _WORDS)
  return _count_touched(training, known) / max(1, len(training))


def _count_touched(texts: Sequence[str], known: np.ndarray) -> int:
  """Returns the number of texts that share a run with evaluation text."""
  keys, places = contamination._keys(list(texts), _WORDS)
  return np.unique(places[np.isin(keys, known)]).size


def recall(training: Sequence[str], evaluation: Sequence[str]) -> float:
  """Returns the fraction of planted evaluation texts that are found.

  Each evaluation text of at least 13 words is planted between two training
  lines.
  """
  known = contamination.compute_keys(evaluation, _WORDS)
  planted = [
    f'{before} {text} {before}'
    for before, text in zip(training, evaluation, strict=False)
    if _is_long(text)
  ]
  return _count_touched(planted, known) / max(1, len(planted))


def _is_long(text: str) -> bool:
  """Returns whether a text has at least one complete run."""
  weights = map(contamination._weight, contamination._tokens(text))
  return sum(weights) >= _WORDS * contamination._ENGLISH_WORD


def dropped(lines: Sequence[str], code: str, chosen) -> float:
  """Returns the fraction of lines that a filter drops."""
  reasons = [
    text_filters.find_drop_reason((line,), (code,), chosen) for line in lines
  ]
  return sum(reason is not None for reason in reasons) / max(1, len(lines))


def languages(data: pathlib.Path) -> Iterator[tuple[str, list[str]]]:
  """Yields the code and the lines of each language of the UDHR."""
  with (data / 'udhr/languages.tsv').open(encoding='utf-8') as file:
    for row in csv.DictReader(file, delimiter='\t'):
      path = data / 'udhr' / f'{row["key"]}.txt'
      lines = path.read_text(encoding='utf-8').splitlines()
      yield row['bcp47'].replace('-', '_'), [line for line in lines if line]


def measure(args: argparse.Namespace) -> None:
  """Prints the tables."""
  data = pathlib.Path(args.data)
  header = ('language', 'script', 'lines', 'decontamination', 'recall')
  print(f'| {" | ".join((*header, *_FILTERS))} |')
  print('| --- ' * (len(header) + len(_FILTERS)) + '|')
  scripts: collections.Counter[str] = collections.Counter()
  for code, lines in languages(data):
    if language_codes.parse_language_code(code).script is None:
      continue  # The filter of scripts rejects the language.
    scripts[language_codes.parse_language_code(code).script or '?'] += 1
    training, evaluation = lines[1::2], lines[::2]
    # Titles such as "Article 1" without its number occur in both halves.
    training = [line for line in training if _is_long(line)]
    rates = [
      contaminated(training, evaluation),
      recall(training, evaluation),
      *(dropped(lines, code, chosen) for chosen in _FILTERS.values()),
    ]
    cells = ' | '.join(f'{100 * rate:.1f} %' for rate in rates)
    script = language_codes.parse_language_code(code).script
    print(f'| {code} | {script} | {len(lines)} | {cells} |')
  print(f'\n{sum(scripts.values())} texts in {len(scripts)} scripts.')
  print('\n| pair | pairs | kept | reasons |\n| --- | --- | --- | --- |')
  for path in sorted((data / 'ntrex').glob('*-*.tsv')):
    codes = tuple(path.stem.split('-'))
    rows = [
      tuple(line.split('\t')[:2])
      for line in path.read_text(encoding='utf-8').splitlines()
    ]
    reasons = collections.Counter(
      text_filters.find_drop_reason(row, codes, _RECIPE) for row in rows
    )
    kept = reasons.pop(None, 0)
    why = ', '.join(f'{name} {count}' for name, count in reasons.most_common())
    share = f'{100 * kept / len(rows):.1f} %'
    print(f'| {path.stem} | {len(rows)} | {share} | {why} |')


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the study."""
  parser = argparse.ArgumentParser(
    prog='python -m studies.text_length', description=__doc__
  )
  parser.add_argument(
    '--data',
    required=True,
    help='directory with udhr/ and ntrex/, as the README describes',
  )
  return command_line.run_command(parser, measure, arguments)


if __name__ == '__main__':
  raise SystemExit(main())
