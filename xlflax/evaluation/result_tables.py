"""Results side by side: a CSV of all numbers, tables of the main ones."""

import csv
import io
import math
import pathlib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import rich.console
import rich.table

from xlflax.data.corpus import language_codes
from xlflax.evaluation import eval_task, result_store, task_families
from xlflax.evaluation.metrics import bootstrap
from xlflax.storage import paths
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors, rich_tables

CSV = 'summary.csv'
CHANCE = 'chance'
_WIDEST = 8  # steps a table shows: the first and the last ones

Interval = tuple[float, float]
Results = Mapping[str, Mapping[result_store.Step, eval_task.EvalResult]]
_GUESSES = ('chance', 'majority')
_COUNTS = ('examples', 'sentences', 'tokens')
_COLUMNS = (*result_store.Group._fields, 'step', 'metric', 'value')


class Recorded(NamedTuple):
  """A task of which nothing but results on disk is known."""

  name: str
  split: str
  primary_metric: str
  further_metrics: tuple[str, ...] = ()

  def statistics(self, part: str, folder: pathlib.Path):
    """As `EvalTask.statistics`."""
    nobody: Any = self
    return eval_task.EvalTask.statistics(nobody, part, folder)


def summarize_group(
  group: result_store.Group, by_step, *, is_one_of_many: bool
):
  """The task of a group of results; None where no part has a number.

  Args:
    group: the results' place.
    by_step: the results.
    is_one_of_many: whether others share its task and split.
  """
  for result in by_step.values():
    if result.metrics:
      first = (*result.score_metrics, *result.metrics)[0].partition('/')[0]
      name = f'{group.task}-{group.settings}' if is_one_of_many else group.task
      return Recorded(name, group.split, first)
  return None


def write_csv(
  directory: pathlib.Path,
  found: Mapping[
    result_store.Group, Mapping[result_store.Step, eval_task.EvalResult]
  ],
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
  tasks: Sequence[eval_task.EvalTask],
  found: Results,
  console: rich.console.Console,
) -> None:
  """One table a task: languages (or pairs) down, checkpoints across."""
  for task in tasks:
    if found.get(task.name):
      rich_tables.print_table(result_table(task, found[task.name]), console)


def result_intervals(
  task: eval_task.EvalTask | Recorded,
  result: eval_task.EvalResult,
  folder: pathlib.Path,
) -> dict[str, Interval]:
  """Metric -> 95 % interval of the test set, where examples are recorded.

  A mean has one where all of its parts have.

  Args:
    task: whose result it is.
    result: of one checkpoint.
    folder: with that result's files.
  """
  parts = dict.fromkeys(name.partition('/')[2] for name in result.metrics)
  drawn = {
    f'{metric}/{part}': one
    for part in parts
    for metric, one in _drawn(task, part, folder).items()
    if _is_of(one, result.metrics.get(f'{metric}/{part}'))
  }
  for name in result.metrics:
    metric, _, part = name.partition('/')
    names = [f'{metric}/{x}' for x in parts_of(metric, {0: result})]
    known = [drawn[x] for x in names if x in drawn]
    if part == 'mean' and known and len(known) == len(names) - 1:
      for mean in (_mean_of(known), _mean_of(known, geometric=True)):
        if mean is not None and _is_of(mean, result.metrics[name]):
          drawn[name] = mean
  return {
    name: bootstrap.confidence_interval(one) for name, one in drawn.items()
  }


def _mean_of(
  parts: Sequence[bootstrap.Drawn], *, geometric: bool = False
) -> bootstrap.Drawn | None:
  shares = [1 / len(parts)] * len(parts)
  if not geometric:
    return bootstrap.combine_draws(parts, shares)
  with np.errstate(divide='ignore', invalid='ignore'):
    logs = [
      one._replace(scores=np.log(one.scores), values=np.log(one.values))
      for one in parts
    ]
    mean = bootstrap.combine_draws(logs, shares)
  if mean is None:
    return None
  return mean._replace(scores=np.exp(mean.scores), values=np.exp(mean.values))


def _drawn(task, part: str, folder: pathlib.Path) -> dict[str, bootstrap.Drawn]:
  """Metric -> a part's scores on drawn test sets; {} if nothing tells."""
  try:
    found = task.statistics(part, folder) if part not in ('', 'mean') else {}
    return {
      metric: bootstrap.bootstrap_scores(one)
      for metric, one in found.items()
      if one.by_cluster().size > 1
    }
  except (OSError, ValueError, LookupError, StopIteration, errors.XlflaxError):
    return {}


def _is_of(drawn: bootstrap.Drawn, value: float | None) -> bool:
  return (
    value is not None
    and math.isfinite(value)
    and math.isclose(drawn.scores.mean(), value)
  )


def iterate_records(
  tasks: Sequence[eval_task.EvalTask],
  found: Results,
  folders: Mapping[str, pathlib.Path],
) -> Iterator[dict[str, Any]]:
  """Yields a flat record of each number, for programs.

  'unit' is 'fraction', 'points' and so on, 'better' is 'higher' or 'lower',
  'n' is how many examples a part was scored on, where that is recorded, 'low'
  and 'high' are the bounds of `result_intervals`.
  """
  for task in tasks:
    for step, result in found.get(task.name, {}).items():
      _, counts = count_items(result)
      bounds = result_intervals(task, result, folders[task.name] / str(step))
      for name, value in result.metrics.items():
        metric, _, part = name.partition('/')
        known, is_count = task_families.find_metric(metric), metric in _COUNTS
        low, high = bounds.get(name, (None, None))
        yield {
          'task': task.name,
          'split': task.split,
          'step': step,
          'metric': metric,
          'part': part,
          'value': value if math.isfinite(value) else None,
          'unit': 'count' if is_count else known.unit.value,
          'better': 'neither' if is_count else known.better.value,
          'n': counts.get(part),
          'low': low,
          'high': high,
        }


def result_table(
  task: eval_task.EvalTask | Recorded,
  by_step: Mapping[result_store.Step, eval_task.EvalResult],
  *,
  languages: Sequence[str] = (),
  folder: pathlib.Path | None = None,
) -> rich.table.Table:
  """The task's main metric for each part and checkpoint.

  Further metrics that were found have columns of the first and last checkpoint.

  Args:
    task: whose results they are.
    by_step: the results.
    languages: of the vocabulary, where it names them: parts in other ones are
      marked, and a second mean leaves them out.
    folder: of the results; then the first and the last checkpoint's numbers
      have half of their intervals beside them, and chance and coverage are
      told.
  """
  steps = list(by_step)
  if len(steps) > _WIDEST:
    steps = [steps[0], *steps[1 - _WIDEST :]]
  columns = [
    *((task.primary_metric, step, str(step)) for step in steps),
    *(
      (metric, step, f'{metric}\n{step}')
      for metric in task.further_metrics
      if any(parts_of(metric, by_step))
      for step in dict.fromkeys((steps[0], steps[-1]))
    ),
  ]
  split = '' if task.split == 'all' else f', {task.split} split'
  explained = task_families.find_metric(task.primary_metric).explained
  last = by_step[steps[-1]]
  beside = dict([count_items(last)])
  title = f'{task.name}: {explained}{split}'
  if folder is not None:
    beside[CHANCE] = chance_levels(task.primary_metric, last)
    covered = describe_coverage(
      parts_of(task.primary_metric, by_step), languages, last
    )
    title = '; '.join(filter(None, (title, covered)))
  beside = {name: values for name, values in beside.items() if values}
  shown = rich.table.Table(title=title, title_justify='left')
  for name in ('', *beside, *(header for *_, header in columns)):
    shown.add_column(name, justify='right' if name else 'left')
  bounds = {
    step: result_intervals(task, by_step[step], folder / str(step))
    for step in (steps[0], steps[-1])
    if folder is not None
  }
  for part, label, values in _rows(task, by_step, columns, languages):
    own = label.partition(' (')[0]  # the vocabulary's mean has no interval
    shown.add_row(
      label,
      *(score_note(name, values.get(part)) for name, values in beside.items()),
      *(
        format_cell(value)
        + format_half_width(bounds.get(step, {}).get(f'{metric}/{own}'))
        for value, (metric, step, _) in zip(values, columns, strict=True)
      ),
      style='bold' if part == 'mean' else None,
    )
  return shown


def _rows(task, by_step, columns, languages: Sequence[str]):
  """Yields (part, label, its values by column), the means last."""
  parts = parts_of(task.primary_metric, by_step)
  strange = _strange(parts, languages)
  values = {
    part: [
      by_step[step].metrics.get(f'{metric}/{part}')
      for metric, step, _ in columns
    ]
    for part in parts
  }
  for part in parts:
    mark = ' (not in the vocabulary)' if part in strange else ''
    yield part, f'{part}{mark}', values[part]
  if strange and 'mean' in parts:
    known = [values[part] for part in parts if part not in {*strange, 'mean'}]
    means = [
      _mean(column, geometric=metric.endswith('perplexity'))
      for (metric, *_), column in zip(
        columns, zip(*known, strict=True), strict=True
      )
    ]
    yield 'mean', f'mean of the vocabulary’s {len(known)}', means


def _mean(
  values: Sequence[float | None], *, geometric: bool = False
) -> float | None:
  """The mean; None where a value is missing."""
  found = [value for value in values if value is not None]
  mean = statistics.geometric_mean if geometric else statistics.fmean
  return mean(found) if len(found) == len(values) else None


def _strange(parts: Sequence[str], languages: Sequence[str]) -> set[str]:
  """Parts with a language that is not in the list; none if all are."""

  def knows(part: str) -> bool:
    return bool(language_codes.match_language(part, languages)) or all(
      language_codes.match_language(code, languages) for code in part.split('-')
    )

  found = {part for part in parts if part != 'mean' and not knows(part)}
  # Without any that is known, the parts are no languages.
  return found if len(found) < len({*parts} - {'mean'}) else set()


def count_items(result: eval_task.EvalResult) -> tuple[str, dict[str, float]]:
  """What is counted, and how many of it each part was scored on."""
  for unit in _COUNTS:
    found = {
      name.partition('/')[2]: value
      for name, value in result.metrics.items()
      if name.startswith(f'{unit}/')
    } | {
      row['pair']: row[unit]
      for row in result.tables.get('pairs', ())
      if unit in row and 'pair' in row
    }
    if found:
      found.pop('mean', None)
      return unit, found
  return '', {}


def chance_levels(
  metric: str, result: eval_task.EvalResult
) -> dict[str, float]:
  """Part -> accuracy of guessing, or of the most frequent class; {} unknown."""
  return {
    name.partition('/')[2]: value
    for name, value in result.metrics.items()
    if metric == 'accuracy' and name.partition('/')[0] in _GUESSES
  }


def describe_coverage(
  parts: Sequence[str], languages: Sequence[str], result: eval_task.EvalResult
) -> str:
  """'2 of 4 languages (none of ru, zh)'; '' where languages are not known.

  Args:
    parts: that have a score: languages, or pairs such as 'de-fr'; a pair with
      English may be named by its other language.
    languages: of the model.
    result: of the task.
  """
  codes = {code for part in parts for code in (part, *part.split('-'))}
  is_of_pairs = 'pairs' in result.tables
  wanted = [one for one in languages if not (is_of_pairs and one == 'en')]
  there = {
    found for x in codes if (found := language_codes.match_language(x, wanted))
  }
  missing = [one for one in wanted if one not in there]
  if not there:
    return ''
  told = f'{len(there)} of {len(wanted)} languages'
  return f'{told} (none of {", ".join(missing)})' if missing else told


def summary_line(task: eval_task.EvalTask, result: eval_task.EvalResult) -> str:
  """The means in a few words, for a log: 'retrieval accuracy 0.612'."""
  means = (
    f'{metric} {format_cell(result.metrics.get(f"{metric}/mean"))}'
    for metric in (task.primary_metric, *task.further_metrics)
    if metric == task.primary_metric or f'{metric}/mean' in result.metrics
  )
  return f'{task.name} {", ".join(means)}'


def parts_of(metric: str, by_step) -> list[str]:
  """Every part that has the metric at some step; the mean last."""
  prefix = f'{metric}/'
  parts = dict.fromkeys(
    name.removeprefix(prefix)
    for result in by_step.values()
    for name in result.metrics
    if name.startswith(prefix)
  )
  return sorted(parts, key=lambda part: (part == 'mean', part))


def score_note(name: str, value: float | None) -> str:
  """What stands beside a score: its chance, or a count."""
  if value is None:
    return ''
  return format_cell(value) if name == CHANCE else f'{value:,.0f}'


def format_half_width(interval: Interval | None) -> str:
  return f' ± {(interval[1] - interval[0]) / 2:.3f}' if interval else ''


def format_cell(value: float | None) -> str:
  if value is None or math.isnan(value):
    return '-'
  return f'{value:.3f}' if abs(value) < 1000 else f'{value:.4g}'
