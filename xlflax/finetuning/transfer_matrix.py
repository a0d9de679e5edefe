"""Transfer matrices, which contain scores by training and test language.

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
  """Scores by training language and test language.

  Attributes:
    metric: Metric in the format 'task/metric'.
    rows: Language codes of the training data, one for each of the R rows.
    columns: Language codes of the test data, one for each of the C columns.
    scores: Scores of the selected setting, averaged over seeds, of shape
      [R, C].
  """

  metric: str
  rows: tuple[str, ...]
  columns: tuple[str, ...]
  scores: np.ndarray

  @property
  def gaps(self) -> np.ndarray:
    """Transfer gaps of the R training languages, of shape [R].

    The transfer gap is the score in the training language minus the mean score
    in the remaining languages.
    """
    transfer_gaps = [
      averages.transfer_gap(
        dict(zip(self.columns, scores, strict=True)), source=language
      )
      for language, scores in zip(self.rows, self.scores, strict=True)
    ]
    return np.array(transfer_gaps, float)

  def to_csv(self) -> str:
    """Returns the transfer matrix as CSV, one line per training language."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator='\n')
    writer.writerow(('train', *self.columns, 'gap'))
    for language, scores, gap in zip(
      self.rows, self.scores, self.gaps, strict=True
    ):
      writer.writerow(
        (language, *map(_format_score, scores), _format_score(gap))
      )
    return text.getvalue()


def check_directions(languages: Sequence[str]) -> None:
  """Raises ConfigError unless there are at least two distinct languages."""
  if len(languages) < 2 or len(set(languages)) < len(languages):
    raise errors.ConfigError(
      'The flag --train_languages must contain at least two different language '
      'codes, such as en,fr,ja',
      got=','.join(languages),
    )


def transfer_matrices(
  reports: Mapping[str, grid_report.GridReport],
) -> list[Matrix]:
  """Returns a transfer matrix for each evaluation task's primary metric.

  Args:
    reports: Mapping from training languages to grid reports with test scores.
  """
  primary_metrics = dict.fromkeys(
    name for report in reports.values() for name in report.primary_metrics
  )
  return [_make_matrix(name, reports) for name in primary_metrics]


def _make_matrix(
  metric: str, reports: Mapping[str, grid_report.GridReport]
) -> Matrix:
  """Returns the matrix of one metric."""
  scores_by_language: dict[str, dict[str, float]] = {}
  for language, report in reports.items():
    scores_by_language[language] = {}
    for setting in report.ranking[:1]:
      for name, spread in report.test_spreads(setting).items():
        part = name.removeprefix(f'{metric}/')
        if part != name and part != 'mean' and spread.mean is not None:
          scores_by_language[language][part] = spread.mean
  # The training languages come first, in the order of the rows.
  all_parts = [part for row in scores_by_language.values() for part in row]
  training_parts = [name for name in scores_by_language if name in all_parts]
  columns = tuple(dict.fromkeys(training_parts + all_parts))
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
  """Writes transfer matrices as CSV files and heat maps.

  The files are named `directions.<task>.csv` and `directions.<task>.png`. A
  matrix without scores has no heat map.

  Args:
    output: Output directory.
    matrices: Transfer matrices to write, one for each task.

  Returns:
    Paths to the written files.
  """
  written_paths = []
  for matrix in matrices:
    name = f'directions.{matrix.metric.split("/")[0]}'
    written_paths.append(output / f'{name}.csv')
    paths.write_atomically(written_paths[-1], matrix.to_csv())
    if np.isfinite(matrix.scores).any():
      heat_map_path = output / f'{name}.png'
      written_paths.append(
        plots.save_figure(plot_matrix(matrix), heat_map_path, dpi=_DPI)
      )
  return written_paths


def plot_matrix(matrix: Matrix) -> figure.Figure:
  """Plots a transfer matrix as a heat map with training languages as rows."""
  scores_in_points = {
    (train, test): 100 * float(score)
    for train, row in zip(matrix.rows, matrix.scores, strict=True)
    for test, score in zip(matrix.columns, row, strict=True)
    if np.isfinite(score)
  }
  return figures.directions(matrix.metric, 'points', {'': scores_in_points})


def _format_score(value: float) -> str:
  """Returns a score with six decimals, or an empty string for NaN."""
  return '' if np.isnan(value) else f'{value:.6f}'
