"""The numbers of a report: task scores, averages, gaps, comparisons."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from xlflax.evaluation.metrics import averages, bootstrap
from xlflax.evaluation.reports import score_table
from xlflax.utils import errors

Tables = Sequence[score_table.ScoreTable]
ALL = 'all tasks'
MEAN, GAP = 'mean', 'gap'  # over a task's languages
SCORE = 'score'  # the mean of a task's metrics
Key = tuple[str, str, str]  # task, metric, language


@dataclasses.dataclass(frozen=True)
class TaskSummary:
  """One model on one task, in points.

  Attributes:
    score: mean over languages of the main metrics' mean.
    languages: language -> mean of the main metrics.
    metrics: the main metrics.
    gap: score in the source language minus the mean of the others; None
      where the task lacks either.
    metric_means: metric -> mean over languages, of every metric.
    metric_gaps: metric -> gap, of every metric that has one.
    of: how many languages there are.
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
    """'(5 of 36 languages)'; '' if none is missing."""
    have = len(self.languages)
    return f'({have} of {self.of} languages)' if have < self.of else ''


@dataclasses.dataclass(frozen=True)
class Interval:
  """The 95 % interval of a score, in points."""

  low: float
  high: float

  @property
  def reach(self) -> float:
    """Half of its width."""
    return (self.high - self.low) / 2


@dataclasses.dataclass(frozen=True)
class Summary:
  """One model on all tasks.

  Attributes:
    model: its name.
    tasks: task -> summary.
    average: mean over tasks of their scores, without those whose metric is
      an error or has no bound (AER, perplexity); None without any, or where
      one lacks a language.
    xtreme: XTREME's averages: of its groups and of all nine tasks, as far as
      no task and no language is missing.
    gap: mean over tasks of the transfer gap, of the tasks in `average`.
    missing: '(2 of 9 tasks, 7 of 69 languages)', those of the tasks that are
      there; '' where nothing is missing.
  """

  model: str
  tasks: dict[str, TaskSummary]
  average: float | None
  xtreme: dict[str, float]
  gap: float | None
  missing: str = ''


@dataclasses.dataclass(frozen=True)
class Comparison:
  """Two models on one test set, or on the mean of several, in points.

  Attributes:
    task: of the test set, or ALL.
    metric: compared, SCORE for ALL.
    language: of the test set, MEAN or GAP.
    baseline: name of the first model.
    model: name of the other.
    first: the baseline's score.
    second: the other's score.
    difference: second - first.
    better: whether the difference is an improvement; None for none.
    significance: of the bootstrap; None if a model has no scores of single
      examples, or none that can be compared.
    adjusted_p: its p-value, adjusted by Holm's method for being one of all
      comparisons of the board.
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


def expected(tables: Tables) -> dict[str, int]:
  """Task -> its languages, of the tasks that count in the mean over tasks."""
  found: dict[str, set[str]] = {}
  for table in tables:
    for task in table.expected:
      found.setdefault(task, set())
    for one in table.scores:
      found.setdefault(one.task, set()).add(one.language)
  return {
    task: max(len(names), *(table.expected.get(task, 0) for table in tables))
    for task, names in found.items()
    if all(
      score_table.is_averaged(metric)
      for table in tables
      for metric in table.metrics(task)
    )
  }


def summarize(
  table: score_table.ScoreTable,
  *,
  source: str = averages.ENGLISH,
  wanted: Mapping[str, int] | None = None,
) -> Summary:
  """Averages and gaps of one model; tasks without a finite score are left out.

  Args:
    table: its scores.
    source: the language that the model was fine-tuned in.
    wanted: task -> its languages (see `expected`): a mean over tasks needs all
      of them; None: those that have a finite score.
  """
  tasks = {
    task: _summarize_task(table, task, source, (wanted or {}).get(task, 0))
    for task in table.tasks
    if table.task_scores(task)
  }
  counted = {
    task: one
    for task, one in tasks.items()
    if all(map(score_table.is_averaged, one.metrics))
  }
  number = len(counted if wanted is None else wanted)
  whole = {task: one for task, one in counted.items() if not one.missing}
  missing = ''
  if len(whole) < number:
    have = sum(len(one.languages) for one in counted.values())
    missing = (
      f'({len(counted)} of {number} tasks, {have} of '
      f'{sum(one.of for one in counted.values())} languages)'
    )
  gaps = [one.gap for one in counted.values() if one.gap is not None]
  scores = {task: one.score for task, one in whole.items()}
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
def drawn(
  table: score_table.ScoreTable, source: str, samples: int, seed: int
) -> Mapping[Key, bootstrap.Drawn]:
  """Scores in points on drawn test sets, where single examples are known.

  They are of each language, of MEAN and GAP of each task, and of ALL; of every
  metric, and of SCORE.
  """
  found: dict[Key, bootstrap.Drawn] = {}

  def add(key, parts, weights=None):
    if parts and all(part in found for part in parts):
      one = bootstrap.combine_draws(
        [found[part] for part in parts],
        weights or [1 / len(parts)] * len(parts),
      )
      if one is not None:
        found[key] = one

  for one in table.scores:
    if (
      one.examples
      and one.examples[0].by_cluster().size > 1
      and math.isfinite(one.score)
    ):
      key = (one.task, one.metric, one.language)
      found[key] = bootstrap.bootstrap_scores(
        one.examples, samples=samples, seed=seed
      )
      add(key, [key], [score_table.points(one.metric, 1.0)])
  for task in table.tasks:
    metrics, both = table.metrics(task), table.task_scores(task)
    for language in both:
      add((task, SCORE, language), [(task, one, language) for one in metrics])
    for metric in (*metrics, SCORE):
      names = both if metric == SCORE else table.by_language(task, metric)
      parts = [(task, metric, language) for language in names]
      add((task, metric, MEAN), parts)
      if source in names and len(names) > 1:
        other = -1 / (len(names) - 1)
        weights = [1.0 if name == source else other for name in names]
        add((task, metric, GAP), parts, weights)
  counted = [
    task
    for task in table.tasks
    if table.task_scores(task)
    and all(map(score_table.is_averaged, table.metrics(task)))
  ]
  add((ALL, SCORE, MEAN), [(task, SCORE, MEAN) for task in counted])
  gaps = [
    (task, SCORE, GAP)
    for task in counted
    if averages.transfer_gap(table.task_scores(task), source=source) is not None
  ]
  add((ALL, SCORE, GAP), gaps)
  return found


def intervals(
  table: score_table.ScoreTable,
  *,
  source: str = averages.ENGLISH,
  samples: int = 1000,
  seed: int = 0,
) -> dict[tuple[str, str], Interval]:
  """(task, language) -> interval of SCORE, where single examples are known."""
  return {
    (task, language): Interval(*bootstrap.confidence_interval(one))
    for (task, metric, language), one in drawn(
      table, source, samples, seed
    ).items()
    if metric == SCORE and np.isfinite(one.values).all()
  }


def compare(
  tables: Tables,
  *,
  baseline: str | None = None,
  source: str = averages.ENGLISH,
  samples: int = 1000,
  seed: int = 0,
) -> list[Comparison]:
  """Every other model against the baseline, on what both have.

  Args:
    tables: of the models.
    baseline: name of one of them; None: the first.
    source: the language that models were fine-tuned in.
    samples: of the bootstrap.
    seed: of the bootstrap.

  Raises:
    CorpusError: single examples of two models are not as many.
    ConfigError: no model has the baseline's name.
  """
  first = _baseline(tables, baseline)
  wanted = expected(tables)
  out = []
  for table in tables:
    if table is not first:
      out += [
        _comparison(key, first, table, source, samples, seed)
        for key in _shared_keys(first, table, wanted, source, samples, seed)
      ]
  return _adjusted(out)


def _shared_keys(first, table, wanted, source, samples, seed) -> list[Key]:
  """What two models are compared on: means where languages are the same."""
  languages = [
    (one.task, one.metric, one.language)
    for one in table.scores
    if math.isfinite(one.score)
    and one.language in first.by_language(one.task, one.metric)
  ]
  same = {
    task
    for task in table.tasks
    if set(table.task_scores(task)) == set(first.task_scores(task))
  }
  if all(
    task in same and len(table.task_scores(task)) >= number
    for task, number in wanted.items()
  ):
    same.add(ALL)
  before = drawn(first, source, samples, seed)
  return languages + [
    (task, metric, language)
    for task, metric, language in drawn(table, source, samples, seed)
    if (task, metric, language) in before and language in (MEAN, GAP)
    if task in same and (metric != SCORE or task == ALL)
  ]


def _baseline(tables: Tables, name: str | None) -> score_table.ScoreTable:
  if name is None:
    return tables[0]
  for table in tables:
    if table.model == name:
      return table
  raise errors.ConfigError(
    'The baseline is none of the models',
    got=name,
    expected='one of ' + ', '.join(table.model for table in tables),
  )


def _adjusted(found: Sequence[Comparison]) -> list[Comparison]:
  """The comparisons with p-values adjusted for all that have one."""
  tested = [one.significance for one in found if one.significance is not None]
  adjusted = iter(bootstrap.holm_correction([one.p_value for one in tested]))
  return [
    one
    if one.significance is None
    else dataclasses.replace(one, adjusted_p=next(adjusted))
    for one in found
  ]


def _summarize_task(table, task: str, source: str, of: int) -> TaskSummary:
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
    of=max(of, len(by_language)),
  )


def _comparison(
  key: Key, baseline, table, source: str, samples: int, seed: int
) -> Comparison:
  task, metric, language = key
  draws = [drawn(one, source, samples, seed) for one in (baseline, table)]
  found = None
  if all(key in one for one in draws):
    found = bootstrap.score_difference(*(one[key] for one in draws))
  if language in (MEAN, GAP):
    before, after = (one[key].scores.mean() for one in draws)
  else:
    before, after = (
      one.by_language(task, metric)[language] for one in (baseline, table)
    )
  lower = score_table.lower_is_better(metric) != (language == GAP)
  return Comparison(
    task=task,
    metric=metric,
    language=language,
    baseline=baseline.model,
    model=table.model,
    first=float(before),
    second=float(after),
    difference=float(after - before),
    better=None if after == before else bool((after < before) == lower),
    significance=found,
  )
