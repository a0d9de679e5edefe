"""Per-example statistics, and corpus scores computed from them.

A metric that is resampled (see `bootstrap`) is a function of sums over
examples, or of all examples at once. An example is a row of K numbers. Its
`Aggregate` determines the meaning of the numbers and the score.
"""

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from xlflax.evaluation.metrics import embedding_metrics
from xlflax.utils import errors, validation

_BLEU_ORDER = 4


class Aggregate(enum.Enum):
  """Function that computes a score from the statistics of N examples.

  MEAN: The column is the score of the example. The score is the mean.
  RATIO: Columns (correct, counted). The score is correct / counted.
  PERPLEXITY: Columns (losses in nats, predicted tokens). The score is
    exp(losses / tokens).
  F1: Columns (correct, predicted, gold). The score is 2 correct / (predicted +
    gold).
  AER: Columns (predicted & sure, predicted & possible, predicted, sure). The
    score is the alignment error rate; see `alignment_error_rate`.
  BLEU: Columns (4 matches, 4 totals, system length, reference length) for the
    n-gram orders 1 to 4. The score is BLEU without smoothing, from 0 to 100.
  SMOOTHED_BLEU: Same columns. The score is BLEU with sacreBLEU's default
    smoothing.
  CHRF, CHRF_WORDS: Columns (system, reference, matching) n-grams of 6 orders of
    characters, and for CHRF_WORDS also of 2 orders of words. The scores are
    chrF and chrF++.
  SPEARMAN, PEARSON: Columns (gold, predicted) values. The score is their
    correlation.
  MATTHEWS: Columns (gold, predicted) classes, 1 or 0. The score is their
    correlation, or 0 if a column has one class only.
  AVERAGE_PRECISION, ROC_AUC: Columns (1 for a positive example or 0, score).
  V_MEASURE: Columns (class, cluster) numbers.
  """

  MEAN = 'mean'
  RATIO = 'ratio'
  PERPLEXITY = 'perplexity'
  F1 = 'f1'
  AER = 'aer'
  BLEU = 'bleu'
  SMOOTHED_BLEU = 'smoothed_bleu'
  CHRF = 'chrf'
  CHRF_WORDS = 'chrf_words'
  SPEARMAN = 'spearman'
  PEARSON = 'pearson'
  MATTHEWS = 'matthews'
  AVERAGE_PRECISION = 'average_precision'
  ROC_AUC = 'roc_auc'
  V_MEASURE = 'v_measure'

  @property
  def columns(self) -> int:
    """Number K of statistics that the score requires for each example."""
    return _COLUMNS.get(self, 2)

  @property
  def of_all(self) -> Callable[[Any, Any], float] | None:
    """Function that computes the score from two columns of statistics, or None.

    None if the score is computed from the sums of the columns.
    """
    return _OF_ALL.get(self)


_COLUMNS = {
  Aggregate.MEAN: 1,
  Aggregate.F1: 3,
  Aggregate.AER: 4,
  Aggregate.CHRF: 18,
  Aggregate.CHRF_WORDS: 24,
  Aggregate.BLEU: 2 * _BLEU_ORDER + 2,
  Aggregate.SMOOTHED_BLEU: 2 * _BLEU_ORDER + 2,
}
_OF_ALL: Mapping[Aggregate, Callable[[Any, Any], float]] = {
  Aggregate.SPEARMAN: embedding_metrics.spearman,
  Aggregate.PEARSON: embedding_metrics.pearson,
  Aggregate.MATTHEWS: lambda gold, predicted: np.nan_to_num(
    embedding_metrics.pearson(gold, predicted)
  ),
  Aggregate.AVERAGE_PRECISION: embedding_metrics.average_precision,
  Aggregate.ROC_AUC: embedding_metrics.roc_auc,
  Aggregate.V_MEASURE: embedding_metrics.v_measure,
}


@dataclasses.dataclass(frozen=True, eq=False)
class Statistics:
  """Per-example statistics that determine a corpus score.

  Attributes:
    rows: Per-example statistics of shape [N, K], or [N] if K is 1.
    aggregate: Aggregation function that computes the score from the statistics
      of all N examples.
    clusters: Group identifier of each example, of shape [N], such as the text
      of a question. Examples with the same identifier are resampled together.
      If None, each example is resampled on its own.
  """

  rows: np.ndarray
  aggregate: Aggregate = Aggregate.MEAN
  clusters: np.ndarray | None = None

  def __post_init__(self):
    aggregate = validation.validate(
      self.aggregate, Aggregate, name='Statistics.aggregate'
    )
    object.__setattr__(self, 'aggregate', aggregate)
    rows = np.asarray(self.rows, np.float64)
    if rows.ndim == 1 and self.aggregate is Aggregate.MEAN:
      rows = rows[:, None]  # [N, 1]
    if rows.ndim != 2 or rows.shape[1] != self.aggregate.columns:
      raise errors.ConfigError(
        'The per-example statistics for the aggregation function '
        f'{self.aggregate.value!r} must be an array of shape [examples, '
        f'{self.aggregate.columns}]',
        got=rows.shape,
        where=errors.field_location(self, 'rows'),
      )
    object.__setattr__(self, 'rows', rows)
    if self.clusters is not None:
      # Clusters are numbered in the order of their first example.
      numbers: dict[Any, int] = {}
      clusters = [
        numbers.setdefault(cluster, len(numbers)) for cluster in self.clusters
      ]
      object.__setattr__(self, 'clusters', np.array(clusters, np.int64))
      if len(rows) != len(clusters):
        raise errors.CorpusError(
          '`clusters` must have one entry for each example, but found '
          f'{len(clusters)} entries for {len(rows)} examples'
        )

  def by_cluster(self) -> 'Statistics':
    """Returns statistics in which each row is the sum over one cluster.

    A mean becomes a ratio, since clusters differ in size.
    """
    if self.clusters is None or self.aggregate.of_all is not None:
      return self
    rows, aggregate = self.rows, self.aggregate
    if aggregate is Aggregate.MEAN:
      rows = np.concatenate([rows, np.ones_like(rows)], 1)
      aggregate = Aggregate.RATIO
    sums = np.zeros((self.clusters.max(initial=-1) + 1, rows.shape[1]))
    np.add.at(sums, self.clusters, rows)
    return Statistics(sums, aggregate)

  def to_json(self) -> dict[str, Any]:
    """Returns the statistics as JSON values."""
    clusters = None if self.clusters is None else self.clusters.tolist()
    return {
      'aggregate': self.aggregate.value,
      'rows': self.rows.tolist(),
      'clusters': clusters,
    }

  @classmethod
  def from_json(cls, value: Mapping[str, Any]) -> 'Statistics':
    """Restores statistics from the output of `to_json`."""
    aggregate = Aggregate(value['aggregate'])
    rows = np.array(value['rows'], np.float64).reshape(-1, aggregate.columns)
    return cls(rows, aggregate, value['clusters'])

  @property
  def size(self) -> int:
    """Number of examples, N."""
    return len(self.rows)

  @property
  def value(self) -> float:
    """Score over all examples, or NaN if there are no examples."""
    if self.aggregate.of_all is not None:
      return self.aggregate.of_all(*self.rows.T) if self.size else np.nan
    return float(aggregate_scores(self.rows.sum(0), self.size, self.aggregate))


def aggregate_scores(
  sums: np.ndarray, size: int, aggregate: Aggregate
) -> np.ndarray:
  """Computes scores from the sums of per-example statistics.

  Args:
    sums: Sums of each of the K statistics over the examples, of shape [..., K].
    size: Number of examples over which each of the sums was computed.
    aggregate: Function that computes a score from the sums of the K statistics.

  Returns:
    Scores of shape [...]. They are fractions, except that BLEU and chrF are
    from 0 to 100. If the denominator is 0, F1 is 0 (as in seqeval), and every
    other fraction is NaN.
  """
  sums = np.asarray(sums, np.float64)
  if aggregate is Aggregate.MEAN:
    return sums[..., 0] / size if size else np.full(sums.shape[:-1], np.nan)
  if aggregate is Aggregate.RATIO:
    return safe_divide(sums[..., 0], sums[..., 1])
  if aggregate is Aggregate.PERPLEXITY:
    with np.errstate(over='ignore'):
      return np.exp(safe_divide(sums[..., 0], sums[..., 1]))
  if aggregate is Aggregate.F1:
    return safe_divide(2 * sums[..., 0], sums[..., 1] + sums[..., 2], empty=0.0)
  if aggregate is Aggregate.AER:
    return 1 - safe_divide(
      sums[..., 0] + sums[..., 1], sums[..., 2] + sums[..., 3]
    )
  if aggregate in (Aggregate.CHRF, Aggregate.CHRF_WORDS):
    return _chrf(sums)
  return _bleu(sums, smoothed=aggregate is Aggregate.SMOOTHED_BLEU)


def _chrf(sums: np.ndarray) -> np.ndarray:
  """Computes chrF (Popovic, 2015) with beta 2, as in sacreBLEU."""
  system, reference, matches = np.moveaxis(
    sums.reshape(*sums.shape[:-1], -1, 3), -1, 0
  )
  is_counted = (system > 0) & (reference > 0)
  precision, recall = (
    safe_divide(
      safe_divide(np.where(is_counted, matches, 0), total, empty=0.0).sum(-1),
      is_counted.sum(-1),
      empty=0.0,
    )
    for total in (system, reference)
  )
  return 100 * safe_divide(
    5 * precision * recall, 4 * precision + recall, empty=0.0
  )


def safe_divide(numerator, denominator, *, empty: float = np.nan) -> np.ndarray:
  """Divides arrays elementwise and returns `empty` where the divisor is 0."""
  numerator, denominator = np.broadcast_arrays(
    np.asarray(numerator, np.float64), np.asarray(denominator, np.float64)
  )
  result = np.full(numerator.shape, empty)
  return np.divide(numerator, denominator, out=result, where=denominator != 0)


def _bleu(sums: np.ndarray, *, smoothed: bool) -> np.ndarray:
  """Computes BLEU (Papineni et al., 2002) from sums of shape [..., 10].

  Args:
    sums: Column sums in the order of `Aggregate.BLEU`.
    smoothed: Whether to smooth the numbers of matches. The k-th n-gram order
      without a match then has 1 / 2^k matches (Chen and Cherry, 2014, method 3;
      sacreBLEU's `exp`).
  """
  matches, totals = sums[..., :_BLEU_ORDER], sums[..., _BLEU_ORDER:-2]
  system, reference = sums[..., -2], sums[..., -1]
  has_no_match = (matches == 0) & (totals > 0)
  matches = matches.astype(np.float64)
  if smoothed:
    matches = np.where(
      has_no_match, 0.5 ** np.cumsum(has_no_match, -1), matches
    )
  is_positive = np.asarray((totals > 0).all(-1) & (matches > 0).all(-1))
  if smoothed:  # Without any match, the score is 0.
    is_positive &= ~has_no_match.all(-1)
  precisions = np.where(
    is_positive[..., None], safe_divide(matches, totals, empty=1.0), 1.0
  )
  brevity = np.minimum(0.0, 1 - safe_divide(reference, system, empty=1.0))
  values = 100 * np.exp(np.log(precisions).mean(-1) + brevity)
  return np.where(is_positive, values, 0.0)
