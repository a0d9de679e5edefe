"""Is one model better than another, or is it chance?

Two things vary: which examples are in the test set, and the seeds of
fine-tuning. Test sets of the same size are drawn from the examples with
replacement, or from the clusters that they are of, and every run of both models
is scored on each (Koehn, 2004, "Statistical significance tests for machine
translation evaluation"). With several seeds, the spread of the runs' scores is
added as the upper level: three seeds are too few to be drawn from themselves,
so their share follows Student's t; see `spread`.

Test sets of one size are drawn alike, whatever they hold. So two models are
compared on the same examples, and a mean over languages knows which of their
examples are translations of each other.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from xlflax.evaluation.metrics import (
  corpus_statistics,
  metric_checks,
  variance_components,
)
from xlflax.utils import errors

_CHUNK = 4_000_000  # drawn places at a time, to bound memory
Runs = corpus_statistics.Statistics | Sequence[corpus_statistics.Statistics]


@dataclasses.dataclass(frozen=True)
class Significance:
  """What resampling found; the unit is the metric's.

  Attributes:
    first: the first model's score on all examples, the mean over its runs.
    second: the second model's.
    difference: second - first.
    low: lower bound of the difference's 95 % interval.
    high: its upper bound.
    p_value: two-sided: how often a difference as large as this, in either
      direction, comes of equal models.
    samples: number of draws.
    runs: how many runs of the first and of the second model there are. With
      one of each, the two runs are compared, not what made them.
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
  """Scores of a model's runs on all examples, and on drawn test sets.

  Attributes:
    scores: [runs].
    values: [samples, runs].
    size: how many examples, or clusters of them, are drawn from.
  """

  scores: np.ndarray
  values: np.ndarray
  size: int


def bootstrap_scores(
  runs: Runs, *, samples: int = 1000, seed: int = 0
) -> Drawn:
  """Scores the runs of a model on drawn test sets.

  Args:
    runs: the statistics of each run, on the same examples.
    samples: number of draws.
    seed: of the draws.

  Raises:
    CorpusError: no examples, or not as many of all runs.
    ConfigError: statistics of different metrics, or no samples.
  """
  run_list = (
    (runs,) if isinstance(runs, corpus_statistics.Statistics) else tuple(runs)
  )
  _check(run_list, samples)
  run_list = tuple(run.by_cluster() for run in run_list)
  scores = np.array([run.value for run in run_list])
  values = _drawn_scores(run_list, samples, seed)
  values = np.where(np.isfinite(values), values, scores)
  return Drawn(scores, values, run_list[0].size)


def combine_draws(
  parts: Sequence[Drawn], weights: Sequence[float]
) -> Drawn | None:
  """The weighted sum of scores, such as a mean over languages.

  A part with one run counts for every run of the others; None where parts have
  several, but not as many.
  """
  runs = max(len(draw.scores) for draw in parts)
  if any(len(draw.scores) not in (1, runs) for draw in parts):
    return None
  pairs = list(zip(parts, weights, strict=True))
  zeros = np.zeros(runs)
  return Drawn(
    sum((w * draw.scores for draw, w in pairs), zeros),
    sum((w * draw.values for draw, w in pairs), zeros),
    min(draw.size for draw in parts),
  )


def compare_models(
  first: Runs, second: Runs, *, samples: int = 1000, seed: int = 0
) -> Significance:
  """Compares two models by the statistics of the same examples.

  Args:
    first: of the first model, N examples; one for each run.
    second: of the second model, in the same order of examples.
    samples: number of draws.
    seed: of the draws.

  Raises:
    CorpusError: no examples, or not as many of all runs.
    ConfigError: statistics of different metrics, or no samples.
  """
  models = [
    (model_runs,)
    if isinstance(model_runs, corpus_statistics.Statistics)
    else tuple(model_runs)
    for model_runs in (first, second)
  ]
  _check([*models[0], *models[1]], samples)
  return score_difference(
    *(
      bootstrap_scores(model_runs, samples=samples, seed=seed)
      for model_runs in models
    )
  )


def score_difference(first: Drawn, second: Drawn) -> Significance:
  """Compares two models' scores on the same drawn test sets.

  Raises:
    CorpusError: they are drawn from different numbers of examples.
  """
  if first.size != second.size:
    raise errors.CorpusError(
      'Two models were scored on test sets of different sizes',
      got=f'{first.size} and {second.size} examples, or clusters of them',
      expected='as many, in the same order',
    )
  scores = np.concatenate([first.scores, second.scores])
  drawn_scores = np.concatenate([first.values, second.values], 1)
  runs = len(first.scores), len(second.scores)
  interval_function = _one_run_each if max(runs) == 1 else _several_runs
  low, high, p_value = interval_function(scores, drawn_scores, runs, first.size)
  return Significance(
    first=float(first.scores.mean()),
    second=float(second.scores.mean()),
    difference=float(second.scores.mean() - first.scores.mean()),
    low=float(low),
    high=float(high),
    p_value=float(p_value),
    samples=len(drawn_scores),
    runs=runs,
  )


def confidence_interval(drawn: Drawn) -> tuple[float, float]:
  """The 95 % interval of a model's score, in the metric's own unit.

  With one run it is of the test set's examples alone; with several, of the
  seeds, too, as in `compare_models`.
  """
  scores, values, size = drawn
  if len(scores) == 1:
    low, high = _percentiles(values, size)
  else:
    spread = variance_components.estimate_variance(
      scores, values, [np.arange(len(scores))], size
    )
    reach = (
      variance_components.interval_half_width(spread)
      if spread.error > 1e-12
      else 0.0
    )
    low, high = scores.mean() - reach, scores.mean() + reach
  return float(low), float(high)


def holm_correction(p_values: Sequence[float]) -> list[float]:
  """Adjusts p-values for being several, such as one for each language.

  Holm (1979): the i-th smallest of m is multiplied by m - i + 1. Below 0.05,
  all of them together are wrong in at most 5 % of cases.

  Before: [0.01, 0.04, 0.03]; after: [0.03, 0.06, 0.06].
  """
  order = sorted(range(len(p_values)), key=p_values.__getitem__)
  adjusted = [0.0] * len(p_values)
  largest = 0.0
  for rank, index in enumerate(order):
    scaled = (len(p_values) - rank) * p_values[index]
    largest = adjusted[index] = max(largest, min(1.0, scaled))
  return adjusted


def _percentiles(values: np.ndarray, size: int) -> np.ndarray:
  """Bounds of 95 %, wider where few examples or clusters are drawn from.

  Hesterberg (2015), "What Teachers Should Know about the Bootstrap", section
  3.3: percentiles as far out as Student's t is, of a variance that drawing
  makes too small by 1 / size.
  """
  reach = np.sqrt(size / max(size - 1, 1)) * special.stdtrit(
    max(size - 1, 1), 0.975
  )
  return np.percentile(values, 100 * special.ndtr([-reach, reach]))


def _one_run_each(scores, drawn, runs, size) -> tuple[float, float, float]:
  """Interval and p-value by Student's t on the drawn differences' spread.

  Percentiles know no p below 1 / samples, which many comparisons together need.
  """
  differences, observed = drawn @ _contrast(runs), scores @ _contrast(runs)
  error = differences.std(ddof=1) * np.sqrt(size / max(size - 1, 1))
  freedom = variance_components.drawn_freedom(size, len(drawn))
  # Sums in another order differ in the last bits: these are no difference.
  tolerance = 1e-12 * max(*np.abs(scores), 1e-300)
  if abs(observed) <= tolerance or size < 2:  # one example tells no spread
    p_value = 1.0
  elif error <= tolerance:
    p_value = 1 / (1 + len(drawn))
  else:
    p_value = 2 * special.stdtr(freedom, -abs(observed) / error)
  reach = special.stdtrit(freedom, 0.975) * error
  return observed - reach, observed + reach, p_value


def _several_runs(scores, drawn, runs, size) -> tuple[float, float, float]:
  """Interval and p-value by Student's t on both levels' variance."""
  difference = scores @ _contrast(runs)
  sides = np.split(np.arange(len(scores)), [runs[0]])
  spread = variance_components.estimate_variance(scores, drawn, sides, size)
  if spread.error <= 1e-12:
    p_value = 1.0 if abs(difference) < 1e-12 else 1 / (1 + len(drawn))
    return difference, difference, p_value
  reach = variance_components.interval_half_width(spread)
  p_value = variance_components.p_value(difference, spread)
  return difference - reach, difference + reach, p_value


def _contrast(runs: tuple[int, int]) -> np.ndarray:
  """Weights [runs] that make scores the second mean minus the first."""
  return np.repeat([-1 / runs[0], 1 / runs[1]], runs)


def _drawn_scores(
  several: Sequence[corpus_statistics.Statistics], samples: int, seed: int
) -> np.ndarray:
  """The score of every run on each drawn test set, [S, runs]."""
  kind, size = several[0].aggregate, several[0].size
  rows = np.stack([run.rows for run in several], 1)  # [N, runs, K]
  score_blocks: list[Any] = []
  for draw_counts in _draws(size, samples=samples, seed=seed):
    if kind.of_all is None:
      # One matrix product sums all columns.
      sums = draw_counts.astype(np.float64) @ rows.reshape(size, -1)
      sums = sums.reshape(-1, len(several), kind.columns)
      score_blocks.append(corpus_statistics.aggregate_scores(sums, size, kind))
    else:
      for counts in draw_counts:
        chosen = np.repeat(rows, counts, axis=0)
        score_blocks.append(
          [_whole(kind, run) for run in chosen.swapaxes(0, 1)]
        )
  return np.concatenate(
    [np.reshape(run, (-1, len(several))) for run in score_blocks]
  )


def _whole(kind: corpus_statistics.Aggregate, rows: np.ndarray) -> float:
  """The score of drawn examples; NaN where they have none, as all are alike."""
  with np.errstate(invalid='ignore', divide='ignore'):
    try:
      return corpus_statistics.Statistics(rows, kind).value
    except errors.CorpusError:
      return np.nan


def _draws(size: int, *, samples: int, seed: int) -> Iterator[np.ndarray]:
  """Yields [S, N] how often each of N examples was drawn."""
  generator = np.random.default_rng(seed)
  at_once = max(1, _CHUNK // size)
  for start in range(0, samples, at_once):
    count = min(at_once, samples - start)
    places = generator.integers(0, size, (count, size))
    places += size * np.arange(count)[:, None]
    draw_counts = np.bincount(places.ravel(), minlength=count * size)
    yield draw_counts.reshape(count, size)


def _check(several, samples: int) -> None:
  """Raises unless all are statistics of one metric on the same examples."""
  reference = several[0]
  for statistics in several:
    if statistics.aggregate is not reference.aggregate:
      raise errors.ConfigError(
        'Statistics of different metrics cannot be compared',
        got=f'{reference.aggregate.value!r} and {statistics.aggregate.value!r}',
        expected='all of one kind',
      )
    metric_checks.same_length(reference.rows, statistics.rows, what='examples')
    if not np.array_equal(reference.clusters, statistics.clusters):
      raise errors.CorpusError('Two runs have other clusters of examples')
  metric_checks.not_empty(reference.rows, what='examples')
  if samples < 2:
    raise errors.ConfigError(
      'The number of bootstrap samples is too small',
      got=samples,
      expected='an integer of at least 2, such as 1000',
      where='samples',
    )
