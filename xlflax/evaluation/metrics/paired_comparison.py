"""The difference of two systems whose runs share their seeds."""

from collections.abc import Sequence

import numpy as np
from scipy import special

from xlflax.evaluation.metrics.bootstrap import Significance
from xlflax.utils import errors


def compare_paired(
  first: Sequence[float], second: Sequence[float]
) -> Significance:
  """Compares two systems by Student's t on the differences of each seed.

  Args:
    first: scores of the first system's runs.
    second: of the second's, in the same order of seeds.

  Returns:
    Mean scores, their difference (second - first) with its 95 % interval, and
    the two-sided p-value. `samples` is 0: nothing is drawn.

  Raises:
    ConfigError: there are fewer than two seeds, or not as many of both.
  """
  if len(first) != len(second) or len(first) < 2:
    raise errors.ConfigError(
      'A paired comparison needs the same seeds of both systems',
      got=f'{len(first)} and {len(second)} runs',
      expected='as many of both, and two or more',
    )
  before, after = np.asarray(first, float), np.asarray(second, float)
  change = after - before
  runs = len(change)
  mean, error = change.mean(), change.std(ddof=1) / np.sqrt(runs)
  if error <= 1e-12 * max(1.0, abs(mean)):
    low = high = mean
    p_value = 1.0 if abs(mean) <= 1e-12 else 0.0
  else:
    reach = error * special.stdtrit(runs - 1, 0.975)
    low, high = mean - reach, mean + reach
    p_value = 2 * special.stdtr(runs - 1, -abs(mean) / error)
  return Significance(
    first=float(before.mean()),
    second=float(after.mean()),
    difference=float(mean),
    low=float(low),
    high=float(high),
    p_value=float(p_value),
    samples=0,
    runs=(runs, runs),
  )
