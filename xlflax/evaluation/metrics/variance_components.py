"""Uncertainty of a mean over runs, or of the difference between two means.

The scores of runs vary with their seeds and with the interaction of runs and
examples. Scores on resampled test sets vary with the examples and with the same
interaction. The variance components are those of a crossed design with two
random factors. Their sum has few degrees of freedom, and one component is a
difference of estimates that may be negative. Satterthwaite's approximation of
the sum by a single chi-square distribution is therefore too conservative if
seeds do not differ, and the distribution of the sum is computed instead.
"""

import functools
from typing import NamedTuple

import numpy as np
from scipy import optimize, special


class Spread(NamedTuple):
  """Variance components of a mean, or of the difference between two means.

  Attributes:
    examples: Variance due to the choice of examples, without `interaction`. It
      is at least 0.
    interaction: Variance due to the interaction between runs and examples.
    runs: Variance between runs, including `interaction`.
    example_freedom: Degrees of freedom of the variance estimates `examples` and
      `interaction`.
    run_freedom: Degrees of freedom of the variance estimate `runs`.
  """

  examples: float
  interaction: float
  runs: float
  example_freedom: float
  run_freedom: int

  @property
  def error(self) -> float:
    """Standard error of the mean or difference."""
    return float(np.sqrt(self.examples + self.runs))


def estimate_variance(scores, values, sides, size) -> Spread:
  """Estimates the variance components from bootstrap scores.

  The variance of the runs' scores on the same examples is due to the seeds and
  to the interaction of runs and examples. The variance over resampled test sets
  also includes the interaction, which is therefore subtracted from it.

  Args:
    scores: Score of each run on all examples, of shape [runs].
    values: Scores on each resampled test set, of shape [samples, runs].
    sides: Indices of the runs of each model. One model yields the variance of
      its mean, and two models yield the variance of the difference between
      means.
    size: Number of examples.
  """
  signs = (1.0,) if len(sides) == 1 else (-1.0, 1.0)
  contrast = sum(
    sign * values[:, side].mean(1)
    for sign, side in zip(signs, sides, strict=True)
  )
  resampling_variance = contrast.var(ddof=1)

  run_freedom = len(scores) - len(sides)
  repeated_sides = [side for side in sides if len(side) > 1]
  between = sum(
    (len(side) - 1) * scores[side].var(ddof=1) for side in repeated_sides
  )
  within = sum(
    len(side)
    * (
      values[:, side].var(0, ddof=1).mean()
      - values[:, side].mean(1).var(ddof=1)
    )
    for side in repeated_sides
  )
  # Factor from pooled sums of squares to the variance of the (difference of)
  # means.
  factor = sum(1 / len(side) for side in sides) / run_freedom
  interaction = max(factor * within, 0.0)
  return Spread(
    examples=float(max(resampling_variance - interaction, 0.0)),
    interaction=float(interaction),
    runs=float(factor * between),
    example_freedom=bootstrap_freedom(size, len(values)),
    run_freedom=run_freedom,
  )


def bootstrap_freedom(size: int, samples: int) -> float:
  """Returns the degrees of freedom of a variance estimated by bootstrap.

  Args:
    size: Number of examples.
    samples: Number of bootstrap samples to draw.
  """
  return 1 / (1 / max(size - 1, 1) + 1 / (samples - 1))


def p_value(difference: float, spread: Spread) -> float:
  """Returns the two-sided p-value for the difference between two means.

  If only the runs vary, this is the p-value of Student's t with their degrees
  of freedom. If only the examples vary, it is the p-value of Student's t with
  `example_freedom` degrees of freedom.
  """
  ratio = abs(difference) / spread.error
  return _two_sided_p(ratio, *_relative_variances(spread))


def interval_half_width(spread: Spread) -> float:
  """Returns half the width of the 95 % confidence interval."""
  variances = _relative_variances(spread)
  return spread.error * optimize.brentq(
    lambda ratio: _two_sided_p(ratio, *variances) - 0.05, 0.0, 1e6, rtol=1e-9
  )


def _relative_variances(spread: Spread) -> tuple[np.ndarray, np.ndarray]:
  """Returns possible ratios of estimated to true variance, with weights.

  The estimate is a sum of scaled chi-square variables. The component of the
  runs has few degrees of freedom, and that of the examples is a difference that
  is bounded below by 0. The true components are unknown. To prevent this
  uncertainty from making a difference more significant, the component of the
  examples is reduced by the noise that `interaction` adds to its estimate, and
  the component of the runs is at least `interaction`, multiplied by 2, or by 1
  + 4 / freedom if the degrees of freedom exceed 4. These factors were chosen by
  simulations.
  """
  noise = np.sqrt(2 * (1 + 1 / spread.run_freedom) / spread.example_freedom)
  examples = max(spread.examples - noise * spread.interaction, 0.0)
  runs = max(spread.runs, spread.interaction)
  runs *= 1 + 4 / max(spread.run_freedom, 4)
  error = np.hypot(
    examples + spread.interaction,
    spread.interaction / np.sqrt(spread.run_freedom),
  )
  example_nodes, example_weights = _chi_square(spread.example_freedom, 16)
  example_variances = np.maximum(examples + error * (example_nodes - 1), 0.0)
  run_nodes, run_weights = _chi_square(spread.run_freedom, 96)
  variances = example_variances[:, None] + runs * run_nodes
  ratios = variances / (examples + runs)
  return ratios.ravel(), np.outer(example_weights, run_weights).ravel()


def _two_sided_p(ratio, variances, weights) -> float:
  """Returns the two-sided p-value of a ratio of difference to standard error.

  Args:
    ratio: Difference divided by its standard error.
    variances: Ratios of estimated variance to true variance.
    weights: Weights of the elements of `variances`. The weights sum to 1.
  """
  return float(2 * special.ndtr(-ratio * np.sqrt(variances)) @ weights)


@functools.cache
def _chi_square(freedom: float, count: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns quadrature nodes and weights for a scaled chi-square distribution.

  The quadrature is Gauss-Legendre in the square root of the variable.

  Args:
    freedom: Degrees of freedom of the chi-square distribution.
    count: Number of quadrature nodes.

  Returns:
    Nodes and weights of shape [count].
  """
  middle = np.sqrt(freedom)
  low, high = max(middle - 7, 0.0), middle + 7
  nodes, weights = np.polynomial.legendre.leggauss(count)
  roots = low + (high - low) * (nodes + 1) / 2
  density = (freedom - 1) * np.log(roots) - roots**2 / 2
  weights = weights * np.exp(density - density.max())
  return roots**2 / freedom, weights / weights.sum()
