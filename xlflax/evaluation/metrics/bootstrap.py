"""Bootstrap significance tests that compare the scores of two models.

Scores vary with the examples in the test set and with the seeds of fine-tuning.
Test sets of the same size are sampled with replacement from the examples, or
from clusters of examples, and every run of both models is scored on each sample
(Koehn, 2004, "Statistical significance tests for machine translation
evaluation"). With several seeds, the variance between the runs is added as a
second level. Three seeds are too few to be resampled themselves, so their
contribution follows Student's t; see `variance_components`.

All test sets of the same size are sampled with the same indices. Two models are
therefore compared on the same examples, and a mean over languages accounts for
examples that are translations of each other.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from xlflax.evaluation.metrics import (
  example_statistics,
  metric_checks,
  variance_components,
)
from xlflax.utils import errors

_CHUNK = 4_000_000  # indices to sample at a time, to bound memory
Runs = example_statistics.Statistics | Sequence[example_statistics.Statistics]


@dataclasses.dataclass(frozen=True)
class Significance:
  """Difference between two models' scores, with interval and p-value.

  All scores are in the metric's unit.

  Attributes:
    first: Score of the first model on all examples, averaged over the model's
      runs.
    second: Score of the second model, computed like `first`.
    difference: `second - first`.
    low: Lower bound of the 95 % confidence interval of the difference.
    high: Upper bound of the 95 % confidence interval.
    p_value: Two-sided p-value: the probability of a difference of at least this
      size, in either direction, between equal models.
    samples: Number of bootstrap samples that the comparison used.
    runs: Number of runs of each of the two models. If both numbers are 1, two
      runs are compared rather than the methods that produced them.
  """

  first: float
  second: float
  difference: float
  low: float
  high: float
  p_value: float
  samples: int
  runs: tuple[int, int] = (1, 1)


class Drawn(NamedTuple):
  """Scores of a model's runs on all examples and on resampled test sets.

  Attributes:
    scores: Score of each run on all examples, of shape [runs].
    values: Scores on each resampled test set, of shape [samples, runs].
    size: Number of resampled units, which are examples or clusters of examples.
  """

  scores: np.ndarray
  values: np.ndarray
  size: int


def bootstrap_scores(
  runs: Runs, *, samples: int = 1000, seed: int = 0
) -> Drawn:
  """Computes the scores of a model's runs on resampled test sets.

  Args:
    runs: Per-example statistics for each run. All runs have the same examples.
    samples: Number of bootstrap samples to draw.
    seed: Random seed for bootstrap resampling.

  Raises:
    CorpusError: If there are no examples, or if the runs have different numbers
      of examples.
    ConfigError: If the statistics belong to different metrics, or if `samples`
      is too small.
  """
  run_list = (
    (runs,) if isinstance(runs, example_statistics.Statistics) else tuple(runs)
  )
  _check_comparable(run_list, samples)
  run_list = tuple(run.by_cluster() for run in run_list)
  scores = np.array([run.value for run in run_list])
  values = _resampled_scores(run_list, samples, seed)
  values = np.where(np.isfinite(values), values, scores)
  return Drawn(scores, values, run_list[0].size)


def combine_draws(
  parts: Sequence[Drawn], weights: Sequence[float]
) -> Drawn | None:
  """Returns a weighted sum of scores, such as the mean over languages.

  Args:
    parts: Scores to combine, such as those for each language. If an element has
      a single run, its scores are combined with every run of the other
      elements.
    weights: Weight of each element of `parts`.

  Returns:
    The sum, or None if parts with several runs have different numbers of runs.
  """
  runs = max(len(draw.scores) for draw in parts)
  if any(len(draw.scores) not in (1, runs) for draw in parts):
    return None
  pairs = list(zip(parts, weights, strict=True))
  zeros = np.zeros(runs)
  return Drawn(
    sum((weight * draw.scores for draw, weight in pairs), zeros),
    sum((weight * draw.values for draw, weight in pairs), zeros),
    min(draw.size for draw in parts),
  )


def compare_models(
  first: Runs, second: Runs, *, samples: int = 1000, seed: int = 0
) -> Significance:
  """Compares two models using per-example statistics on the same examples.

  Args:
    first: Per-example statistics for each run of the first model, on N
      examples.
    second: Per-example statistics for each run of the second model, on the same
      examples in the same order.
    samples: Number of bootstrap samples to draw.
    seed: Random seed for bootstrap resampling.

  Raises:
    CorpusError: If there are no examples, or if the runs have different numbers
      of examples.
    ConfigError: If the statistics belong to different metrics, or if `samples`
      is too small.
  """
  models = [
    (model_runs,)
    if isinstance(model_runs, example_statistics.Statistics)
    else tuple(model_runs)
    for model_runs in (first, second)
  ]
  _check_comparable([*models[0], *models[1]], samples)
  return score_difference(
    *(
      bootstrap_scores(model_runs, samples=samples, seed=seed)
      for model_runs in models
    )
  )


def score_difference(first: Drawn, second: Drawn) -> Significance:
  """Compares the scores of two models on the same resampled test sets.

  Raises:
    CorpusError: If the models' test sets differ in the number of examples.
  """
  if first.size != second.size:
    raise errors.CorpusError(
      'The two models must be scored on the same examples in the same order, '
      f'but their test sets contain {first.size} and {second.size} examples '
      '(or clusters of examples)'
    )
  scores = np.concatenate([first.scores, second.scores])
  values = np.concatenate([first.values, second.values], 1)
  runs = len(first.scores), len(second.scores)
  test_difference = _test_single_runs if max(runs) == 1 else _test_several_runs
  low, high, p_value = test_difference(scores, values, runs, first.size)
  return Significance(
    first=float(first.scores.mean()),
    second=float(second.scores.mean()),
    difference=float(second.scores.mean() - first.scores.mean()),
    low=float(low),
    high=float(high),
    p_value=float(p_value),
    samples=len(values),
    runs=runs,
  )


def confidence_interval(drawn: Drawn) -> tuple[float, float]:
  """Returns a score's 95 % confidence interval in the metric's unit.

  For one run, the interval covers the variance due to the examples. For several
  runs, it also covers the variance due to the seeds, as in `compare_models`.
  """
  scores, values, size = drawn
  if len(scores) == 1:
    low, high = _percentiles(values, size)
  else:
    spread = variance_components.estimate_variance(
      scores, values, [np.arange(len(scores))], size
    )
    half_width = (
      variance_components.interval_half_width(spread)
      if spread.error > 1e-12
      else 0.0
    )
    low, high = scores.mean() - half_width, scores.mean() + half_width
  return float(low), float(high)


def holm_correction(p_values: Sequence[float]) -> list[float]:
  """Adjusts p-values for multiple comparisons, such as one per language.

  In Holm's method (1979), the i-th smallest of m p-values is multiplied by
  m - i + 1. If adjusted p-values below 0.05 are called significant, the
  probability that any of them is wrong is at most 5 %.

  For example, [0.01, 0.04, 0.03] becomes [0.03, 0.06, 0.06].
  """
  order = sorted(range(len(p_values)), key=p_values.__getitem__)
  adjusted = [0.0] * len(p_values)
  largest = 0.0
  for rank, index in enumerate(order):
    scaled = (len(p_values) - rank) * p_values[index]
    largest = adjusted[index] = max(largest, min(1.0, scaled))
  return adjusted


def _percentiles(values: np.ndarray, size: int) -> np.ndarray:
  """Returns the bounds of the 95 % interval, corrected for small test sets.

  Hesterberg (2015), "What Teachers Should Know about the Bootstrap", section
  3.3: the percentiles correspond to the quantiles of Student's t, and to a
  variance that resampling underestimates by 1 / size.
  """
  quantile = np.sqrt(size / max(size - 1, 1)) * special.stdtrit(
    max(size - 1, 1), 0.975
  )
  return np.percentile(values, 100 * special.ndtr([-quantile, quantile]))


def _test_single_runs(scores, values, runs, size) -> tuple[float, float, float]:
  """Returns the interval and the p-value for one run of each model.

  Both are computed from Student's t and the variance of the resampled
  differences. Percentiles could not yield p-values below 1 / samples, which are
  required if many comparisons are made.
  """
  differences, observed = values @ _contrast(runs), scores @ _contrast(runs)
  error = differences.std(ddof=1) * np.sqrt(size / max(size - 1, 1))
  freedom = variance_components.bootstrap_freedom(size, len(values))
  # Equal scores may differ in the last bits if they are summed in another
  # order.
  tolerance = 1e-12 * max(*np.abs(scores), 1e-300)
  if abs(observed) <= tolerance or size < 2:
    p_value = 1.0  # A single example does not determine a variance.
  elif error <= tolerance:
    p_value = 1 / (1 + len(values))
  else:
    p_value = 2 * special.stdtr(freedom, -abs(observed) / error)
  half_width = special.stdtrit(freedom, 0.975) * error
  return observed - half_width, observed + half_width, p_value


def _test_several_runs(
  scores, values, runs, size
) -> tuple[float, float, float]:
  """Returns the interval and the p-value for several runs of either model.

  Both are computed from the variance due to the examples and the variance
  between the runs.
  """
  difference = scores @ _contrast(runs)
  sides = np.split(np.arange(len(scores)), [runs[0]])
  spread = variance_components.estimate_variance(scores, values, sides, size)
  if spread.error <= 1e-12:
    p_value = 1.0 if abs(difference) < 1e-12 else 1 / (1 + len(values))
    return difference, difference, p_value
  half_width = variance_components.interval_half_width(spread)
  p_value = variance_components.p_value(difference, spread)
  return difference - half_width, difference + half_width, p_value


def _contrast(runs: tuple[int, int]) -> np.ndarray:
  """Returns the weight of each run in the difference of two mean scores."""
  return np.repeat([-1 / runs[0], 1 / runs[1]], runs)


def _resampled_scores(
  runs: Sequence[example_statistics.Statistics], samples: int, seed: int
) -> np.ndarray:
  """Returns every run's scores on resampled test sets, of shape [S, runs]."""
  aggregate, size = runs[0].aggregate, runs[0].size
  rows = np.stack([run.rows for run in runs], 1)  # [N, runs, K]
  score_blocks: list[Any] = []
  for counts in _sample_counts(size, samples=samples, seed=seed):
    if aggregate.of_all is None:
      # A single matrix multiplication sums all columns of all samples.
      sums = counts.astype(np.float64) @ rows.reshape(size, -1)
      sums = sums.reshape(-1, len(runs), aggregate.columns)
      score_blocks.append(
        example_statistics.aggregate_scores(sums, size, aggregate)
      )
    else:
      for sample_counts in counts:
        sample_rows = np.repeat(rows, sample_counts, axis=0)
        score_blocks.append(
          [_sample_score(aggregate, run) for run in sample_rows.swapaxes(0, 1)]
        )
  return np.concatenate(
    [np.reshape(block, (-1, len(runs))) for block in score_blocks]
  )


def _sample_score(
  aggregate: example_statistics.Aggregate, rows: np.ndarray
) -> float:
  """Returns the score of the sampled examples, or NaN if it is undefined.

  The score may be undefined if all sampled examples are equal.
  """
  with np.errstate(invalid='ignore', divide='ignore'):
    try:
      return example_statistics.Statistics(rows, aggregate).value
    except errors.CorpusError:
      return np.nan


def _sample_counts(
  size: int, *, samples: int, seed: int
) -> Iterator[np.ndarray]:
  """Yields how often each of N examples occurs in S samples, block by block."""
  generator = np.random.default_rng(seed)
  block_size = max(1, _CHUNK // size)
  for start in range(0, samples, block_size):
    num_samples = min(block_size, samples - start)
    indices = generator.integers(0, size, (num_samples, size))
    # Offsets allow a single call to count the indices of all samples.
    indices += size * np.arange(num_samples)[:, None]
    counts = np.bincount(indices.ravel(), minlength=num_samples * size)
    yield counts.reshape(num_samples, size)


def _check_comparable(
  runs: Sequence[example_statistics.Statistics], samples: int
) -> None:
  """Checks that runs have statistics of one metric on the same examples."""
  reference = runs[0]
  for statistics in runs:
    if statistics.aggregate is not reference.aggregate:
      raise errors.ConfigError(
        'The runs to compare must have statistics of the same metric, but '
        'their statistics have the aggregation functions '
        f'{reference.aggregate.value!r} and {statistics.aggregate.value!r}'
      )
    if len(reference.rows) != len(statistics.rows):
      raise errors.CorpusError(
        'The runs to compare must have the same number of examples, but found '
        f'{len(reference.rows)} and {len(statistics.rows)} examples'
      )
    if not np.array_equal(
      np.asarray(reference.clusters), np.asarray(statistics.clusters)
    ):
      raise errors.CorpusError(
        'The runs to compare must divide their examples into the same clusters'
      )
  metric_checks.not_empty(reference.rows, what='examples')
  if samples < 2:
    raise errors.ConfigError(
      '`samples` must be an integer above 1, such as 1000, because a '
      'confidence interval requires several bootstrap samples',
      got=samples,
    )
