"""Correlation between CKA and retrieval accuracy over a model's layers.

  python -m studies.papers.correlation CKA_DIR SENTENCES_DIR

ECS (Wu et al., 2020, section 5.2) reports for each language pair that two
quantities have a Pearson correlation above 0.9 over the layers: the CKA between
layer i in both models, and the accuracy of sentence retrieval after an
orthogonal map at layer i.

The directories are the output directories of `xlflax analyze cka` and
`xlflax analyze sentence-retrieval --train=...` for the same models and pairs.
"""

import argparse
import csv
import sys
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from studies import command_line

Row = Mapping[str, str]


def layer_correlations(
  cka: Iterable[Row], sentences: Iterable[Row], *, mapping: str = 'procrustes'
) -> dict[tuple[str, str, str], float]:
  """Computes the Pearson correlation of CKA and retrieval accuracy over layers.

  Args:
    cka: Rows of the file `cka.csv`. Only rows that compare the same layer in
      both models are used.
    sentences: Rows of the file `sentences.csv`.
    mapping: Value of the column `mapping` by which rows of `sentences.csv` are
      selected: 'procrustes' or 'none'.

  Returns:
    The correlation by (series, pair, step), for all combinations with three or
    more layers in both files. It is NaN if one of the two quantities is
    constant.
  """
  similarity = {
    (row['series'], row['pair'], row['step'], row['first_layer']): row['cka']
    for row in cka
    if row['first_layer'] == row['second_layer']
  }
  values: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
  for row in sentences:
    name = row['series'], row['pair'], row['step']
    layer_cka = similarity.get((*name, row['layer']))
    if row['mapping'] == mapping and layer_cka is not None:
      pair = float(layer_cka), float(row['accuracy'])
      values.setdefault(name, []).append(pair)
  with np.errstate(invalid='ignore'):
    return {
      name: float(np.corrcoef(np.transpose(pairs))[0, 1])
      for name, pairs in values.items()
      if len(pairs) >= 3
    }


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command and returns the exit status."""
  parser = command_line.create_parser('studies.papers.correlation', __doc__)
  parser.add_argument(
    'cka',
    type=command_line.input_directory,
    metavar='CKA_DIR',
    help='Output directory of `xlflax analyze cka`.',
  )
  parser.add_argument(
    'sentences',
    type=command_line.input_directory,
    metavar='SENTENCES_DIR',
    help='Output directory of `xlflax analyze sentence-retrieval`.',
  )
  return command_line.run_command(parser, _print_correlations, arguments)


def _print_correlations(args: argparse.Namespace) -> None:
  """Prints the correlations as a table."""
  rows = []
  for path in (args.cka / 'cka.csv', args.sentences / 'sentences.csv'):
    with path.open(encoding='utf-8') as file:
      rows.append(list(csv.DictReader(file)))
  print('| series | pair | step | Pearson correlation |')
  print('| --- ' * 4 + '|')
  for (series, pair, step), value in layer_correlations(*rows).items():
    print(f'| {series} | {pair} | {step} | {value:.3f} |')


if __name__ == '__main__':
  sys.exit(main())
