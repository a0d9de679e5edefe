"""Model selection by mean dev-set scores over seeds."""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from xlflax.evaluation import score_format, task_families
from xlflax.evaluation.metrics.metric import Better
from xlflax.finetuning import grid_trials
from xlflax.utils import errors


@dataclasses.dataclass(frozen=True)
class Spread:
  """Mean and standard deviation of a list of numbers.

  Attributes:
    values: Numbers to summarize. Numbers that are not finite are removed.
  """

  values: tuple[float, ...]

  def __post_init__(self):
    object.__setattr__(
      self,
      'values',
      tuple(value for value in self.values if math.isfinite(value)),
    )

  @classmethod
  def from_optional(cls, values: Iterable[float | None]) -> 'Spread':
    """Creates a `Spread` from the values that are not None."""
    return cls(tuple(value for value in values if value is not None))

  @property
  def mean(self) -> float | None:
    """Mean of the numbers, or None if there are none."""
    return statistics.fmean(self.values) if self.values else None

  @property
  def std(self) -> float | None:
    """Sample standard deviation (n - 1), or None for fewer than two numbers."""
    return statistics.stdev(self.values) if len(self.values) > 1 else None

  def to_json(self) -> dict[str, Any]:
    """Returns a dict with the keys `mean`, `std`, `min`, `max` and `count`."""
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
    mean, std = (
      score_format.format_score(value, decimals=4)
      for value in (self.mean, self.std)
    )
    return mean if self.std is None else f'{mean} ± {std}'


@dataclasses.dataclass(frozen=True)
class Setting:
  """A hyperparameter setting, whose trials differ only in the seed.

  Attributes:
    name: Name of the setting, such as 'LEARNING_RATE=1e-5,BATCH_SIZE=16'.
    results: Trial results, one for each seed.
  """

  name: str
  results: tuple[grid_trials.TrialResult, ...]

  @property
  def untrained(self) -> bool:
    """True if the trials start from randomly initialized parameters."""
    return self.results[0].trial.untrained

  @property
  def finished(self) -> tuple[grid_trials.TrialResult, ...]:
    """Results of the trials that have finished."""
    return tuple(
      result
      for result in self.results
      if result.status is grid_trials.Status.FINISHED
    )

  @property
  def is_complete(self) -> bool:
    """True if the trials for all seeds have finished."""
    return len(self.finished) == len(self.results)

  @property
  def dev(self) -> Spread:
    """Mean and standard deviation of the selection metric over seeds."""
    return Spread.from_optional(result.value for result in self.finished)


def results_by_setting(
  results: Iterable[grid_trials.TrialResult],
) -> tuple[Setting, ...]:
  """Groups trial results by hyperparameter setting, in grid order."""
  grouped: dict[str, list[grid_trials.TrialResult]] = {}
  for result in results:
    grouped.setdefault(result.trial.setting, []).append(result)
  return tuple(Setting(name, tuple(group)) for name, group in grouped.items())


def rank_settings(
  settings: Sequence[Setting], metric: str | None
) -> tuple[Setting, ...]:
  """Ranks settings by mean dev-set score over seeds, best setting first.

  Settings without results for all seeds are not ranked. Ties are ordered as in
  the grid.

  Args:
    settings: Hyperparameter settings to rank, each with its trial results.
    metric: Selection metric, which defines whether lower values are
      better. If None, the grid must have a single setting.

  Raises:
    ConfigError: If there are several hyperparameter settings, but no metric by
      which to select one.
  """
  complete_settings = [setting for setting in settings if setting.is_complete]
  if metric is None:
    check_metric(metric, len(settings))
    return tuple(complete_settings)
  sign = 1 if task_families.better_of(metric) is Better.LOWER else -1
  means_and_settings = [
    (sign * setting.dev.mean, setting)
    for setting in complete_settings
    if setting.dev.mean is not None
  ]
  # The sort is stable, so that ties keep the order of the grid.
  means_and_settings.sort(key=lambda pair: pair[0])
  return tuple(setting for _, setting in means_and_settings)


def check_metric(metric: str | None, num_settings: int) -> None:
  """Raises ConfigError if there are several settings but no selection metric.

  Args:
    metric: Metric for selecting the best setting, or None.
    num_settings: Number of hyperparameter settings in the grid.
  """
  if metric is None and num_settings > 1:
    raise errors.ConfigError(
      f'A grid with {num_settings} settings requires --metric_for_best_model, '
      'because a metric on the development set selects the best setting',
      fix='Pass a metric such as '
      '--metric_for_best_model=classification/accuracy/en.',
    )
