"""Results side by side: a CSV of all numbers, tables of the main ones."""

import csv
import io
import math
import pathlib
from collections.abc import Mapping, Sequence

import rich.console
import rich.table

from xlflax.evaluation import base, results
from xlflax.foundation import console_tables
from xlflax.storage import paths
from xlflax.training.checkpointing import run_directory

CSV = 'summary.csv'
_WIDEST = 8  # steps a table shows: the first and the last ones

Results = Mapping[str, Mapping[results.Step, base.EvalResult]]
_COLUMNS = (*results.Group._fields, 'step', 'metric', 'value')


def write_csv(
  directory: pathlib.Path,
  found: Mapping[results.Group, Mapping[results.Step, base.EvalResult]],
) -> pathlib.Path:
  """Writes `eval/summary.csv` with a line for each number.

  Args:
    directory: of the run.
    found: results by task, split and settings, and by step.

  Returns:
    The file. Its columns are task, split, settings, step, metric and value.
  """
  text = io.StringIO()
  writer = csv.writer(text, lineterminator='\n')
  writer.writerow(_COLUMNS)
  for group, by_step in found.items():
    for step, result in by_step.items():
      writer.writerows(
        (*group, step, name, value) for name, value in result.metrics.items()
      )
  file = directory / run_directory.EVALUATION / CSV
  paths.write_atomically(file, text.getvalue())
  return file


def print_tables(
  tasks: Sequence[base.EvalTask], found: Results, console: rich.console.Console
) -> None:
  """One table a task: languages (or pairs) down, checkpoints across."""
  for task in tasks:
    if found.get(task.name):
      console_tables.show(table(task, found[task.name]), console)


def table(
  task: base.EvalTask, by_step: Mapping[results.Step, base.EvalResult]
) -> rich.table.Table:
  """The task's main metric for each part and checkpoint.

  Further metrics that were found have columns of the first and last checkpoint.
  """
  steps = list(by_step)
  if len(steps) > _WIDEST:
    steps = [steps[0], *steps[1 - _WIDEST :]]
  columns = [
    *((task.primary_metric, step, str(step)) for step in steps),
    *(
      (metric, step, f'{metric}\n{step}')
      for metric in task.further_metrics
      if any(_parts(metric, by_step))
      for step in dict.fromkeys((steps[0], steps[-1]))
    ),
  ]
  split = '' if task.split == 'all' else f', {task.split} split'
  shown = rich.table.Table(
    title=f'{task.name}: {task.primary_metric}{split}', title_justify='left'
  )
  shown.add_column('')
  for _, _, header in columns:
    shown.add_column(header, justify='right')
  for part in _parts(task.primary_metric, by_step):
    values = [
      by_step[step].metrics.get(f'{metric}/{part}')
      for metric, step, _ in columns
    ]
    shown.add_row(
      part, *map(_format, values), style='bold' if part == 'mean' else None
    )
  return shown


def line(task: base.EvalTask, result: base.EvalResult) -> str:
  """The means in a few words, for a log: 'retrieval accuracy 0.612'."""
  means = (
    f'{metric} {_format(result.metrics.get(f"{metric}/mean"))}'
    for metric in (task.primary_metric, *task.further_metrics)
    if metric == task.primary_metric or f'{metric}/mean' in result.metrics
  )
  return f'{task.name} {", ".join(means)}'


def _parts(metric: str, by_step) -> list[str]:
  """Every part that has the metric at some step; the mean last."""
  prefix = f'{metric}/'
  parts = dict.fromkeys(
    name.removeprefix(prefix)
    for result in by_step.values()
    for name in result.metrics
    if name.startswith(prefix)
  )
  return sorted(parts, key=lambda part: (part == 'mean', part))


def _format(value: float | None) -> str:
  if value is None or math.isnan(value):
    return '-'
  return f'{value:.3f}' if abs(value) < 1000 else f'{value:.4g}'
