"""Task scores, averages, transfer gaps and comparisons for reports."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from xlflax.evaluation.metrics import averages, bootstrap
from xlflax.evaluation.reports import score_table
from xlflax.utils import errors, plurals

Tables = Sequence[score_table.ScoreTable]
ALL = 'all tasks'
MEAN, GAP = 'mean', 'gap'  # over the languages of a task
SCORE = 'score'  # mean of the metrics of a task
Key = tuple[str, str, str]  # task, metric, language


@dataclasses.dataclass(frozen=True)
class TaskSummary:
  """Summary of a model's scores on a task, in points.

  Attributes:
    score: Mean of the scores in `languages`.
    languages: Score in each language, as the mean of the task's metrics.
    metrics: Names of the task's metrics.
    gap: Transfer gap: the score in the source language minus the mean of the
      other languages. None if there is no score in the source language or in
      any other language.
    metric_means: Mean over languages for each metric.
    metric_gaps: Transfer gap by metric. Metrics without a transfer gap are not
      included.
    of: Expected number of languages in the task.
  """

  score: float
  languages: dict[str, float]
  metrics: tuple[str, ...]
  gap: float | None
  metric_means: dict[str, float]
  metric_gaps: dict[str, float]
  of: int

  @property
  def missing(self) -> str:
    """Language coverage such as '(5 of 36 languages)', or '' if complete."""
    count = len(self.languages)
    return f'({count} of {self.of} languages)' if count < self.of else ''


@dataclasses.dataclass(frozen=True)
class Interval:
  """A score's 95 % confidence interval, in points.

  Attributes:
    low: Lower bound of the interval.
    high: Upper bound of the interval.
  """

  low: float
  high: float

  @property
  def half_width(self) -> float:
    """Half the width of the confidence interval."""
    return (self.high - self.low) / 2


@dataclasses.dataclass(frozen=True)
class Summary:
  """Summary of a model's scores on all tasks.

  Attributes:
    model: Name of the model.
    tasks: Summary of the model's scores on each task, by name.
    average: Mean of the task scores, excluding tasks whose metric is an error
      rate or unbounded (AER, perplexity). None if there are no other tasks, or
      if a task or a language is missing.
    xtreme: XTREME averages of each task group and of all nine tasks. An average
      is only included if none of its tasks and languages is missing.
    gap: Mean transfer gap over the tasks in `average`.
    missing: Note on missing results, such as '(2 of 9 tasks; test sets of these
      tasks: 7 of 69)', or '' if nothing is missing. Each language of a task is
      one test set. Only the test sets of the available tasks are counted.
  """

  model: str
  tasks: dict[str, TaskSummary]
  average: float | None
  xtreme: dict[str, float]
  gap: float | None
  missing: str = ''


@dataclasses.dataclass(frozen=True)
class Comparison:
  """Comparison of two models' scores on a test set, or of their mean scores.

  All scores are in points.

  Attributes:
    task: Task to which the test set belongs, or ALL for a mean over tasks.
    metric: Name of the compared metric, or SCORE for the mean of a task's
      metrics. If the task is ALL, the metric is SCORE.
    language: Test-set language, MEAN for the mean over languages, or GAP for
      the transfer gap.
    baseline: Name of the first model, the baseline.
    model: Name of the second model, which is compared with the baseline.
    first: Score of the baseline.
    second: Score of `model`.
    difference: `second - first`.
    better: Whether the difference is an improvement. None if the scores are
      equal.
    significance: Result of the bootstrap significance test. None if one of the
      models has no comparable scores of individual examples.
    adjusted_p: p-value of `significance`, adjusted by Holm's method for all
      comparisons of the report.
  """

  task: str
  metric: str
  language: str
  baseline: str
  model: str
  first: float
  second: float
  difference: float
  better: bool | None
  significance: bootstrap.Significance | None
  adjusted_p: float | None = None


def count_languages(tables: Tables) -> dict[str, int]:
  """Returns the expected number of languages for each task.

  Only tasks that are included in the mean over tasks are returned. The number
  is the maximum of the expected numbers in the tables and the number of
  languages with a score in any table.
  """
  languages: dict[str, set[str]] = {}
  for table in tables:
    for task in table.expected:
      languages.setdefault(task, set())
    for score in table.scores:
      languages.setdefault(score.task, set()).add(score.language)
  return {
    task: max(len(codes), *(table.expected.get(task, 0) for table in tables))
    for task, codes in languages.items()
    if all(
      score_table.is_averaged(metric)
      for table in tables
      for metric in table.metrics(task)
    )
  }


def summarize_model(
  table: score_table.ScoreTable,
  *,
  source: str = averages.ENGLISH,
  num_languages: Mapping[str, int] | None = None,
) -> Summary:
  """Computes a model's averages and transfer gaps.

  Tasks without a finite score are omitted.

  Args:
    table: Score table of the model.
    source: Language of the fine-tuning data.
    num_languages: Expected number of languages for each task, as returned by
      `count_languages`. The mean over tasks is only computed if the model has
      scores for all of these tasks and languages. If None, the tasks and
      languages for which the model has a finite score are expected.
  """
  tasks = {
    task: _summarize_task(
      table, task, source, (num_languages or {}).get(task, 0)
    )
    for task in table.tasks
    if table.task_scores(task)
  }
  averaged = {
    task: summary
    for task, summary in tasks.items()
    if all(map(score_table.is_averaged, summary.metrics))
  }
  num_tasks = len(averaged if num_languages is None else num_languages)
  complete = {
    task: summary for task, summary in averaged.items() if not summary.missing
  }

  missing = ''
  if len(complete) < num_tasks:
    num_scored = sum(len(summary.languages) for summary in averaged.values())
    num_expected = sum(summary.of for summary in averaged.values())
    tasks_noun = plurals.pluralize('task', num_tasks)
    owner = 'this task' if len(averaged) == 1 else 'these tasks'
    coverage = [f'{len(averaged)} of {num_tasks} {tasks_noun}']
    if averaged:
      coverage.append(f'test sets of {owner}: {num_scored} of {num_expected}')
    missing = f'({"; ".join(coverage)})'
  gaps = [
    summary.gap for summary in averaged.values() if summary.gap is not None
  ]
  scores = {task: summary.score for task, summary in complete.items()}
  return Summary(
    model=table.model,
    tasks=tasks,
    average=averages.macro_average([*scores.values()])
    if scores and not missing
    else None,
    xtreme=averages.xtreme_average(scores),
    gap=averages.macro_average(gaps) if gaps and not missing else None,
    missing=missing,
  )


@functools.lru_cache(maxsize=32)
def bootstrap_table(
  table: score_table.ScoreTable, source: str, samples: int, seed: int
) -> Mapping[Key, bootstrap.Drawn]:
  """Computes a model's scores on bootstrap samples of the test sets, in points.

  Only scores with per-example statistics are included.

  Args:
    table: Score table of the model.
    source: Language of the fine-tuning data.
    samples: Number of bootstrap samples to draw.
    seed: Random seed for bootstrap resampling.

  Returns:
    Resampled scores by task, metric and language. The metrics include SCORE.
    The languages include MEAN and GAP, and the tasks include ALL.
  """
  scores: dict[Key, bootstrap.Drawn] = {}

  def add_combination(key, part_keys, weights=None):
    """Adds a weighted sum of scores, by default the mean, as entry `key`."""
    if not part_keys or not all(part in scores for part in part_keys):
      return
    combination = bootstrap.combine_draws(
      [scores[part] for part in part_keys],
      weights or [1 / len(part_keys)] * len(part_keys),
    )
    if combination is not None:
      scores[key] = combination

  for score in table.scores:
    if (
      score.examples
      and score.examples[0].by_cluster().size > 1
      and math.isfinite(score.score)
    ):
      key = (score.task, score.metric, score.language)
      scores[key] = bootstrap.bootstrap_scores(
        score.examples, samples=samples, seed=seed
      )
      # Convert the score from the unit of the metric to points.
      add_combination(key, [key], [score_table.to_points(score.metric, 1.0)])

  for task in table.tasks:
    metrics = table.metrics(task)
    task_languages = table.task_scores(task)
    for language in task_languages:
      add_combination(
        (task, SCORE, language),
        [(task, metric, language) for metric in metrics],
      )
    for metric in (*metrics, SCORE):
      languages = (
        task_languages if metric == SCORE else table.by_language(task, metric)
      )
      part_keys = [(task, metric, language) for language in languages]
      add_combination((task, metric, MEAN), part_keys)
      if source in languages and len(languages) > 1:
        target_weight = -1 / (len(languages) - 1)
        weights = [
          1.0 if language == source else target_weight for language in languages
        ]
        add_combination((task, metric, GAP), part_keys, weights)

  averaged_tasks = [
    task
    for task in table.tasks
    if table.task_scores(task)
    and all(map(score_table.is_averaged, table.metrics(task)))
  ]
  add_combination(
    (ALL, SCORE, MEAN), [(task, SCORE, MEAN) for task in averaged_tasks]
  )
  gap_keys = [
    (task, SCORE, GAP)
    for task in averaged_tasks
    if averages.transfer_gap(table.task_scores(task), source=source) is not None
  ]
  add_combination((ALL, SCORE, GAP), gap_keys)
  return scores


def score_intervals(
  table: score_table.ScoreTable,
  *,
  source: str = averages.ENGLISH,
  samples: int = 1000,
  seed: int = 0,
) -> dict[tuple[str, str], Interval]:
  """Returns confidence intervals of task scores, by task and language.

  Only scores with per-example statistics have an interval.

  Args:
    table: Score table of the model.
    source: Language of the fine-tuning data.
    samples: Number of bootstrap samples to draw.
    seed: Random seed for bootstrap resampling.
  """
  resampled = bootstrap_table(table, source, samples, seed)
  return {
    (task, language): Interval(*bootstrap.confidence_interval(scores))
    for (task, metric, language), scores in resampled.items()
    if metric == SCORE and np.isfinite(scores.values).all()
  }


def compare_models(
  tables: Tables,
  *,
  baseline: str | None = None,
  source: str = averages.ENGLISH,
  samples: int = 1000,
  seed: int = 0,
) -> list[Comparison]:
  """Compares each model with the baseline on the scores that both have.

  Args:
    tables: Score table of each model.
    baseline: Name of the baseline. If None, the first model is the baseline.
    source: Language of the fine-tuning data.
    samples: Number of bootstrap samples to draw.
    seed: Random seed for bootstrap resampling.

  Raises:
    CorpusError: If two models were scored on different numbers of examples.
    ConfigError: If none of the models is the baseline.
  """
  baseline_table = _find_baseline(tables, baseline)
  num_languages = count_languages(tables)
  comparisons = []
  for table in tables:
    if table is baseline_table:
      continue
    keys = _shared_keys(
      baseline_table, table, num_languages, source, samples, seed
    )
    comparisons += [
      _compare_scores(key, baseline_table, table, source, samples, seed)
      for key in keys
    ]
  return _adjust_p_values(comparisons)


def _shared_keys(
  baseline, table, num_languages, source, samples, seed
) -> list[Key]:
  """Returns the (task, metric, language) keys on which two models are compared.

  A mean or gap of a task requires that both models have the same languages. A
  mean over tasks also requires that no task and no language is missing.
  """
  language_keys = [
    (score.task, score.metric, score.language)
    for score in table.scores
    if math.isfinite(score.score)
    and score.language in baseline.by_language(score.task, score.metric)
  ]
  comparable_tasks = {
    task
    for task in table.tasks
    if set(table.task_scores(task)) == set(baseline.task_scores(task))
  }
  if all(
    task in comparable_tasks and len(table.task_scores(task)) >= count
    for task, count in num_languages.items()
  ):
    comparable_tasks.add(ALL)

  baseline_scores = bootstrap_table(baseline, source, samples, seed)
  mean_keys = [
    (task, metric, language)
    for task, metric, language in bootstrap_table(table, source, samples, seed)
    if (task, metric, language) in baseline_scores
    and language in (MEAN, GAP)
    and task in comparable_tasks
    and (metric != SCORE or task == ALL)
  ]
  return language_keys + mean_keys


def _find_baseline(tables: Tables, name: str | None) -> score_table.ScoreTable:
  """Returns the table of the baseline, by default the first table."""
  if name is None:
    return tables[0]
  for table in tables:
    if table.model == name:
      return table
  raise errors.ConfigError(
    'The baseline is not one of the compared models',
    got=name,
    expected='one of ' + ', '.join(table.model for table in tables),
  )


def _adjust_p_values(comparisons: Sequence[Comparison]) -> list[Comparison]:
  """Returns the comparisons with p-values adjusted by Holm's method."""
  p_values = [
    comparison.significance.p_value
    for comparison in comparisons
    if comparison.significance is not None
  ]
  adjusted = iter(bootstrap.holm_correction(p_values))
  return [
    comparison
    if comparison.significance is None
    else dataclasses.replace(comparison, adjusted_p=next(adjusted))
    for comparison in comparisons
  ]


def _summarize_task(
  table, task: str, source: str, num_languages: int
) -> TaskSummary:
  """Computes the averages and transfer gaps of a model on a task."""
  by_language = table.task_scores(task)
  by_metric = {
    name: scores
    for name in table.metrics(task)
    if (scores := table.by_language(task, name))
  }
  gaps = {
    name: averages.transfer_gap(scores, source=source)
    for name, scores in by_metric.items()
  }
  return TaskSummary(
    score=averages.macro_average(list(by_language.values())),
    languages=by_language,
    metrics=table.metrics(task),
    gap=averages.transfer_gap(by_language, source=source),
    metric_means={
      name: averages.macro_average(list(scores.values()))
      for name, scores in by_metric.items()
    },
    metric_gaps={name: gap for name, gap in gaps.items() if gap is not None},
    of=max(num_languages, len(by_language)),
  )


def _compare_scores(
  key: Key, baseline, table, source: str, samples: int, seed: int
) -> Comparison:
  """Compares two models by a single score."""
  task, metric, language = key
  baseline_scores = bootstrap_table(baseline, source, samples, seed)
  model_scores = bootstrap_table(table, source, samples, seed)
  significance = None
  if key in baseline_scores and key in model_scores:
    significance = bootstrap.score_difference(
      baseline_scores[key], model_scores[key]
    )
  if language in (MEAN, GAP):
    first = baseline_scores[key].scores.mean()
    second = model_scores[key].scores.mean()
  else:
    first = baseline.by_language(task, metric)[language]
    second = table.by_language(task, metric)[language]

  # A lower gap is better, unless lower values of the metric are better.
  is_lower_better = score_table.is_lower_better(metric) != (language == GAP)
  return Comparison(
    task=task,
    metric=metric,
    language=language,
    baseline=baseline.model,
    model=table.model,
    first=float(first),
    second=float(second),
    difference=float(second - first),
    better=None
    if second == first
    else bool((second < first) == is_lower_better),
    significance=significance,
  )
