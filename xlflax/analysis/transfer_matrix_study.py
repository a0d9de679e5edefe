"""Comparison of models by cross-lingual transfer between all language pairs.

Source: MetaXLM (Chi et al., 2022) section 5.2 and figure 6. The models are
fine-tuned on each language and tested on all languages.
"""

import csv
import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence

from xlflax.analysis import analysis_report, figures, model_refs, study_base
from xlflax.evaluation import eval_task
from xlflax.evaluation.reports import text
from xlflax.utils import errors, validation

_EXPLANATION = (
  'Scores (points) of models that were fine-tuned on the language of the row '
  'and tested on the language of the column. The gap is the score in the '
  'training language minus the mean score in the other languages. A gain is '
  'the score of a model minus the score of the first model.'
)
_PREFIX = 'directions.'
_GAP = 'gap'


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class TransferMatrixStudy(study_base.Study):
  """Analysis of transfer matrices from `xlflax finetune --train_languages`.

  Attributes:
    results: Map from model to the folder that contains its files
      `directions.<task>.csv`. The other models are compared with the first one.
    tasks: Tasks to include. If None, all tasks are included.
  """

  results: Mapping[str, str]
  tasks: tuple[str, ...] | None = None

  def run(self, models: model_refs.Models) -> analysis_report.Analysis:
    """Runs the analysis and records the models that failed."""
    del models  # Only result files are read.
    failures = eval_task.Failures('directions')
    rows: list[analysis_report.Row] = []
    for name, directory in self.results.items():
      with failures.guard(name):
        for task, path in self._find_files(
          pathlib.Path(directory), failures
        ).items():
          rows += [
            {'series': name, 'task': task} | row for row in _read_matrix(path)
          ]
    return analysis_report.Analysis(
      name='directions',
      title='Transfer between languages',
      explanation=_EXPLANATION,
      rows=rows,
      pictures=_pictures(rows),
      tables=_tables(rows),
      settings=eval_task.task_settings(self),
      failures=failures.collected(),
    )

  def _find_files(
    self, directory: pathlib.Path, failures: eval_task.Failures
  ) -> dict[str, pathlib.Path]:
    """Returns the matrix file of each task.

    Tasks without a matrix file are added to the failures.
    """
    available = {
      path.name[len(_PREFIX) : -len('.csv')]: path
      for path in sorted(directory.glob(f'{_PREFIX}*.csv'))
    }
    tasks = tuple(available) if self.tasks is None else self.tasks
    missing = [task for task in tasks if task not in available]
    if missing or not tasks:
      with failures.guard(str(directory)):
        raise errors.AnalysisError(
          'The folder must contain a transfer matrix for each requested task',
          got=', '.join(available) or None,
          where=str(directory),
          expected=', '.join(missing) or 'directions.<task>.csv',
          fix='Run `xlflax finetune --train_languages`.',
        )
    return {task: available[task] for task in tasks if task in available}


def _read_matrix(path: pathlib.Path) -> list[analysis_report.Row]:
  """Returns a row for each score of a matrix, with the transfer gap."""
  try:
    with path.open(encoding='utf-8-sig', newline='') as stream:
      lines = list(csv.DictReader(stream))
  except ValueError as error:
    raise errors.AnalysisError(
      'The transfer matrix file must be encoded in UTF-8', where=str(path)
    ) from error
  rows: list[analysis_report.Row] = []
  for number, line in enumerate(lines, 2):
    try:
      train = line.pop('train')
      gap = float(line.pop(_GAP) or 'nan')
      rows += [
        {'train': train, 'test': test, 'value': float(value), 'gap': gap}
        for test, value in line.items()
        if value
      ]
    except (KeyError, TypeError, ValueError) as error:
      raise errors.AnalysisError(
        'Each line of a transfer matrix must contain the columns `train` and '
        '`gap` and one score per language',
        got=str(line),
        where=errors.line_location(path, number),
      ) from error
  if not rows:
    raise errors.AnalysisError(
      'The transfer matrix does not contain any scores', where=str(path)
    )
  return rows


def _panels(
  rows: Sequence[analysis_report.Row],
) -> dict[str, dict[tuple[str, str], float]]:
  """Returns points by model and (training language, test language)."""
  panels: dict[str, dict[tuple[str, str], float]] = {}
  for row in rows:
    panels.setdefault(row['series'], {})[row['train'], row['test']] = (
      100 * row['value']
    )
  return panels


def _gains(
  panels: Mapping[str, Mapping[tuple[str, str], float]],
) -> dict[str, dict[tuple[str, str], float]]:
  """Returns the gains of all other models over the first model.

  The names of the panels have the form 'model − first model'.
  """
  (first_name, first_scores), *other_panels = panels.items()
  gains = {}
  for name, scores in other_panels:
    common_pairs = [pair for pair in scores if pair in first_scores]
    if common_pairs:
      gains[f'{name} − {first_name}'] = {
        pair: scores[pair] - first_scores[pair] for pair in common_pairs
      }
  return gains


def _group_by_task(
  rows: Sequence[analysis_report.Row],
) -> dict[str, list[analysis_report.Row]]:
  rows_by_task: dict[str, list[analysis_report.Row]] = {}
  for row in rows:
    rows_by_task.setdefault(row['task'], []).append(row)
  return rows_by_task


def _pictures(
  rows: Sequence[analysis_report.Row],
) -> dict[str, analysis_report.Figure]:
  pictures = {}
  for task, task_rows in _group_by_task(rows).items():
    panels = _panels(task_rows)
    title = f'Transfer between languages, {task}'
    pictures[task] = analysis_report.Figure(
      title, figures.directions(title, 'points', panels), task_rows
    )
    gains = _gains(panels)
    if gains:
      title = f'Transfer between languages, {task}: gains'
      pictures[f'{task}.gains'] = analysis_report.Figure(
        title,
        figures.directions(title, 'gain (points)', gains, around_zero=True),
        [
          {'series': name, 'train': train, 'test': test, 'gain': value}
          for name, panel_gains in gains.items()
          for (train, test), value in panel_gains.items()
        ],
      )
  return pictures


def _tables(rows: Sequence[analysis_report.Row]) -> list[text.Table]:
  tables = []
  for task, task_rows in _group_by_task(rows).items():
    for series in dict.fromkeys(row['series'] for row in task_rows):
      series_rows = [row for row in task_rows if row['series'] == series]
      tables.append(
        analysis_report.grid(
          f'{task}: {series} (points)',
          series_rows + _gap_rows(series_rows),
          value='value',
          down=lambda row: row['train'],
          across=lambda row: row['test'],
          corner='trained on',
        )
      )
  return tables


def _gap_rows(rows: list[analysis_report.Row]) -> list[analysis_report.Row]:
  """Returns one row per transfer gap, for an additional table column."""
  gaps = {row['train']: row[_GAP] for row in rows}
  return [
    {'train': train, 'test': _GAP, 'value': gap}
    for train, gap in gaps.items()
    if not math.isnan(gap)
  ]
