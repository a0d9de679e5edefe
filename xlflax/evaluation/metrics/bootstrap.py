"""Paired bootstrap: is one model better than another, or is it chance?

Source: Koehn (2004), "Statistical significance tests for machine translation
evaluation". Test sets of the same size are drawn from the examples with
replacement; both models are scored on each.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from xlflax import errors
from xlflax.evaluation.metrics import aggregates, checks

_CHUNK = 4_000_000  # drawn places at a time, to bound memory


@dataclasses.dataclass(frozen=True)
class Significance:
  """What resampling found; the unit is the metric's.

  Attributes:
    first: the first model's score on all examples.
    second: the second model's.
    difference: second - first.
    low: 2.5th percentile of the resampled difference.
    high: 97.5th percentile.
    p_value: share of the draws in which the observed difference vanishes or
      changes its sign, counting the observed sample as one of them; 1 for no
      difference. One-sided, as in Koehn (2004): below 0.05 is significant at
      the 95 % level.
    samples: number of draws.
  """

  first: float
  second: float
  difference: float
  low: float
  high: float
  p_value: float
  samples: int


def compare(
  first: aggregates.Statistics,
  second: aggregates.Statistics,
  *,
  samples: int = 1000,
  seed: int = 0,
) -> Significance:
  """Compares two models by the statistics of the same examples.

  Args:
    first: of the first model, N examples.
    second: of the second model, in the same order.
    samples: number of draws.
    seed: of the draws.

  Raises:
    CorpusError: no examples, or not as many of both.
    ConfigError: statistics of different metrics, or no samples.
  """
  if first.aggregate is not second.aggregate:
    raise errors.ConfigError(
      'Statistics of different metrics cannot be compared',
      got=f'{first.aggregate.value!r} and {second.aggregate.value!r}',
      expected='two of one kind',
    )
  checks.same_length(first.rows, second.rows, what='examples')
  kind, size = first.aggregate, first.size
  rows = np.concatenate([first.rows, second.rows], 1)  # [N, 2 K]
  columns = kind.columns

  def difference(sums):  # [..., 2 K]
    return aggregates.score(sums[..., columns:], size, kind) - aggregates.score(
      sums[..., :columns], size, kind
    )

  checks.not_empty(rows, what='examples')
  _check_samples(samples)
  found = np.concatenate(
    [
      difference(sums)
      for sums in _resampled_sums(rows, samples=samples, seed=seed)
    ]
  )
  return _summary(first.value, second.value, found)


def compare_corpora(
  size: int,
  scores: Callable[[np.ndarray], tuple[float, float]],
  *,
  samples: int = 1000,
  seed: int = 0,
) -> Significance:
  """The same for a metric that is no function of sums over examples.

  Args:
    size: number of examples, N.
    scores: [N] places of the drawn examples -> scores of the first and of
      the second model on them.
    samples: number of draws.
    seed: of the draws.

  Raises:
    CorpusError: no examples.
    ConfigError: no samples.
  """
  checks.not_empty(range(size), what='examples')
  _check_samples(samples)
  generator = np.random.default_rng(seed)
  drawn = (scores(generator.integers(0, size, size)) for _ in range(samples))
  found = np.array([second - first for first, second in drawn])
  return _summary(*scores(np.arange(size)), found)


def _resampled_sums(rows: np.ndarray, *, samples: int, seed: int):
  """Yields [S, K] sums over N rows drawn with replacement."""
  size = len(rows)
  generator = np.random.default_rng(seed)
  at_once = max(1, _CHUNK // size)
  for start in range(0, samples, at_once):
    count = min(at_once, samples - start)
    places = generator.integers(0, size, (count, size))
    places += size * np.arange(count)[:, None]
    # How often each example was drawn: one matrix product sums all columns.
    drawn = np.bincount(places.ravel(), minlength=count * size)
    yield drawn.reshape(count, size).astype(np.float64) @ rows


def _summary(first: float, second: float, found: np.ndarray) -> Significance:
  """Draws on which a model's score is undefined show no difference."""
  found = np.nan_to_num(found, nan=0.0)
  difference = second - first
  # Sums in another order differ in the last bits: these are no difference.
  tolerance = 1e-12 * max(abs(first), abs(second), 1e-300)
  if abs(difference) <= tolerance:
    p_value = 1.0
  else:
    against = found * np.sign(difference) <= tolerance
    p_value = (1 + against.sum()) / (1 + len(found))
  low, high = np.percentile(found, (2.5, 97.5))
  return Significance(
    first=float(first),
    second=float(second),
    difference=float(difference),
    low=float(low),
    high=float(high),
    p_value=float(p_value),
    samples=len(found),
  )


def _check_samples(samples: int) -> None:
  if samples < 1:
    raise errors.ConfigError(
      'The number of bootstrap samples must be positive',
      got=samples,
      expected='an integer of at least 1, such as 1000',
      where='samples',
    )
