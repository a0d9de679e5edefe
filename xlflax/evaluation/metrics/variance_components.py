"""How far the mean of several runs, or the difference of two, may be off.

The runs' scores vary by their seeds and by what each run makes of each example;
the drawn test sets vary by the examples and by the latter, too. The parts are
those of a crossed design with two random factors. Their sum is known by few
degrees of freedom, and one part is a difference that may come out below 0, so
that Satterthwaite's approximation of the sum by one chi-square is too careful
where seeds do not differ: the sum's own distribution is computed instead.
"""

import functools
from typing import NamedTuple

import numpy as np
from scipy import optimize, special


class Spread(NamedTuple):
  """Parts of the variance of a mean, or of a difference of two means.

  Attributes:
    examples: due to the examples, apart from `interaction`; at least 0.
    interaction: due to what each run makes of each example.
    runs: due to the runs, `interaction` included.
    drawn: degrees of freedom that `examples` and `interaction` are known by.
    freedom: degrees of freedom of the runs.
  """

  examples: float
  interaction: float
  runs: float
  drawn: float
  freedom: int

  @property
  def error(self) -> float:
    """The standard error."""
    return float(np.sqrt(self.examples + self.runs))


def estimate_variance(scores, drawn, sides, size) -> Spread:
  """The parts of the variance.

  The variance of runs' scores on the same examples is due to seeds, and to
  what each run makes of each example, which the examples' draws count, too:
  it is taken off there.

  Args:
    scores: [runs].
    drawn: [S, runs].
    sides: places of the runs of one model, or of each of two.
    size: number of examples.
  """
  signs = (1.0,) if len(sides) == 1 else (-1.0, 1.0)
  means = [drawn[:, side].mean(1) for side in sides]
  of_examples = sum(s * m for s, m in zip(signs, means, strict=True)).var(
    ddof=1
  )
  freedom = len(scores) - len(sides)
  repeated_sides = [side for side in sides if len(side) > 1]
  between = sum(
    (len(side) - 1) * scores[side].var(ddof=1) for side in repeated_sides
  )
  within = sum(
    len(side)
    * (
      drawn[:, side].var(0, ddof=1).mean() - drawn[:, side].mean(1).var(ddof=1)
    )
    for side in repeated_sides
  )
  share = sum(1 / len(side) for side in sides) / freedom
  interaction = max(share * within, 0.0)
  return Spread(
    examples=float(max(of_examples - interaction, 0.0)),
    interaction=float(interaction),
    runs=float(share * between),
    drawn=drawn_freedom(size, len(drawn)),
    freedom=freedom,
  )


def drawn_freedom(size: int, samples: int) -> float:
  """Degrees of freedom of a variance of `samples` draws from `size` examples."""
  return 1 / (1 / max(size - 1, 1) + 1 / (samples - 1))


def p_value(difference: float, spread: Spread) -> float:
  """How often no difference is found as one this large, in either direction.

  With runs alone this is Student's t of their degrees of freedom, with
  examples alone that of `drawn`.
  """
  ratio = abs(difference) / spread.error
  return _two_sided(ratio, *_relative_variances(spread))


def interval_half_width(spread: Spread) -> float:
  """Half the 95 % interval."""
  variances = _relative_variances(spread)
  return spread.error * optimize.brentq(
    lambda ratio: _two_sided(ratio, *variances) - 0.05, 0.0, 1e6, rtol=1e-9
  )


def _relative_variances(spread: Spread) -> tuple[np.ndarray, np.ndarray]:
  """What the estimated variance could have been, over the true one; weights.

  The estimate is a sum of chi-squares, of which the runs' has few degrees of
  freedom and the examples' is a difference that is cut at 0. The true parts
  are not known. So that what is uncertain does not make a difference more
  significant, the examples' part is taken to be lower than it was found by the
  noise that `interaction` brings, and the runs' to be `interaction` at least,
  times 2, or 1 + 4 / freedom where there are more; simulations chose this.
  """
  noise = np.sqrt(2 * (1 + 1 / spread.freedom) / spread.drawn)
  examples = max(spread.examples - noise * spread.interaction, 0.0)
  runs = max(spread.runs, spread.interaction)
  runs *= 1 + 4 / max(spread.freedom, 4)
  error = np.hypot(
    examples + spread.interaction, spread.interaction / np.sqrt(spread.freedom)
  )
  places, weights = _chi_square(spread.drawn, 16)
  guesses = np.maximum(examples + error * (places - 1), 0.0)
  chi_squares, other_weights = _chi_square(spread.freedom, 96)
  variances = (guesses[:, None] + runs * chi_squares) / (examples + runs)
  return variances.ravel(), np.outer(weights, other_weights).ravel()


def _two_sided(ratio, relative, weights) -> float:
  return float(2 * special.ndtr(-ratio * np.sqrt(relative)) @ weights)


@functools.cache
def _chi_square(freedom: float, count: int) -> tuple[np.ndarray, np.ndarray]:
  """Places and weights, [count], of a chi-square over its freedom."""
  middle = np.sqrt(freedom)
  low, high = max(middle - 7, 0.0), middle + 7
  places, weights = np.polynomial.legendre.leggauss(count)
  roots = low + (high - low) * (places + 1) / 2
  density = (freedom - 1) * np.log(roots) - roots**2 / 2
  weights = weights * np.exp(density - density.max())
  return roots**2 / freedom, weights / weights.sum()
