"""Differences over seeds and languages, both taken as drawn from many."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from xlflax.evaluation.metrics.bootstrap import Significance


class Errors(NamedTuple):
  """Squared errors of a mean: by the spread of seeds, and of languages."""

  seeds: float
  languages: float


def compare(first: np.ndarray, second: np.ndarray) -> Significance:
  """The difference of two conditions, with its 95 % interval and p-value.

  Its squared error is that of the seeds' means and that of the languages'
  means together, on average no less than the true one; its degrees of freedom
  are Satterthwaite's (1946).

  Args:
    first: scores [seeds, languages], two or more of both.
    second: of the second condition.
  """
  parts = errors(first, second)
  error = sum(parts)
  mean = float((second - first).mean())
  low = high = mean
  p_value = float(mean == 0)
  if error > 0:
    freedom = error**2 / sum(
      part**2 / (count - 1)
      for part, count in zip(parts, first.shape, strict=True)
    )
    reach = math.sqrt(error) * special.stdtrit(freedom, 0.975)
    low, high = mean - reach, mean + reach
    p_value = 2 * special.stdtr(freedom, -abs(mean) / math.sqrt(error))
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


def errors(first: np.ndarray, second: np.ndarray) -> Errors:
  """The two parts of the squared error of the mean difference."""
  change = second - first
  return Errors(
    *(
      float(change.mean(axis=1 - axis).var(ddof=1) / change.shape[axis])
      for axis in (0, 1)
    )
  )


def languages(measure: str, *runs: Mapping[str, float]) -> Sequence[str]:
  """The languages that a measure, 'retrieval:fr', was taken of in all runs."""
  prefix = f'{measure}:'
  found = [
    {name.removeprefix(prefix) for name in run if name.startswith(prefix)}
    for run in runs
  ]
  return sorted(set.intersection(*found)) if found else []
