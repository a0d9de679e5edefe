"""Every direction of transfer: train on each language, test on all.

Source: Chi et al. (2022), MetaXLM, section 5.1 and figure 6.
"""

import csv
import dataclasses
import io
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import figure

from xlflax.analysis import figures
from xlflax.evaluation import plots
from xlflax.evaluation.metrics import averages
from xlflax.finetuning import grid_report
from xlflax.storage import paths
from xlflax.utils import errors

MACRO = 'TRAIN_LANGUAGE'
_DPI = 160


@dataclasses.dataclass(frozen=True)
class Matrix:
  """Scores by training and test language.

  Attributes:
    metric: 'task/metric'.
    rows: training languages, R of them.
    columns: test languages, C of them.
    scores: [R, C], means over seeds of the selected setting; NaN where there
      is none.
  """

  metric: str
  rows: tuple[str, ...]
  columns: tuple[str, ...]
  scores: np.ndarray

  @property
  def gaps(self) -> np.ndarray:
    """[R] score in the training language minus the mean of the others."""
    transfer_gaps = [
      averages.transfer_gap(dict(zip(self.columns, row, strict=True)), source=n)
      for n, row in zip(self.rows, self.scores, strict=True)
    ]
    return np.array(transfer_gaps, float)

  def to_csv(self) -> str:
    """A line for each training language, with its transfer gap."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator='\n')
    writer.writerow(('train', *self.columns, 'gap'))
    for name, scores, gap in zip(
      self.rows, self.scores, self.gaps, strict=True
    ):
      writer.writerow((name, *map(_shown, scores), _shown(gap)))
    return text.getvalue()


def check_directions(languages: Sequence[str]) -> None:
  """Raises a ConfigError for fewer than two languages, or one twice."""
  if len(languages) < 2 or len(set(languages)) < len(languages):
    raise errors.ConfigError(
      'Directions of transfer are between two languages or more',
      got=','.join(languages),
      where='--train_languages',
      expected='different codes such as en,fr,ja',
    )


def transfer_matrices(
  reports: Mapping[str, grid_report.GridReport],
) -> list[Matrix]:
  """A matrix of each test task's main metric.

  Args:
    reports: training language -> its grid, tested.
  """
  primary_metrics = dict.fromkeys(
    name for report in reports.values() for name in report.primary_metrics
  )
  return [_matrix(name, reports) for name in primary_metrics]


def _matrix(
  metric: str, reports: Mapping[str, grid_report.GridReport]
) -> Matrix:
  scores_by_language: dict[str, dict[str, float]] = {}
  for language, report in reports.items():
    scores_by_language[language] = {}
    for setting in report.ranking[:1]:
      for name, spread in report.test_spreads(setting).items():
        part = name.removeprefix(f'{metric}/')
        if part != name and part != 'mean' and spread.mean is not None:
          scores_by_language[language][part] = spread.mean
  columns = tuple(
    dict.fromkeys(
      [
        name
        for name in scores_by_language
        if any(name in row for row in scores_by_language.values())
      ]
      + [part for row in scores_by_language.values() for part in row]
    )
  )
  scores = np.array(
    [
      [row.get(part, np.nan) for part in columns]
      for row in scores_by_language.values()
    ]
  ).reshape(len(scores_by_language), -1)
  return Matrix(metric, tuple(scores_by_language), columns, scores)


def write_matrices(
  output: pathlib.Path, matrices: Sequence[Matrix]
) -> list[pathlib.Path]:
  """Writes `directions.<task>.csv` and, of what has scores, a heat map."""
  written_paths = []
  for matrix in matrices:
    name = f'directions.{matrix.metric.split("/")[0]}'
    written_paths.append(output / f'{name}.csv')
    paths.write_atomically(written_paths[-1], matrix.to_csv())
    if np.isfinite(matrix.scores).any():
      picture = output / f'{name}.png'
      written_paths.append(
        plots.save_figure(plot_matrix(matrix), picture, dpi=_DPI)
      )
  return written_paths


def plot_matrix(matrix: Matrix) -> figure.Figure:
  """A heat map: training languages down, test languages across."""
  points = {
    (train, test): 100 * float(score)
    for train, row in zip(matrix.rows, matrix.scores, strict=True)
    for test, score in zip(matrix.columns, row, strict=True)
    if np.isfinite(score)
  }
  return figures.directions(matrix.metric, 'points', {'': points})


def _shown(value: float) -> str:
  return '' if np.isnan(value) else f'{value:.6f}'
