"""Which observations of the papers appear in what studies/analysis/run.sh found.

  python -m studies.analysis.observations OUT

OUT holds the folders of the analyses. Prints a Markdown table: what the paper
saw, the numbers here, and whether they say the same.
"""

import argparse
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from xlflax.analysis import analysis_report
from xlflax.utils import errors

_TLM = 'MLM and TLM'
_BILINGUAL = ('MLM', _TLM)


def rows_of(folder: pathlib.Path) -> list[analysis_report.Row]:
  """The rows of an analysis; none if it has not been made."""
  try:
    return analysis_report.read_rows(folder)[1]
  except errors.AnalysisError:
    return []


def by_layer(
  rows: Sequence[analysis_report.Row],
  value: str,
  *,
  layer: str = 'layer',
  **wanted,
) -> np.ndarray:
  """The values of the rows with some columns, in the order of layers."""
  chosen = sorted(
    (row[layer], row[value])
    for row in rows
    if all(row[name] == content for name, content in wanted.items())
  )
  return np.array(
    [np.nan if number is None else number for _, number in chosen], np.float64
  )


def _names(rows: Sequence[analysis_report.Row], column: str) -> list[str]:
  return list(dict.fromkeys(row[column] for row in rows))


def _points(values: np.ndarray) -> str:
  return ', '.join(f'{100 * value:.1f}' for value in values)


def _pearson(first: np.ndarray, second: np.ndarray) -> float:
  if len(first) < 3 or not (np.ptp(first) and np.ptp(second)):
    return float('nan')
  return float(np.corrcoef(first, second)[0, 1])


def similarity(
  rows: Sequence[analysis_report.Row],
) -> Iterator[tuple[str, str, bool]]:
  """ECS section 5.2 and figure 7."""
  rows = [row for row in rows if row['first_layer'] == row['second_layer']]
  for pair in _names(rows, 'pair'):
    means = {
      series: by_layer(
        rows, 'cka', layer='first_layer', pair=pair, series=series
      )
      for series in _names(rows, 'series')
    }
    mean = {name: values.mean() for name, values in means.items()}
    numbers = ', '.join(
      f'{name} {100 * value:.1f}' for name, value in mean.items()
    )
    yield (
      f'{pair}: bilingual models are more similar than monolingual ones',
      numbers,
      mean['MLM'] > mean['monolingual'],
    )
    yield (
      f'{pair}: the random encoder is the lower bound',
      numbers,
      mean['random'] == min(mean.values()),
    )
    for series in ('MLM', 'monolingual'):
      values = means[series]
      half = len(values) // 2
      yield (
        f'{pair}, {series}: lower layers are more similar',
        _points(values),
        values[:half].mean() > values[-half:].mean(),
      )


def retrieval(
  rows: Sequence[analysis_report.Row], similar: Sequence[analysis_report.Row]
) -> Iterator[tuple[str, str, bool]]:
  """ECS section 5.1.3 and figure 6; MetaXLM figure 3."""
  similar = [
    row for row in similar if row['first_layer'] == row['second_layer']
  ]
  for pair in _names(rows, 'pair'):
    for series in ('monolingual', *_BILINGUAL):
      found = {
        mapping: by_layer(
          rows, 'accuracy', pair=pair, series=series, mapping=mapping
        )
        for mapping in ('none', 'procrustes')
      }
      mapped, plain = found['procrustes'], found['none']
      yield (
        f'{pair}, {series}: a map helps',
        f'best layer {100 * plain.max():.1f} without, '
        f'{100 * mapped.max():.1f} with',
        mapped.max() > plain.max(),
      )
      yield (
        f'{pair}, {series}: lower layers are retrieved best after the map',
        _points(mapped),
        int(mapped.argmax()) <= len(mapped) // 2,
      )
    cka = by_layer(
      similar, 'cka', layer='first_layer', pair=pair, series='monolingual'
    )
    mapped = by_layer(
      rows, 'accuracy', pair=pair, series='monolingual', mapping='procrustes'
    )
    if len(cka) == len(mapped):
      pearson = _pearson(cka, mapped)
      yield (
        f'{pair}, monolingual: CKA and retrieval after the map go '
        'together over layers (Pearson above 0.9)',
        f'{pearson:.2f}',
        pearson > 0.9,
      )


def translation(
  rows: Sequence[analysis_report.Row],
) -> Iterator[tuple[str, str, bool]]:
  """ECS section 5.1.1 and figure 4."""
  for pair in _names(rows, 'pair'):
    for series in ('monolingual', *_BILINGUAL):
      values = by_layer(
        [row for row in rows if row['layer'] is not None],
        'precision@1',
        pair=pair,
        series=series,
        score='csls',
        mapping='procrustes',
      )
      if len(values) > 1:
        half = len(values) // 2
        yield (
          f'{pair}, {series}: upper layers translate words better',
          _points(values),
          values[-half:].mean() > values[:half].mean(),
        )


def alignment(
  rows: Sequence[analysis_report.Row],
) -> Iterator[tuple[str, str, bool]]:
  """MetaXLM section 4.4 and figure 4."""
  for pair in _names(rows, 'pair'):
    values = by_layer(
      rows, 'aer', pair=pair, series=_TLM, method='mutual_transport'
    )
    untrained = by_layer(
      rows, 'aer', pair=pair, series='untrained', method='mutual_transport'
    )
    yield (
      f'{pair}: the error is least in the middle',
      _points(values),
      0 < int(values.argmin()) < len(values) - 1,
    )
    yield (
      f'{pair}: pretraining lowers the error',
      f'best layer {100 * values.min():.1f}, untrained '
      f'{100 * untrained.min():.1f}',
      values.min() < untrained.min(),
    )


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('output', type=pathlib.Path, metavar='OUT')
  out = parser.parse_args().output
  similar = rows_of(out / 'cka-biased')
  found = [
    *similarity(similar),
    *retrieval(rows_of(out / 'sentences'), similar),
    *translation(rows_of(out / 'words')),
  ]
  for name in ('en-de', 'ja-en'):
    found += alignment(rows_of(out / f'alignment-{name}'))
  print('| observation | by layer, or means (%) | here |\n| --- | --- | --- |')
  for claim, numbers, appears in found:
    print(f'| {claim} | {numbers} | {"yes" if appears else "no"} |')


if __name__ == '__main__':
  main()
