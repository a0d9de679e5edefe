"""Learning curves: evaluation results and transfer gaps over training steps.

Source: MetaXLM (Chi et al., 2022) section 5.1 and figure 5: the score in the
source language, the mean of the other languages, and their difference, by
checkpoint.
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
  'Scores of a run’s checkpoints in percent, except perplexities. Transfer is '
  'the mean of the languages other than {source}. The transfer gap is the '
  'score in {source} minus that mean.'
)


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningCurvesStudy(study_base.Study):
  """Analysis that plots evaluation results over training steps.

  Attributes:
    runs: Directories of runs with evaluation results.
    tasks: Evaluation tasks to include. If None, all tasks are included.
    metric: Metric to plot. If None, the main metric of each task is plotted.
    source: Language of the fine-tuning data.
  """

  runs: tuple[str, ...]
  tasks: tuple[str, ...] | None = None
  metric: str | None = None
  source: str = averages.ENGLISH

  def run(self, models: model_refs.Models) -> analysis_report.Analysis:
    """Runs the analysis and records the runs that failed."""
    del models  # Only result files are read.
    failures = eval_task.Failures('curves')
    rows: list[analysis_report.Row] = []
    for directory, name in zip(self.runs, _names(self.runs), strict=True):
      with failures.guard(directory):
        rows += self._run_rows(paths.to_path(directory), name, failures)
    rows.sort(
      key=lambda row: (row['task'], row['model'], row['part'], row['step'])
    )
    return analysis_report.Analysis(
      name='curves',
      title='Learning curves',
      explanation=_EXPLANATION.format(source=self.source),
      rows=rows,
      pictures=self._pictures(rows),
      tables=_tables(rows),
      settings=eval_task.task_settings(self),
      failures=failures.collected(),
    )

  def _run_rows(
    self, directory: pathlib.Path, name: str, failures: eval_task.Failures
  ) -> list[analysis_report.Row]:
    """Returns the rows of all results of a run.

    Args:
      directory: Directory of the run.
      name: Name of the run in tables and legends.
      failures: Recorder to which a failure is added for missing tasks.
    """
    folder = directory / run_directory.EVALUATION
    groups = result_store.find_results(directory)
    available_tasks = sorted({group.task for group in groups})
    tasks = available_tasks if self.tasks is None else self.tasks
    missing = [task for task in tasks if task not in available_tasks]
    if missing or not tasks:
      with failures.guard(str(directory)):
        raise errors.AnalysisError(
          'The run does not contain evaluation results for the requested tasks',
          got=', '.join(available_tasks) or None,
          where=str(folder),
          expected=', '.join(missing)
          or 'eval/<task>/<split>-<settings>/<step>.json',
          fix='Run `xlflax evaluate --checkpoint_steps=all`.',
        )
    rows: list[analysis_report.Row] = []
    for group, results_by_step in groups.items():
      if group.task in tasks:
        with failures.guard(f'{directory}, {group.task}'):
          for step, result in results_by_step.items():
            if result.metrics:
              rows += self._result_rows(
                name,
                _label(group, groups),
                max(result_store.step_sort_key(step), 0),
                result,
              )
    return rows

  def _result_rows(
    self, name: str, task: str, step: int, result: eval_task.EvalResult
  ) -> list[analysis_report.Row]:
    """Returns a row per language or file. The untrained model has step 0."""
    scores: dict[str, dict[str, float]] = {}
    for key, value in result.metrics.items():
      metric, _, part = key.partition('/')
      scores.setdefault(metric, {})[part or 'all'] = value
    metric = self.metric or (*result.score_metrics, *scores)[0]
    if metric not in scores:
      raise errors.AnalysisError(
        f'Task {task!r} does not report the requested metric at step {step}',
        got=metric,
        expected='one of ' + ', '.join(scores),
        fix='Pass a different --metric, or select tasks that report this '
        'metric with --tasks.',
      )
    return [
      {
        'model': name,
        'task': task,
        'metric': metric,
        'part': part,
        'step': step,
        'value': score_table.to_points(metric, value),
      }
      for part, value in scores[metric].items()
    ]

  def _pictures(
    self, rows: Sequence[analysis_report.Row]
  ) -> dict[str, analysis_report.Figure]:
    pictures = {}
    for task in dict.fromkeys(row['task'] for row in rows):
      task_rows = [row for row in rows if row['task'] == task]
      metric = task_rows[0]['metric']
      label = text.metric_name(metric) + (
        ' (points)' if score_table.is_bounded(metric) else ''
      )
      name = re.sub(r'[^\w.-]+', '.', task.replace('/', '_')).strip('.')
      panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
      for row in task_rows:
        panels.setdefault(row['model'], {}).setdefault(row['part'], []).append(
          (row['step'], row['value'])
        )
      title = f'{task} during training'
      if len({row['step'] for row in task_rows}) < 2:
        continue
      pictures[name] = analysis_report.Figure(
        title,
        plots.line_panels(title, label, panels, xlabel=plots.STEP),
        task_rows,
      )
      gaps = self._gaps(task_rows)
      if gaps:
        title = f'{task}: transfer during training'
        panel_curves = {
          model: {
            curve: [
              (row['step'], row['value'])
              for row in gaps
              if (row['model'], row['part']) == (model, curve)
            ]
            for curve in ('transfer', 'source', 'gap')
          }
          for model in dict.fromkeys(row['model'] for row in gaps)
        }
        pictures[f'{name}.transfer'] = analysis_report.Figure(
          title,
          plots.transfer_curves(title, label, self.source, panel_curves),
          gaps,
        )
    return pictures

  def _gaps(
    self, rows: Sequence[analysis_report.Row]
  ) -> list[analysis_report.Row]:
    """Returns rows of transfer, source score and gap for multilingual tasks."""
    scores: dict[tuple[str, int], dict[str, float]] = {}
    for row in rows:
      if row['part'] not in ('mean', 'all') and not math.isnan(row['value']):
        scores.setdefault((row['model'], row['step']), {})[row['part']] = row[
          'value'
        ]
    gap_rows: list[analysis_report.Row] = []
    for (model, step), scores_by_language in scores.items():
      gap = averages.transfer_gap(scores_by_language, source=self.source)
      if gap is not None:
        source = scores_by_language[self.source]
        gap_rows += [
          rows[0] | {'model': model, 'step': step, 'part': part, 'value': value}
          for part, value in (
            ('transfer', source - gap),
            ('source', source),
            ('gap', gap),
          )
        ]
    return gap_rows


def _label(
  group: result_store.Group, groups: Iterable[result_store.Group]
) -> str:
  """Returns the task's name with its split, and its settings if they vary."""
  has_other_settings = any(
    other[:2] == group[:2] and other != group for other in groups
  )
  details = [
    *([] if group.split == 'all' else [group.split]),
    *([group.settings] if has_other_settings else []),
  ]
  return f'{group.task} ({", ".join(details)})' if details else group.task


def _names(directories: Sequence[str]) -> list[str]:
  """Returns each path's last component if it is unique, else the full path."""
  names = [pathlib.Path(directory).name for directory in directories]
  return [
    name if names.count(name) == 1 else directory
    for name, directory in zip(names, directories, strict=True)
  ]


def _tables(rows: Sequence[analysis_report.Row]) -> list[text.Table]:
  """Returns a table for each task, with models as rows and steps as columns."""
  tables = []
  for task in dict.fromkeys(row['task'] for row in rows):
    task_rows = [row for row in rows if row['task'] == task]
    steps = sorted({row['step'] for row in task_rows})
    values_by_label: dict[str, dict[int, float]] = {}
    for row in task_rows:
      values_by_label.setdefault(f'{row["model"]} {row["part"]}', {})[
        row['step']
      ] = row['value']
    tables.append(
      text.Table(
        f'{task} ({text.metric_name(task_rows[0]["metric"])})',
        ['', *map(str, steps)],
        (
          [label, *(text.format_number(values.get(step)) for step in steps)]
          for label, values in values_by_label.items()
        ),
      )
    )
  return tables
