"""Tables of primary metrics, and a CSV file with all metric values."""

import contextlib
import csv
import dataclasses
import functools
import hashlib
import io
import itertools
import json
import math
import pathlib
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import rich.console
import rich.table

from xlflax.data.corpus import language_codes
from xlflax.evaluation import (
  eval_task,
  result_store,
  score_format,
  task_families,
)
from xlflax.evaluation.metrics import bootstrap
from xlflax.evaluation.metrics.metric import Better, Unit
from xlflax.storage import paths
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors, plurals, rich_tables

CSV = 'summary.csv'
# Maximum number of steps in a table: the first step and the last steps.
_MAX_STEPS = 8
_MAX_MISSING = 20  # languages to list in a title

Interval = tuple[float, float]
Results = Mapping[str, Mapping[result_store.Step, eval_task.EvalResult]]
# Metrics of baselines that do not depend on the model, by the metric with which
# they are compared.
_BASELINES = {
  'accuracy': ('chance', 'majority', 'string_overlap'),
  'ndcg@10': ('first_stage_ndcg@10',),
  'mrr@10': ('first_stage_mrr@10',),
}
EXPLAINED_BASELINES = (
  'Compare the scores with those of the baselines that do not depend on the '
  'model: "chance" (guessing), "majority" (always the most frequent class) and '
  '"string_overlap" (retrieval of translations by common character 3-grams).'
)
_ALL_BASELINES = tuple(itertools.chain(*_BASELINES.values()))
_COUNTS = ('examples', 'sentences', 'tokens')
_COLUMNS = (*result_store.Group._fields, 'step', 'metric', 'value')


class Recorded(NamedTuple):
  """Stand-in for the `EvalTask` of stored results, used to create tables.

  Attributes:
    name: Name of the evaluation task.
    split: Data split.
    primary_metric: Name of the task's main metric, which tables show.
    further_metrics: Names of additional metrics that tables show.
  """

  name: str
  split: str
  primary_metric: str
  further_metrics: tuple[str, ...] = ()

  def statistics(self, part: str, folder: pathlib.Path):
    """Returns the per-example statistics; see `EvalTask.statistics`."""
    task: Any = self  # The method of the base class does not use its task.
    return eval_task.EvalTask.statistics(task, part, folder)


def summarize_group(
  group: result_store.Group, by_step, *, is_one_of_many: bool
):
  """Returns the task name, split and primary metric of a result group.

  The result is None if there are no metrics.

  Args:
    group: Group to which the results belong.
    by_step: Results by training step.
    is_one_of_many: Whether other groups have the same task and split.
  """
  for result in by_step.values():
    if result.metrics:
      first = (*result.score_metrics, *result.metrics)[0].partition('/')[0]
      name = f'{group.task}-{group.settings}' if is_one_of_many else group.task
      return Recorded(name, group.split, first)
  return None


def write_csv(
  directory: pathlib.Path,
  results: Mapping[
    result_store.Group, Mapping[result_store.Step, eval_task.EvalResult]
  ],
) -> pathlib.Path:
  """Writes all metric values to `eval/summary.csv`, with one value per line.

  Args:
    directory: Directory that contains the folder `eval/`.
    results: Results by group and step.

  Returns:
    Path to the CSV file with the columns task, split, settings, step, metric
    and value.
  """
  text = io.StringIO()
  writer = csv.writer(text, lineterminator='\n')
  writer.writerow(_COLUMNS)
  for group, by_step in results.items():
    for step, result in by_step.items():
      writer.writerows(
        (*group, step, name, value) for name, value in result.metrics.items()
      )
  file = directory / run_directory.EVALUATION / CSV
  paths.write_atomically(file, text.getvalue())
  return file


def print_tables(
  tasks: Sequence[eval_task.EvalTask],
  results: Results,
  console: rich.console.Console,
) -> None:
  """Prints a table of scores for each task.

  The rows are languages or language pairs, the columns are checkpoints.

  Args:
    tasks: Evaluation tasks whose results are printed.
    results: Results by task name and step.
    console: Console to print to.
  """
  for task in tasks:
    by_step = results.get(task.name)
    if by_step and parts_of(task.primary_metric, by_step):
      rich_tables.print_table(result_table(task, results[task.name]), console)


def result_intervals(
  task: eval_task.EvalTask | Recorded,
  result: eval_task.EvalResult,
  folder: pathlib.Path,
) -> dict[str, Interval]:
  """Returns 95 % confidence intervals by metric name.

  The intervals are computed by resampling the examples of the test set. A
  metric without per-example statistics does not have an interval. The mean over
  languages has an interval if all languages have one. The intervals of results
  with the same metrics and statistics files are computed only once in a process.

  Args:
    task: Task that produced the result.
    result: Result for one checkpoint.
    folder: Folder that contains the result files.
  """
  if not isinstance(task, Recorded) and (
    type(task).statistics is not eval_task.EvalTask.statistics
  ):
    return _compute_intervals(task, result, folder)
  digest = hashlib.sha256(json.dumps(list(result.metrics.items())).encode())
  for part in _parts_of_all_metrics(result):
    digest.update(f'\0{part}\0'.encode())
    with contextlib.suppress(OSError):
      file = folder / eval_task.statistics_file(part)
      digest.update(file.read_bytes())
  inputs = _IntervalInputs(digest.hexdigest(), task, result, folder)
  return dict(_compute_intervals_once(inputs))


@dataclasses.dataclass(frozen=True)
class _IntervalInputs:
  """Arguments of `result_intervals`, which are compared by their content.

  Attributes:
    digest: Hash of the result's metrics and of its statistics files.
    task: Task that produced the result.
    result: Result for one checkpoint.
    folder: Folder that contains the result files.
  """

  digest: str
  task: Any = dataclasses.field(compare=False)
  result: eval_task.EvalResult = dataclasses.field(compare=False)
  folder: pathlib.Path = dataclasses.field(compare=False)


@functools.lru_cache(maxsize=2048)
def _compute_intervals_once(inputs: _IntervalInputs) -> dict[str, Interval]:
  """Computes the intervals of a result, or returns cached intervals."""
  return _compute_intervals(inputs.task, inputs.result, inputs.folder)


def _parts_of_all_metrics(result: eval_task.EvalResult) -> list[str]:
  """Returns languages or files with a value, in the order of the metrics."""
  return list(dict.fromkeys(name.partition('/')[2] for name in result.metrics))


def _compute_intervals(
  task: eval_task.EvalTask | Recorded,
  result: eval_task.EvalResult,
  folder: pathlib.Path,
) -> dict[str, Interval]:
  """Computes the intervals of a result; see `result_intervals`."""
  return {
    name: bootstrap.confidence_interval(metric_scores)
    for name, metric_scores in bootstrap_result(task, result, folder).items()
  }


def bootstrap_result(
  task: eval_task.EvalTask | Recorded,
  result: eval_task.EvalResult,
  folder: pathlib.Path,
) -> dict[str, bootstrap.Drawn]:
  """Returns the scores of a result on resampled test sets, by metric name.

  A metric without per-example statistics is omitted. The mean over languages is
  included if all languages are.

  Args:
    task: Task that produced the result.
    result: Result for one checkpoint.
    folder: Folder that contains the result files.
  """
  parts = _parts_of_all_metrics(result)
  scores = {
    f'{metric}/{part}': part_scores
    for part in parts
    for metric, part_scores in _bootstrap_part(task, part, folder).items()
    if _matches_value(part_scores, result.metrics.get(f'{metric}/{part}'))
  }
  for name in result.metrics:
    metric, _, part = name.partition('/')
    if part != 'mean':
      continue
    part_names = [
      f'{metric}/{part}'
      for part in parts_of(metric, {0: result})
      if part != 'mean'
    ]
    if not part_names or not all(name in scores for name in part_names):
      continue
    part_scores = [scores[name] for name in part_names]
    for geometric in (False, True):
      mean = mean_draws(part_scores, geometric=geometric)
      if mean is not None and _matches_value(mean, result.metrics[name]):
        scores[name] = mean
  return scores


def mean_draws(
  parts: Sequence[bootstrap.Drawn], *, geometric: bool = False
) -> bootstrap.Drawn | None:
  """Averages scores over several test sets for each bootstrap resample.

  Returns None if the numbers of runs differ.

  Args:
    parts: Scores of each test set, for the same bootstrap resamples.
    geometric: Whether to compute the geometric mean, as for perplexities.
  """
  weights = [1 / len(parts)] * len(parts)
  if not geometric:
    return bootstrap.combine_draws(parts, weights)
  with np.errstate(divide='ignore', invalid='ignore'):
    log_scores = [
      part._replace(scores=np.log(part.scores), values=np.log(part.values))
      for part in parts
    ]
    mean = bootstrap.combine_draws(log_scores, weights)
  if mean is None:
    return None
  return mean._replace(scores=np.exp(mean.scores), values=np.exp(mean.values))


def _bootstrap_part(
  task, part: str, folder: pathlib.Path
) -> dict[str, bootstrap.Drawn]:
  """Returns a language's scores on resampled test sets, by metric.

  The result is empty if per-example statistics are missing or invalid.
  """
  if part in ('', 'mean'):
    return {}
  try:
    return {
      metric: bootstrap.bootstrap_scores(statistics)
      for metric, statistics in task.statistics(part, folder).items()
      if statistics.by_cluster().size > 1
    }
  except (OSError, ValueError, LookupError, StopIteration, errors.XlflaxError):
    return {}


def _matches_value(bootstrapped: bootstrap.Drawn, value: float | None) -> bool:
  """Returns whether the mean of bootstrapped scores equals a reported value."""
  return (
    value is not None
    and math.isfinite(value)
    and math.isclose(bootstrapped.scores.mean(), value)
  )


def iterate_records(
  tasks: Sequence[eval_task.EvalTask],
  results: Results,
  folders: Mapping[str, pathlib.Path],
) -> Iterator[dict[str, Any]]:
  """Yields a flat record for each metric value, for machine-readable output.

  Args:
    tasks: Tasks that produced the results.
    results: Results by task name and step.
    folders: Result folders by task name.

  Yields:
    Records with the task, split, step, metric, part and value, and with 'unit'
    (such as 'fraction' or 'points'), 'better' ('higher', 'lower' or 'neither'),
    'n' (the number of examples of the part, if recorded), and the bounds 'low'
    and 'high' of `result_intervals`.
  """
  for task in tasks:
    for step, result in results.get(task.name, {}).items():
      _, counts = count_items(result)
      bounds = result_intervals(task, result, folders[task.name] / str(step))
      for name, value in result.metrics.items():
        metric, _, part = name.partition('/')
        declaration = task_families.find_metric(metric)
        is_count = metric in _COUNTS
        low, high = bounds.get(name, (None, None))
        yield {
          'task': task.name,
          'split': task.split,
          'step': step,
          'metric': metric,
          'part': part,
          'value': value if math.isfinite(value) else None,
          'unit': 'count' if is_count else declaration.unit.value,
          'better': 'neither' if is_count else declaration.better.value,
          'n': counts.get(part),
          'low': low,
          'high': high,
        }


def result_table(
  task: eval_task.EvalTask | Recorded,
  by_step: Mapping[result_store.Step, eval_task.EvalResult],
  *,
  display_name: str | None = None,
  languages: Sequence[str] = (),
  folder: pathlib.Path | None = None,
) -> rich.table.Table:
  """Returns a table of the primary metric by language (or file) and checkpoint.

  Additional reported metrics have columns for the first and the last
  checkpoint.

  Args:
    task: Task that produced the results.
    by_step: Results by training step.
    display_name: Name of the task in the title. If None, `task.name` is used.
    languages: Languages of the vocabulary, if it has language codes. Table rows
      for other languages are marked, and the table contains a second mean that
      excludes these languages.
    folder: Folder with the results. If given, the table is for a page: it also
      contains confidence intervals and the coverage of the languages, and the
      columns are named by metric and step.
  """
  steps = list(by_step)
  if len(steps) > _MAX_STEPS:
    steps = [steps[0], *steps[1 - _MAX_STEPS :]]
  is_on_page = folder is not None
  columns = [
    *(
      (
        task.primary_metric,
        step,
        _page_header(task.primary_metric, step) if is_on_page else str(step),
      )
      for step in steps
    ),
    *(
      (
        metric,
        step,
        _page_header(metric, step) if is_on_page else f'{metric}\n{step}',
      )
      for metric in task.further_metrics
      if any(parts_of(metric, by_step))
      for step in dict.fromkeys((steps[0], steps[-1]))
    ),
  ]
  explained = task_families.find_metric(task.primary_metric).explained
  last = by_step[steps[-1]]
  unit, counts = count_items(last)
  notes = {unit: counts, **baseline_scores(task.primary_metric, last)}
  title = (
    f'{display_name or task.name}: {explained}{label_split(task.split)}'
    f'{label_development(by_step.values(), task.split)}'
  )
  notes = {name: values for name, values in notes.items() if values}

  bounds = {
    step: result_intervals(task, by_step[step], folder / str(step))
    for step in steps
    if folder is not None
  }
  interval_labels = dict.fromkeys(
    label_intervals(metric, bounds.get(step, {})) for metric, step, _ in columns
  )
  title = ', '.join(
    filter(None, (title, describe_layers(last), *interval_labels))
  )
  if folder is not None:
    coverage = describe_coverage(
      parts_of(task.primary_metric, by_step), languages, last
    )
    title = '; '.join(filter(None, (title, coverage)))
  table = rich.table.Table(title=title, title_justify='left')
  for name in ('', *notes, *(header for *_, header in columns)):
    table.add_column(name, justify='right' if name else 'left')
  for part, label, values, averaged in _rows(task, by_step, columns, languages):
    # The label of the mean over the vocabulary's languages is no part of the
    # result, so that mean has no interval.
    name = label.partition(' (')[0]
    table.add_row(
      label,
      *(
        score_note(
          note,
          mean_of_parts([by_part.get(language) for language in averaged])
          if averaged and note in _ALL_BASELINES
          else by_part.get(part),
        )
        for note, by_part in notes.items()
      ),
      *(
        score_format.format_score(value)
        + format_interval(metric, bounds.get(step, {}).get(f'{metric}/{name}'))
        for value, (metric, step, _) in zip(values, columns, strict=True)
      ),
      style='bold' if part == 'mean' else None,
    )
  return table


def _page_header(metric: str, step: result_store.Step) -> str:
  """Returns a column name, such as 'accuracy, step 10'."""
  return f'{metric}, {step if isinstance(step, str) else f"step {step:,}"}'


def _rows(task, by_step, columns, languages: Sequence[str]):
  """Yields the rows of languages or files, and those of their means last.

  Yields:
    Name of the language or file or 'mean', label, values of the columns, and
    the languages of a mean that the result does not contain, else ().
  """
  parts = parts_of(task.primary_metric, by_step)
  unknown_parts = find_unknown_parts(parts, languages)
  values = {
    part: [
      by_step[step].metrics.get(f'{metric}/{part}')
      for metric, step, _ in columns
    ]
    for part in parts
  }
  for part in parts:
    mark = ' (not in the vocabulary)' if part in unknown_parts else ''
    yield part, f'{part}{mark}', values[part], ()

  if unknown_parts and 'mean' in parts:
    known_parts = [
      part for part in parts if part not in {*unknown_parts, 'mean'}
    ]
    known_values = [values[part] for part in known_parts]
    means = [
      mean_of_parts(column, geometric=metric.endswith('perplexity'))
      for (metric, *_), column in zip(
        columns, zip(*known_values, strict=True), strict=True
      )
    ]
    label = f'mean over {len(known_values)} in the vocabulary'
    yield 'mean', label, means, known_parts


def mean_of_parts(
  values: Sequence[float | None], *, geometric: bool = False
) -> float | None:
  """Returns the mean score over languages, or None if a score is missing.

  Args:
    values: Scores of the languages.
    geometric: Whether to compute the geometric mean, as for perplexities.
  """
  present = [value for value in values if value is not None]
  if len(present) < len(values):
    return None
  mean = statistics.geometric_mean if geometric else statistics.fmean
  return mean(present)


def find_unknown_parts(
  parts: Sequence[str], languages: Sequence[str]
) -> set[str]:
  """Returns the languages or pairs that are not in the vocabulary.

  If none of the names is in the vocabulary, the names do not denote languages,
  and the result is empty.

  Args:
    parts: Names of languages, language pairs or files. The name 'mean' is
      ignored.
    languages: Languages of the vocabulary.
  """
  candidates = {part for part in parts if part != 'mean'}
  unknown = {part for part in candidates if not is_known_part(part, languages)}
  return unknown if len(unknown) < len(candidates) else set()


def is_known_part(part: str, languages: Sequence[str]) -> bool:
  """Returns whether a language, or each language of a pair, is in a list."""
  return bool(language_codes.match_language(part, languages)) or all(
    language_codes.match_language(code, languages) for code in part.split('-')
  )


def count_items(result: eval_task.EvalResult) -> tuple[str, dict[str, float]]:
  """Returns the number of examples, sentences or tokens for each language.

  Args:
    result: Evaluation result with the counts in its metrics or tables.

  Returns:
    The unit, such as 'sentences', and the counts by language, language pair or
    file. Both are empty if the result has no counts.
  """
  for unit in _COUNTS:
    counts = {
      name.partition('/')[2]: value
      for name, value in result.metrics.items()
      if name.startswith(f'{unit}/')
    } | {
      row['pair']: row[unit]
      for row in result.tables.get('pairs', ())
      if unit in row and 'pair' in row
    }
    if counts:
      counts.pop('mean', None)
      return unit, counts
  return '', {}


def is_baseline(name: str, metric: str) -> bool:
  """Returns whether the metric `name` is a baseline for the metric `metric`."""
  return name in _BASELINES.get(metric, ())


def metrics_with_baselines(result: eval_task.EvalResult) -> list[str]:
  """Returns the metrics for which a result contains baseline scores.

  For example, a tagging result has the primary metric 'f1', but the baseline
  'majority' of the metric 'accuracy'.

  Args:
    result: Evaluation result, which contains the scores of the baselines.
  """
  return [
    metric
    for metric in _BASELINES
    if parts_of(metric, {0: result}) and baseline_scores(metric, result)
  ]


def baseline_scores(
  metric: str, result: eval_task.EvalResult
) -> dict[str, dict[str, float]]:
  """Returns the scores of baselines for a metric, by baseline and language.

  The baselines of accuracy are 'chance' (guessing), 'majority' (the most
  frequent class) and 'string_overlap' (retrieval by character 3-grams).
  Baselines that were not recorded are omitted.

  Args:
    metric: Name of the metric whose baseline scores are returned.
    result: Evaluation result with the scores of the baselines.
  """
  scores: dict[str, dict[str, float]] = {}
  for name, value in result.metrics.items():
    baseline, _, part = name.partition('/')
    if is_baseline(baseline, metric):
      scores.setdefault(baseline, {})[part] = value
  return scores


def compared_metrics_and_baselines(result: eval_task.EvalResult) -> list[str]:
  """Returns the metrics that have baselines, each followed by its baselines.

  For example, the result is ['accuracy', 'chance', 'majority'].

  Args:
    result: Evaluation result, which contains the scores of the baselines.
  """
  return [
    name
    for metric in metrics_with_baselines(result)
    for name in (metric, *baseline_scores(metric, result))
  ]


def shown_metrics(
  task: eval_task.EvalTask | Recorded,
  by_step: Mapping[result_store.Step, eval_task.EvalResult],
) -> list[str]:
  """Returns the metrics, baselines and counts that `result_table` shows.

  Args:
    task: Task that produced the results.
    by_step: Results by training step.
  """
  last = by_step[list(by_step)[-1]]
  unit, _ = count_items(last)
  names = [
    task.primary_metric,
    *(metric for metric in task.further_metrics if parts_of(metric, by_step)),
    *baseline_scores(task.primary_metric, last),
    unit,
  ]
  return list(dict.fromkeys(filter(None, names)))


def describe_coverage(
  parts: Sequence[str], languages: Sequence[str], result: eval_task.EvalResult
) -> str:
  """Describes which of the model's languages a result covers.

  Args:
    parts: Languages or language pairs, such as 'de-fr', that have a score. A
      pair with English may be named after its non-English language.
    languages: Languages that the model supports.
    result: Evaluation result of the task.

  Returns:
    A text such as "2 of the model's 4 languages (not tested: ru, zh)". Many
    missing languages are not listed. English is not counted for results of
    pairs. The text is empty if none of the results is for one of the languages.
  """
  codes = {code for part in parts for code in (part, *part.split('-'))}
  is_of_pairs = 'pairs' in result.tables
  expected = [
    language for language in languages if not (is_of_pairs and language == 'en')
  ]
  matches = {language_codes.match_language(code, expected) for code in codes}
  covered = [language for language in expected if language in matches]
  missing = [language for language in expected if language not in matches]
  if not covered:
    return ''
  coverage = f"{len(covered)} of the model's {len(expected)} languages"
  if len(expected) < len(languages):
    coverage += ' other than English'
  if 0 < len(missing) <= _MAX_MISSING:
    coverage += f' (not tested: {", ".join(missing)})'
  return coverage


def summary_line(task: eval_task.EvalTask, result: eval_task.EvalResult) -> str:
  """Formats mean scores for a log line, as in 'retrieval accuracy 0.612'."""
  means = (
    f'{metric} {score_format.format_mean(metric, result.metrics)}'
    for metric in (task.primary_metric, *task.further_metrics)
    if metric == task.primary_metric or f'{metric}/mean' in result.metrics
  )
  summary = ', '.join(means)
  if task.primary_metric == task.name:
    return summary
  return f'{task.name} {summary}'


def join_parts(parts: Sequence[str]) -> str:
  """Formats a list of names for a sentence, such as 'de, fr and the mean'.

  The names are languages or files, or 'mean' for their mean score.
  """
  names = ['the mean' if part == 'mean' else part for part in parts]
  *first, last = names
  return f'{", ".join(first)} and {last}' if first else last


def parts_of(metric: str, by_step) -> list[str]:
  """Lists the languages or files that have a score, followed by 'mean'."""
  prefix = f'{metric}/'
  parts = dict.fromkeys(
    name.removeprefix(prefix)
    for result in by_step.values()
    for name in result.metrics
    if name.startswith(prefix)
  )
  return sorted(parts, key=lambda part: (part == 'mean', part))


def score_note(name: str, value: float | None) -> str:
  """Formats the baseline or count that is displayed next to a score."""
  if value is None:
    return ''
  if name in _ALL_BASELINES:
    return score_format.format_score(value)
  return f'{value:,.0f}'


def format_interval(metric: str, interval: Interval | None) -> str:
  """Formats a confidence interval, such as ' ± 0.012' or ' [91 … 120]'.

  The second format is used for metrics without a range, such as perplexities,
  because their intervals are not symmetric.

  Args:
    metric: Name of the metric.
    interval: Lower and upper bound of the interval. If None, the returned text
      is empty.
  """
  if interval is None:
    return ''
  if task_families.find_metric(metric).unit is Unit.UNBOUNDED:
    low, high = map(score_format.format_score, interval)
    return f' [{low} … {high}]'
  return f' ± {(interval[1] - interval[0]) / 2:.3f}'


def describe_layers(result: eval_task.EvalResult) -> str:
  """Describes which layers the scores of a result are computed from.

  The description is 'layer 8 of 12', or 'layers 1 and 12 of 12' if the hidden
  states of these layers are averaged. It is empty if the scores are computed
  from the model's outputs.

  Args:
    result: Evaluation result of one checkpoint.
  """
  if not result.layers:
    return ''
  name = plurals.pluralize('layer', len(result.layers))
  numbers = ' and '.join(map(str, result.layers))
  return f'{name} {numbers} of {result.num_layers}'


def label_intervals(metric: str, intervals: Iterable[str]) -> str:
  """Returns the part of a table title that explains the confidence intervals.

  It is '± 95 % interval', or '[95 % interval]' for metrics without a range, and
  empty if none of the scores has an interval.

  Args:
    metric: Name of the metric.
    intervals: Names of the scores that have confidence intervals, such as
      'accuracy/de'.
  """
  if not any(name.partition('/')[0] == metric for name in intervals):
    return ''
  is_unbounded = task_families.find_metric(metric).unit is Unit.UNBOUNDED
  return '[95 % interval]' if is_unbounded else '± 95 % interval'


def label_split(split: str) -> str:
  """Returns the title suffix for a split, or '' for data without splits."""
  return '' if split == 'all' else f', {split} split'


def add_split(name: str, split: str) -> str:
  """Returns a task's name and split as text, such as 'retrieval (test)'.

  Data without splits have only the name of the task.

  Args:
    name: Name of the task or of the group of results.
    split: Name of the split that was evaluated.
  """
  return name if split == 'all' else f'{name} ({split})'


def label_development(
  results: Iterable[eval_task.EvalResult], split: str
) -> str:
  """Returns the title suffix for results that were computed during training.

  The suffix is ', development set', or ', evaluated during training' if the
  split is declared as a test or training split. It is empty for other results.

  Args:
    results: Results that are shown under the title.
    split: Name of the split that was evaluated.
  """
  if not any(result.is_development for result in results):
    return ''
  name = eval_task.describe_training_split(split)
  if name == 'development set':
    return f', {name}'
  return ', evaluated during training'


def compare_with_untrained(
  metric: str,
  untrained: eval_task.EvalResult | None,
  trained: eval_task.EvalResult,
  untrained_intervals: Mapping[str, Interval] | None = None,
  trained_intervals: Mapping[str, Interval] | None = None,
) -> str:
  """Describes the languages in which training did not improve a metric.

  Args:
    metric: Name of the metric.
    untrained: Evaluation result of the randomly initialized model. If None, the
      returned text is empty.
    trained: Evaluation result of a trained model.
    untrained_intervals: Confidence intervals of the untrained model by metric
      name. If None, scores are compared without intervals.
    trained_intervals: Confidence intervals of the trained model.

  Returns:
    Sentences such as 'The untrained model has the same score for ru (0.500).',
    or an empty text if training improved the metric in all languages.
  """
  better = task_families.find_metric(metric).better
  if untrained is None or better is Better.NEITHER:
    return ''
  sign = 1 if better is Better.HIGHER else -1
  better_parts: list[str] = []
  overlapping_parts: list[str] = []
  equal_parts: list[str] = []
  for part in parts_of(metric, {0: trained}):
    before, after = (
      result.metrics.get(f'{metric}/{part}', math.nan)
      for result in (untrained, trained)
    )
    scores = tuple(map(score_format.format_score, (before, after)))
    name = join_parts([part])
    if before == after:
      equal_parts.append(f'{name} ({scores[0]})')
    elif sign * before > sign * after:
      bounds = [
        (intervals or {}).get(f'{metric}/{part}')
        for intervals in (untrained_intervals, trained_intervals)
      ]
      is_overlapping = (
        bounds[0] is not None
        and bounds[1] is not None
        and max(bounds[0][0], bounds[1][0]) <= min(bounds[0][1], bounds[1][1])
      )
      parts = overlapping_parts if is_overlapping else better_parts
      parts.append(f'{name} ({scores[0]} compared with {scores[1]})')
  sentences = []
  if better_parts:
    sentences.append(
      f'The untrained model is better for {join_parts(better_parts)}.'
    )
  if overlapping_parts:
    sentences.append(
      'The untrained model is better, with overlapping 95 % intervals, for '
      f'{join_parts(overlapping_parts)}.'
    )
  if equal_parts:
    sentences.append(
      f'The untrained model has the same score for {join_parts(equal_parts)}.'
    )
  return ' '.join(sentences)


def compare_with_baselines(
  metric: str,
  result: eval_task.EvalResult,
  intervals: Mapping[str, Interval] | None = None,
  *,
  only_if_not_better: bool = False,
) -> str:
  """Compares the scores of a result with those of the recorded baselines.

  Each score is compared with the strongest baseline for its language. A score
  with a confidence interval differs significantly from a baseline if the
  interval does not contain the score of the baseline.

  Args:
    metric: Name of the metric.
    result: Evaluation result, which contains the scores of the baselines.
    intervals: Confidence intervals by metric name. If None, scores are compared
      without intervals.
    only_if_not_better: Whether to omit the languages in which the score is
      better than that of the baseline.

  Returns:
    Sentences such as 'The score for de is better than the baseline
    string_overlap.' The text is empty if the result contains no baselines, or
    if the metric has no direction.
  """
  better = task_families.find_metric(metric).better
  baselines = baseline_scores(metric, result)
  if better is Better.NEITHER:
    return ''
  sign = 1 if better is Better.HIGHER else -1
  relations = better_than, similar, equal, worse_than = (
    'better than',
    'not significantly different from',
    'equal to',
    'worse than',
  )
  parts_by_relation: dict[tuple[str, str], list[str]] = {}
  for part in parts_of(metric, {0: result}):
    score = result.metrics[f'{metric}/{part}']
    scores = {
      name: by_part[part]
      for name, by_part in baselines.items()
      if not math.isnan(by_part.get(part, math.nan))
    }
    if math.isnan(score) or not scores:
      continue
    baseline = max(scores, key=lambda name: sign * scores[name])
    low, high = (intervals or {}).get(f'{metric}/{part}', (score, score))
    if low < high and low <= scores[baseline] <= high:
      relation = similar
    elif score == scores[baseline]:
      relation = equal
    else:
      is_better = sign * score > sign * scores[baseline]
      relation = better_than if is_better else worse_than
    if relation != better_than or not only_if_not_better:
      parts_by_relation.setdefault((relation, baseline), []).append(part)
  return ' '.join(
    f'The {"scores" if len(parts) > 1 else "score"} for {join_parts(parts)} '
    f'{"are" if len(parts) > 1 else "is"} {relation} the baseline {baseline}.'
    for (relation, baseline), parts in sorted(
      parts_by_relation.items(), key=lambda item: relations.index(item[0][0])
    )
  )


def is_better_everywhere(
  metric: str,
  untrained: eval_task.EvalResult | None,
  trained: eval_task.EvalResult,
) -> bool:
  """Returns whether training improved a metric in all languages or files.

  Args:
    metric: Name of the metric.
    untrained: Evaluation result of the randomly initialized model. If None, the
      result is False.
    trained: Evaluation result of a trained model.
  """
  better = task_families.find_metric(metric).better
  parts = parts_of(metric, {0: trained})
  if untrained is None or better is Better.NEITHER or not parts:
    return False
  sign = 1 if better is Better.HIGHER else -1
  return all(
    sign * trained.metrics[f'{metric}/{part}']
    > sign * untrained.metrics.get(f'{metric}/{part}', math.nan)
    for part in parts
  )


def describe_best(metric: str, by_step) -> str:
  """Describes the best step and the worst language (or file) at the last step.

  The best step is that with the best mean, or with the best score of a single
  language. The text is empty if there are no scores of trained models, or if
  the metric has no direction.

  Args:
    metric: Name of the metric.
    by_step: Results by training step.
  """
  better = task_families.find_metric(metric).better
  parts = parts_of(metric, by_step)
  steps = [step for step in by_step if isinstance(step, int)]
  if better is Better.NEITHER or not parts or not steps:
    return ''
  sign = 1 if better is Better.HIGHER else -1

  def scores(step, names: Sequence[str]) -> dict[str, float]:
    metrics = by_step[step].metrics
    values = {name: metrics.get(f'{metric}/{name}', math.nan) for name in names}
    return {name: value for name, value in values.items() if value == value}

  descriptions = []
  means = {
    step: score
    for step in by_step
    for score in scores(step, parts[-1:]).values()
  }
  if len(means) > 1:
    best = max(sign * mean for mean in means.values())
    names = [
      f'step {step:,}' if isinstance(step, int) else f'the {step} model'
      for step, mean in means.items()
      if sign * mean == best
    ]
    name = join_parts(names)
    verb = 'has' if len(names) == 1 else 'have'
    descriptions.append(
      f'{name[0].upper()}{name[1:]} {verb} the best score for '
      f'{join_parts(parts[-1:])} ({score_format.format_score(sign * best)}).'
    )
  last = scores(max(steps), [part for part in parts if part != 'mean'])
  if len(last) > 1:
    worst = min(last, key=lambda part: sign * last[part])
    descriptions.append(
      f'At step {max(steps):,}, {worst} has the worst score '
      f'({score_format.format_score(last[worst])}).'
    )
  return ' '.join(descriptions)
