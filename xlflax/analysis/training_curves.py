"""Curves along training: evaluation results and the transfer gap.

Source: MetaXLM (Chi et al., 2022) section 5.1 and figure 5: score in the
source language, mean of the others, and their difference, by checkpoint.
"""

import dataclasses
import math
import pathlib
import re
from collections.abc import Iterable, Sequence

from xlflax.analysis import analysis_report, model_refs, study_base
from xlflax.evaluation import eval_task, plots, result_store
from xlflax.evaluation.metrics import averages
from xlflax.evaluation.reports import score_table, text
from xlflax.storage import paths
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors, validation

_EXPLANATION = (
  'Scores of a run’s checkpoints in points: percent, perplexities as they '
  'are. Transfer is the mean of the languages other than {source}, the '
  'transfer gap the score in {source} minus that mean.'
)


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class CurvesStudy(study_base.Study):
  """What is there of runs, by checkpoint.

  Attributes:
    runs: directories of runs with results of evaluations.
    tasks: evaluation tasks that are shown; None: all.
    metric: of the tasks; None: the one that each task's score is made of.
    source: the language that runs were fine-tuned in.
  """

  runs: tuple[str, ...]
  tasks: tuple[str, ...] | None = None
  metric: str | None = None
  source: str = averages.ENGLISH

  def run(self, models: model_refs.Models) -> analysis_report.Analysis:
    """Runs the analysis; parts that fail are listed in the result."""
    del models  # everything is on disk
    failures = eval_task.Failures('curves')
    rows: list[analysis_report.Row] = []
    for directory, name in zip(self.runs, _names(self.runs), strict=True):
      with failures.guard(directory):
        rows += self._of_run(paths.to_path(directory), name, failures)
    rows.sort(
      key=lambda row: (row['task'], row['model'], row['part'], row['step'])
    )
    return analysis_report.Analysis(
      name='curves',
      title='Along training',
      explanation=_EXPLANATION.format(source=self.source),
      rows=rows,
      pictures=self._pictures(rows),
      tables=_tables(rows),
      settings=eval_task.task_settings(self),
      failures=failures.collected(),
    )

  def _of_run(
    self, directory: pathlib.Path, name: str, failures: eval_task.Failures
  ) -> list[analysis_report.Row]:
    folder = directory / run_directory.EVALUATION
    groups = result_store.find_results(directory)
    found = sorted({group.task for group in groups})
    wanted = found if self.tasks is None else self.tasks
    missing = [task for task in wanted if task not in found]
    if missing or not wanted:
      with failures.guard(str(directory)):
        raise errors.AnalysisError(
          'A run has no results of evaluations',
          got=', '.join(found) or None,
          where=str(folder),
          expected=', '.join(missing)
          or 'eval/<task>/<split>-<settings>/<step>.json',
          fix='run `xlflax evaluate --checkpoint_steps=all`',
        )
    rows: list[analysis_report.Row] = []
    for group, by_step in groups.items():
      if group.task in wanted:
        with failures.guard(f'{directory}, {group.task}'):
          for step, result in by_step.items():
            if result.metrics:
              rows += self._of_result(
                name,
                _label(group, groups),
                max(result_store.step_sort_key(step), 0),
                result,
              )
    return rows

  def _of_result(
    self, name: str, task: str, step: int, result: eval_task.EvalResult
  ) -> list[analysis_report.Row]:
    """Returns a row for each part; the untrained model has step 0."""
    scores: dict[str, dict[str, float]] = {}
    for key, value in result.metrics.items():
      metric, _, part = key.partition('/')
      scores.setdefault(metric, {})[part or 'all'] = value
    metric = self.metric or (*result.score_metrics, *scores)[0]
    if metric not in scores:
      raise errors.AnalysisError(
        'A task has no such metric',
        got=metric,
        expected='one of ' + ', '.join(scores),
        where=f'step {step}',
        fix='name the tasks that have it, or another metric',
      )
    return [
      {
        'model': name,
        'task': task,
        'metric': metric,
        'part': part,
        'step': step,
        'value': score_table.points(metric, value),
      }
      for part, value in scores[metric].items()
    ]

  def _pictures(
    self, rows: Sequence[analysis_report.Row]
  ) -> dict[str, analysis_report.Picture]:
    pictures = {}
    for task in dict.fromkeys(row['task'] for row in rows):
      of_task = [row for row in rows if row['task'] == task]
      metric = of_task[0]['metric']
      label = text.metric_name(metric) + (
        ' (points)' if score_table.is_bounded(metric) else ''
      )
      name = re.sub(r'[^\w.-]+', '.', task.replace('/', '_')).strip('.')
      panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
      for row in of_task:
        panels.setdefault(row['model'], {}).setdefault(row['part'], []).append(
          (row['step'], row['value'])
        )
      title = f'{task} along training'
      if len({row['step'] for row in of_task}) < 2:
        continue
      pictures[name] = analysis_report.Picture(
        title,
        plots.line_panels(title, label, panels, xlabel=plots.STEP),
        of_task,
      )
      gaps = self._gaps(of_task)
      if gaps:
        title = f'{task}: transfer along training'
        lines = {
          model: {
            kind: [
              (row['step'], row['value'])
              for row in gaps
              if (row['model'], row['part']) == (model, kind)
            ]
            for kind in ('transfer', 'source', 'gap')
          }
          for model in dict.fromkeys(row['model'] for row in gaps)
        }
        pictures[f'{name}.transfer'] = analysis_report.Picture(
          title, plots.transfer_curves(title, label, self.source, lines), gaps
        )
    return pictures

  def _gaps(
    self, rows: Sequence[analysis_report.Row]
  ) -> list[analysis_report.Row]:
    """Rows of transfer, source and gap, where the task has languages."""
    scores: dict[tuple[str, int], dict[str, float]] = {}
    for row in rows:
      if row['part'] not in ('mean', 'all') and not math.isnan(row['value']):
        scores.setdefault((row['model'], row['step']), {})[row['part']] = row[
          'value'
        ]
    out: list[analysis_report.Row] = []
    for (model, step), by_language in scores.items():
      gap = averages.transfer_gap(by_language, source=self.source)
      if gap is not None:
        source = by_language[self.source]
        out += [
          rows[0] | {'model': model, 'step': step, 'part': part, 'value': value}
          for part, value in (
            ('transfer', source - gap),
            ('source', source),
            ('gap', gap),
          )
        ]
    return out


def _label(
  group: result_store.Group, groups: Iterable[result_store.Group]
) -> str:
  """Returns the task's name with its split, and its settings if they vary."""
  several = [
    other for other in groups if other[:2] == group[:2] and other != group
  ]
  details = [
    *([] if group.split == 'all' else [group.split]),
    *([group.settings] if several else []),
  ]
  return f'{group.task} ({", ".join(details)})' if details else group.task


def _names(directories: Sequence[str]) -> list[str]:
  """Short names; the whole path where two are the same."""
  short = [pathlib.Path(directory).name for directory in directories]
  return [
    name if short.count(name) == 1 else directory
    for name, directory in zip(short, directories, strict=True)
  ]


def _tables(rows: Sequence[analysis_report.Row]) -> list[text.Table]:
  """For each task a line for each model and part, a column for each step."""
  tables = []
  for task in dict.fromkeys(row['task'] for row in rows):
    of_task = [row for row in rows if row['task'] == task]
    steps = sorted({row['step'] for row in of_task})
    lines: dict[str, dict[int, float]] = {}
    for row in of_task:
      lines.setdefault(f'{row["model"]} {row["part"]}', {})[row['step']] = row[
        'value'
      ]
    tables.append(
      text.Table(
        f'{task} ({text.metric_name(of_task[0]["metric"])})',
        ['', *map(str, steps)],
        (
          [name, *(text.number(found.get(step)) for step in steps)]
          for name, found in lines.items()
        ),
      )
    )
  return tables
