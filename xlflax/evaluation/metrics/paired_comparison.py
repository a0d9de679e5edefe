"""Comparison of two systems that were run with the same seeds."""

from collections.abc import Sequence

import numpy as np
from scipy import special

from xlflax.evaluation.metrics.bootstrap import Significance
from xlflax.utils import errors


def compare_paired(
  first: Sequence[float], second: Sequence[float]
) -> Significance:
  """Compares two systems with a paired t-test over the seeds.

  Args:
    first: Scores of the first system's runs, one for each random seed.
    second: Scores of the second system's runs, one for each random seed, in the
      same order of seeds as in `first`.

  Returns:
    The mean scores, their difference (second - first) with its 95 % confidence
    interval, and the two-sided p-value. `samples` is 0, since nothing is
    resampled.

  Raises:
    ConfigError: If there are fewer than two seeds, or if the two systems have
      different numbers of runs.
  """
  if len(first) != len(second) or len(first) < 2:
    raise errors.ConfigError(
      'A paired comparison requires at least two seeds, and one run of each '
      f'system for each seed, but the two systems have {len(first)} and '
      f'{len(second)} runs'
    )
  first_scores = np.asarray(first, float)
  second_scores = np.asarray(second, float)
  differences = second_scores - first_scores
  runs = len(differences)
  mean = differences.mean()
  error = differences.std(ddof=1) / np.sqrt(runs)
  if error <= 1e-12 * max(1.0, abs(mean)):
    low = high = mean
    p_value = 1.0 if abs(mean) <= 1e-12 else 0.0
  else:
    half_width = error * special.stdtrit(runs - 1, 0.975)
    low, high = mean - half_width, mean + half_width
    p_value = 2 * special.stdtr(runs - 1, -abs(mean) / error)
  return Significance(
    first=float(first_scores.mean()),
    second=float(second_scores.mean()),
    difference=float(mean),
    low=float(low),
    high=float(high),
    p_value=float(p_value),
    samples=0,
    runs=(runs, runs),
  )
