"""Directions of transfer: every training by every test language.

Source: MetaXLM (Chi et al., 2022) section 5.2 and figure 6: models beside each
other, fine-tuned on each language and tested on all.
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
  'Scores (points) of models that were fine-tuned on the language of the '
  'line and tested on that of the column. The gap is the score in the '
  'training language minus the mean of the others. Gains are those of a '
  'model over the first one.'
)
_PREFIX = 'directions.'
_GAP = 'gap'


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class DirectionsStudy(study_base.Study):
  """Matrices of `xlflax finetune --train_languages`.

  Attributes:
    results: name of a model -> folder with `directions.<task>.csv`; the first
      is what others are compared with.
    tasks: that are shown; None: all.
  """

  results: Mapping[str, str]
  tasks: tuple[str, ...] | None = None

  def run(self, models: model_refs.Models) -> analysis_report.Analysis:
    """Runs the analysis; parts that fail are listed in the result."""
    del models  # everything is on disk
    failures = eval_task.Failures('directions')
    rows: list[analysis_report.Row] = []
    for name, directory in self.results.items():
      with failures.guard(name):
        for task, path in self._files(
          pathlib.Path(directory), failures
        ).items():
          rows += [{'series': name, 'task': task} | row for row in _read(path)]
    return analysis_report.Analysis(
      name='directions',
      title='Directions of transfer',
      explanation=_EXPLANATION,
      rows=rows,
      pictures=_pictures(rows),
      tables=_tables(rows),
      settings=eval_task.task_settings(self),
      failures=failures.collected(),
    )

  def _files(
    self, directory: pathlib.Path, failures: eval_task.Failures
  ) -> dict[str, pathlib.Path]:
    """Task -> its file; tasks that have none are failures."""
    found = {
      path.name[len(_PREFIX) : -len('.csv')]: path
      for path in sorted(directory.glob(f'{_PREFIX}*.csv'))
    }
    wanted = tuple(found) if self.tasks is None else self.tasks
    missing = [task for task in wanted if task not in found]
    if missing or not wanted:
      with failures.guard(str(directory)):
        raise errors.AnalysisError(
          'There are no directions of transfer in a folder',
          got=', '.join(found) or None,
          where=str(directory),
          expected=', '.join(missing) or 'directions.<task>.csv',
          fix='run `xlflax finetune --train_languages`',
        )
    return {task: found[task] for task in wanted if task in found}


def _read(path: pathlib.Path) -> list[analysis_report.Row]:
  """A row for each number that the matrix has, with the gap of its line."""
  with path.open(encoding='utf-8', newline='') as stream:
    lines = list(csv.DictReader(stream))
  rows: list[analysis_report.Row] = []
  for number, line in enumerate(lines, 2):
    try:
      train, gap = line.pop('train'), float(line.pop(_GAP) or 'nan')
      rows += [
        {'train': train, 'test': test, 'value': float(value), 'gap': gap}
        for test, value in line.items()
        if value
      ]
    except (KeyError, TypeError, ValueError) as error:
      raise errors.AnalysisError(
        'A line of a matrix of directions cannot be read',
        got=str(line),
        expected='train, scores by language, gap',
        where=f'{path}:{number}',
      ) from error
  if not rows:
    raise errors.AnalysisError(
      'A matrix of directions has no scores', where=str(path)
    )
  return rows


def _panels(
  rows: Sequence[analysis_report.Row],
) -> dict[str, dict[tuple[str, str], float]]:
  """Model -> (training, test language) -> points."""
  panels: dict[str, dict[tuple[str, str], float]] = {}
  for row in rows:
    panels.setdefault(row['series'], {})[row['train'], row['test']] = (
      100 * row['value']
    )
  return panels


def _gains(
  panels: Mapping[str, Mapping[tuple[str, str], float]],
) -> dict[str, dict[tuple[str, str], float]]:
  """'model − first' -> its gains."""
  (first, known), *others = panels.items()
  return {
    f'{name} − {first}': {
      place: value - known[place]
      for place, value in found.items()
      if place in known
    }
    for name, found in others
    if any(place in known for place in found)
  }


def _of_tasks(
  rows: Sequence[analysis_report.Row],
) -> dict[str, list[analysis_report.Row]]:
  found: dict[str, list[analysis_report.Row]] = {}
  for row in rows:
    found.setdefault(row['task'], []).append(row)
  return found


def _pictures(
  rows: Sequence[analysis_report.Row],
) -> dict[str, analysis_report.Picture]:
  pictures = {}
  for task, of_task in _of_tasks(rows).items():
    panels = _panels(of_task)
    title = f'Directions of transfer, {task}'
    pictures[task] = analysis_report.Picture(
      title, figures.directions(title, 'points', panels), of_task
    )
    gains = _gains(panels)
    if gains:
      title = f'Directions of transfer, {task}: gains'
      pictures[f'{task}.gains'] = analysis_report.Picture(
        title,
        figures.directions(title, 'gain (points)', gains, around_zero=True),
        [
          {'series': name, 'train': train, 'test': test, 'gain': value}
          for name, found in gains.items()
          for (train, test), value in found.items()
        ],
      )
  return pictures


def _tables(rows: Sequence[analysis_report.Row]) -> list[text.Table]:
  tables = []
  for task, of_task in _of_tasks(rows).items():
    for series in dict.fromkeys(row['series'] for row in of_task):
      chosen = [row for row in of_task if row['series'] == series]
      tables.append(
        analysis_report.grid(
          f'{task}: {series} (points)',
          chosen + _gap_rows(chosen),
          value='value',
          down=lambda row: row['train'],
          across=lambda row: row['test'],
          corner='trained on',
        )
      )
  return tables


def _gap_rows(rows: list[analysis_report.Row]) -> list[analysis_report.Row]:
  """The column of gaps, as rows of its own."""
  gaps = {row['train']: row[_GAP] for row in rows}
  return [
    {'train': train, 'test': _GAP, 'value': gap}
    for train, gap in gaps.items()
    if not math.isnan(gap)
  ]
