"""Tests observations from papers with the results of studies/analysis/run.sh.

  python -m studies.analysis.observations OUT

OUT is the folder that contains the analyses' output folders. The program prints
a Markdown table with one line for each observation that a paper reports: the
observation, the measured numbers, and whether they reproduce it. Analyses that
have not been run are skipped.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from studies import command_line
from xlflax.analysis import analysis_report

_TLM = 'MLM and TLM'
_BILINGUAL = ('MLM', _TLM)


class Observation(NamedTuple):
  """An observation from a paper and the measurement that tests it.

  Attributes:
    claim: Description of the paper's observation, including the language pair
      and the models.
    numbers: Measured numbers in percent, formatted as text.
    is_reproduced: Whether the measured numbers agree with the paper's
      observation.
  """

  claim: str
  numbers: str
  is_reproduced: bool


def read_rows(folder: pathlib.Path) -> list[analysis_report.Row]:
  """Returns the result rows of an analysis, or [] if it has not been run."""
  path = folder / analysis_report.JSON
  if not path.exists():
    return []
  return json.loads(path.read_text(encoding='utf-8'))['rows']


def values_by_layer(
  rows: Sequence[analysis_report.Row],
  value: str,
  *,
  layer: str = 'layer',
  **columns: str,
) -> np.ndarray:
  """Returns a column's values in the selected rows, ordered by layer.

  Args:
    rows: Rows of an analysis result, as dictionaries from column name to value.
    value: Name of the column that contains the values. A missing value becomes
      NaN.
    layer: Name of the column that contains the layer index.
    **columns: Values that additional columns must have.
  """
  values = sorted(
    (row[layer], row[value])
    for row in rows
    if all(row[name] == content for name, content in columns.items())
  )
  return np.array(
    [np.nan if number is None else number for _, number in values], np.float64
  )


def check_similarity(
  rows: Sequence[analysis_report.Row],
) -> Iterator[Observation]:
  """Checks the observations in section 5.2 and figure 7 of the ECS paper.

  Args:
    rows: Rows in the result of `xlflax analyze cka`.
  """
  rows = _same_layers(rows)
  for pair in _distinct_values(rows, 'pair'):
    cka_by_series = {
      series: values_by_layer(
        rows, 'cka', layer='first_layer', pair=pair, series=series
      )
      for series in _distinct_values(rows, 'series')
    }
    means = {series: cka.mean() for series, cka in cka_by_series.items()}
    numbers = ', '.join(
      f'{series} {100 * mean:.1f}' for series, mean in means.items()
    )
    yield Observation(
      f'{pair}: bilingual models are more similar than monolingual ones',
      numbers,
      means['MLM'] > means['monolingual'],
    )
    yield Observation(
      f'{pair}: the random encoder is the lower bound',
      numbers,
      means['random'] == min(means.values()),
    )
    for series in ('MLM', 'monolingual'):
      cka = cka_by_series[series]
      half = len(cka) // 2
      yield Observation(
        f'{pair}, {series}: lower layers are more similar',
        _format_percentages(cka),
        cka[:half].mean() > cka[-half:].mean(),
      )


def check_sentence_retrieval(
  rows: Sequence[analysis_report.Row], cka_rows: Sequence[analysis_report.Row]
) -> Iterator[Observation]:
  """Checks observations in ECS (section 5.1.3) and in MetaXLM (figure 3).

  Args:
    rows: Rows in the result of `xlflax analyze sentence-retrieval`.
    cka_rows: Rows in the result of `xlflax analyze cka` for the same models.
  """
  cka_rows = _same_layers(cka_rows)
  for pair in _distinct_values(rows, 'pair'):
    for series in ('monolingual', *_BILINGUAL):
      unmapped, mapped = (
        values_by_layer(
          rows, 'accuracy', pair=pair, series=series, mapping=mapping
        )
        for mapping in ('none', 'procrustes')
      )
      yield Observation(
        f'{pair}, {series}: a map helps',
        f'best layer {100 * unmapped.max():.1f} without, '
        f'{100 * mapped.max():.1f} with',
        mapped.max() > unmapped.max(),
      )
      yield Observation(
        f'{pair}, {series}: lower layers are retrieved best after the map',
        _format_percentages(mapped),
        int(mapped.argmax()) <= len(mapped) // 2,
      )
    cka = values_by_layer(
      cka_rows, 'cka', layer='first_layer', pair=pair, series='monolingual'
    )
    mapped = values_by_layer(
      rows, 'accuracy', pair=pair, series='monolingual', mapping='procrustes'
    )
    if len(cka) == len(mapped):
      correlation = _pearson(cka, mapped)
      yield Observation(
        f'{pair}, monolingual: CKA and retrieval after the map correlate '
        'over layers (Pearson above 0.9)',
        f'{correlation:.2f}',
        correlation > 0.9,
      )


def check_word_translation(
  rows: Sequence[analysis_report.Row],
) -> Iterator[Observation]:
  """Checks the observations in section 5.1.1 and figure 4 of the ECS paper.

  Args:
    rows: Rows in the result of `xlflax analyze lexicon-induction`.
  """
  rows = [row for row in rows if row['layer'] is not None]
  for pair in _distinct_values(rows, 'pair'):
    for series in ('monolingual', *_BILINGUAL):
      precision = values_by_layer(
        rows,
        'precision@1',
        pair=pair,
        series=series,
        score='csls',
        mapping='procrustes',
      )
      if len(precision) > 1:
        half = len(precision) // 2
        yield Observation(
          f'{pair}, {series}: upper layers translate words better',
          _format_percentages(precision),
          precision[-half:].mean() > precision[:half].mean(),
        )


def check_word_alignment(
  rows: Sequence[analysis_report.Row],
) -> Iterator[Observation]:
  """Checks the observations in section 4.4 and figure 4 of MetaXLM.

  Args:
    rows: Rows in the result of `xlflax analyze alignment`.
  """
  for pair in _distinct_values(rows, 'pair'):
    trained, untrained = (
      values_by_layer(
        rows, 'aer', pair=pair, series=series, method='mutual_transport'
      )
      for series in (_TLM, 'untrained')
    )
    yield Observation(
      f'{pair}: the error is lowest in the middle layers',
      _format_percentages(trained),
      0 < int(trained.argmin()) < len(trained) - 1,
    )
    yield Observation(
      f'{pair}: pretraining lowers the error',
      f'best layer {100 * trained.min():.1f}, untrained '
      f'{100 * untrained.min():.1f}',
      trained.min() < untrained.min(),
    )


def _same_layers(
  rows: Sequence[analysis_report.Row],
) -> list[analysis_report.Row]:
  """Returns the rows that compare a layer with the other model's same layer."""
  return [row for row in rows if row['first_layer'] == row['second_layer']]


def _distinct_values(
  rows: Sequence[analysis_report.Row], column: str
) -> list[str]:
  """Returns a column's distinct values in the order of the rows."""
  return list(dict.fromkeys(row[column] for row in rows))


def _format_percentages(values: np.ndarray) -> str:
  return ', '.join(f'{100 * value:.1f}' for value in values)


def _pearson(first: np.ndarray, second: np.ndarray) -> float:
  """Returns the Pearson correlation, or NaN if it is undefined."""
  if len(first) < 3 or not (np.ptp(first) and np.ptp(second)):
    return float('nan')
  return float(np.corrcoef(first, second)[0, 1])


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command and returns the exit status."""
  parser = command_line.create_parser('studies.analysis.observations', __doc__)
  parser.add_argument(
    'output',
    type=command_line.input_directory,
    metavar='OUT',
    help='Folder that contains the folders of the analyses.',
  )
  return command_line.run_command(parser, _print_observations, arguments)


def _print_observations(args: argparse.Namespace) -> None:
  """Prints a table of the papers' observations and the measured numbers."""
  folder = args.output
  cka_rows = read_rows(folder / 'cka-biased')
  observations = [
    *check_similarity(cka_rows),
    *check_sentence_retrieval(read_rows(folder / 'sentences'), cka_rows),
    *check_word_translation(read_rows(folder / 'words')),
  ]
  for pair in ('en-de', 'ja-en'):
    observations += check_word_alignment(
      read_rows(folder / f'alignment-{pair}')
    )
  print(
    '| observation | by layer, or means (%) | reproduced |\n| --- | --- | --- |'
  )
  for claim, numbers, is_reproduced in observations:
    print(f'| {claim} | {numbers} | {"yes" if is_reproduced else "no"} |')


if __name__ == '__main__':
  sys.exit(main())
