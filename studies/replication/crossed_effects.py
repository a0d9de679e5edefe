"""Comparisons of scores that vary both between seeds and between languages."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy import special

from xlflax.evaluation.metrics.bootstrap import Significance


class SquaredErrors(NamedTuple):
  """Contributions of seeds and languages to the squared error of a mean.

  Attributes:
    seeds: Part of the mean's squared error that is due to variation between
      seeds.
    languages: Part of the mean's squared error that is due to variation between
      languages.
  """

  seeds: float
  languages: float


def compare_crossed(first: np.ndarray, second: np.ndarray) -> Significance:
  """Computes a score difference with its 95 % confidence interval.

  Two conditions (training configurations) are compared. The squared error of
  the difference is the sum of two squared errors: one for the means by seed,
  and one for the means by language.
  On average, this sum is not less than the true squared error. The degrees of
  freedom follow Satterthwaite (1946).

  Args:
    first: Scores of the first condition, of shape [seeds, languages], with at
      least two seeds and two languages.
    second: Scores of the second condition, with the same shape as `first`.
  """
  components = squared_errors(first, second)
  squared_error = sum(components)
  mean = float((second - first).mean())
  low = high = mean
  p_value = float(mean == 0)
  if squared_error > 0:
    degrees_of_freedom = squared_error**2 / sum(
      component**2 / (count - 1)
      for component, count in zip(components, first.shape, strict=True)
    )
    standard_error = math.sqrt(squared_error)
    half_width = standard_error * special.stdtrit(degrees_of_freedom, 0.975)
    low, high = mean - half_width, mean + half_width
    p_value = 2 * special.stdtr(degrees_of_freedom, -abs(mean) / standard_error)
  return Significance(
    first=float(first.mean()),
    second=float(second.mean()),
    difference=mean,
    low=float(low),
    high=float(high),
    p_value=float(p_value),
    samples=0,
    runs=(len(first), len(second)),
  )


def squared_errors(first: np.ndarray, second: np.ndarray) -> SquaredErrors:
  """Computes the contributions of seeds and languages to a squared error.

  The mean is the difference between two conditions (training configurations),
  averaged over seeds and languages.

  Args:
    first: Scores of the first condition, of shape [seeds, languages].
    second: Scores of the second condition, with the same shape as `first`.
  """
  differences = second - first
  return SquaredErrors(
    *(
      float(
        differences.mean(axis=1 - axis).var(ddof=1) / differences.shape[axis]
      )
      for axis in (0, 1)
    )
  )


def common_languages(measure: str, *runs: Mapping[str, float]) -> list[str]:
  """Returns the languages in which a metric was measured in every run.

  Args:
    measure: Name of the measure. Its value in a language such as French is
      stored as `NAME:fr`.
    *runs: The measures of each run, by name.
  """
  prefix = f'{measure}:'
  languages = [
    {name.removeprefix(prefix) for name in run if name.startswith(prefix)}
    for run in runs
  ]
  return sorted(set.intersection(*languages)) if languages else []
