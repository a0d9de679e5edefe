"""Which setting of a grid is best, on the dev set alone; means over seeds."""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import eval_task, task_families
from xlflax.evaluation.metrics.metric import Better
from xlflax.finetuning import grid_trials
from xlflax.utils import errors, name_suggestions


@dataclasses.dataclass(frozen=True)
class Spread:
  """Mean and spread of some numbers.

  Attributes:
    values: the numbers; those that are not finite are left out.
  """

  values: tuple[float, ...]

  def __post_init__(self):
    object.__setattr__(
      self,
      'values',
      tuple(value for value in self.values if math.isfinite(value)),
    )

  @classmethod
  def of(cls, values: Iterable[float | None]) -> 'Spread':
    """Of those that are numbers."""
    return cls(tuple(value for value in values if value is not None))

  @property
  def mean(self) -> float | None:
    return statistics.fmean(self.values) if self.values else None

  @property
  def std(self) -> float | None:
    """Of a sample (n - 1); None of fewer than two numbers."""
    return statistics.stdev(self.values) if len(self.values) > 1 else None

  def to_json(self) -> dict[str, Any]:
    """{'mean', 'std', 'min', 'max', 'count'}."""
    return {
      'mean': self.mean,
      'std': self.std,
      'min': min(self.values, default=None),
      'max': max(self.values, default=None),
      'count': len(self.values),
    }

  def __str__(self) -> str:
    if self.mean is None:
      return '-'
    spread = '' if self.std is None else f' ± {self.std:.4f}'
    return f'{self.mean:.4f}{spread}'


@dataclasses.dataclass(frozen=True)
class Setting:
  """The trials that differ in the seed only.

  Attributes:
    name: such as 'LEARNING_RATE=1e-5,BATCH_SIZE=16'.
    results: one for each seed.
  """

  name: str
  results: tuple[grid_trials.TrialResult, ...]

  @property
  def untrained(self) -> bool:
    """Whether its trials start from random parameters."""
    return self.results[0].trial.untrained

  @property
  def finished(self) -> tuple[grid_trials.TrialResult, ...]:
    return tuple(
      result
      for result in self.results
      if result.status is grid_trials.Status.FINISHED
    )

  @property
  def is_complete(self) -> bool:
    """Whether every seed has come to its end with a result."""
    return len(self.finished) == len(self.results)

  @property
  def dev(self) -> Spread:
    """The metric that is selected by, over seeds."""
    return Spread.of(result.value for result in self.finished)


def results_by_setting(
  results: Iterable[grid_trials.TrialResult],
) -> tuple[Setting, ...]:
  """The results by setting, in the order of the grid."""
  grouped: dict[str, list[grid_trials.TrialResult]] = {}
  for result in results:
    grouped.setdefault(result.trial.setting, []).append(result)
  return tuple(Setting(name, tuple(group)) for name, group in grouped.items())


def rank_settings(
  settings: Sequence[Setting], metric: str | None
) -> tuple[Setting, ...]:
  """Settings by their mean over seeds on the dev set, the best first.

  A setting one of whose seeds has no result is not ranked; of equals the
  earlier is better.

  Args:
    settings: of the grid.
    metric: that was selected by; its declaration says which way is better.
      None: a grid of one setting, which is the best.

  Raises:
    ConfigError: no metric, and several settings.
  """
  usable = [s for s in settings if s.is_complete]
  if metric is None:
    check_metric(metric, len(settings))
    return tuple(usable)
  sign = 1 if task_families.better_of(metric) is Better.LOWER else -1
  ranked = [
    (sign * s.dev.mean, index, s)
    for index, s in enumerate(usable)
    if s.dev.mean is not None
  ]
  return tuple(s for _, _, s in sorted(ranked, key=lambda item: item[:2]))


def check_metric(metric: str | None, num_settings: int) -> None:
  """Raises a ConfigError if nothing says which of several settings is best."""
  if metric is None and num_settings > 1:
    raise errors.ConfigError(
      'Nothing says which setting of the grid is best',
      got=f'{num_settings} settings',
      where='--metric_for_best_model',
      expected='a metric of the dev set such as classification/accuracy/en',
    )


def check_exists(metric: str, tasks: Sequence[eval_task.EvalTask]) -> None:
  """Raises a ConfigError for a metric that no task of the dev set gives.

  Args:
    metric: 'task/metric/part'.
    tasks: what training evaluates.
  """
  name, _, suffix = metric.partition('/')
  kind, _, part = suffix.partition('/')
  metric_names = [
    f'{task.name}/{task.primary_metric}/{_part(task)}' for task in tasks
  ]
  for task in tasks:
    kinds = [task_metric.name for task_metric in task.METRICS] or [kind]
    parts = _parts(task) or [part]
    if (task.name, bool(kind and part)) != (name, True):
      continue
    if kind in kinds and part in (*parts, 'mean'):
      return
  raise errors.ConfigError(
    'Training evaluates no such metric',
    got=metric,
    where='--metric_for_best_model',
    expected='such as ' + ', '.join(metric_names)
    if metric_names
    else 'evaluation tasks',
    fix=name_suggestions.did_you_mean(metric, metric_names),
  )


def _parts(task: eval_task.EvalTask) -> list[str]:
  """The languages that a labelled task will score; [] where it is not known."""
  source = getattr(task, 'source', None)
  if not isinstance(source, example_source.ExampleSource):
    return []
  return list(source.languages())


def _part(task: eval_task.EvalTask) -> str:
  return (_parts(task) or ['mean'])[0]
