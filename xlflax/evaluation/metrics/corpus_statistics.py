"""From statistics of single examples to the score of a corpus.

A metric that is resampled (see `bootstrap`) is a function of sums over examples,
or of all examples at once. An example is one row of K numbers; which K, and how
they become a score, is its `Aggregate`.
"""

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from xlflax.evaluation.metrics import embedding_metrics, metric_checks
from xlflax.utils import errors, validation

_BLEU_ORDER = 4


class Aggregate(enum.Enum):
  """How sums over N examples become one score, and the K columns summed.

  MEAN: K = 1, the example's score; its mean.
  RATIO: (correct, counted); correct / counted.
  PERPLEXITY: (losses in nats, predicted tokens); exp(losses / tokens).
  F1: (correct, predicted, gold); 2 correct / (predicted + gold).
  AER: (found & sure, found & possible, found, sure); equation of
    `alignment.error_rate`.
  BLEU: (4 matches, 4 totals, system length, reference length), n-gram orders
    1..4; BLEU without smoothing in 0..100.
  SMOOTHED_BLEU: the same columns, with sacreBLEU's default smoothing.
  CHRF, CHRF_WORDS: (system, reference, matching) n-grams of 6 orders of
    characters, and with those of 2 orders of words; chrF and chrF++.
  SPEARMAN, PEARSON: (gold, found) numbers; their correlation.
  MATTHEWS: the same of classes 1 and 0; 0 where one side has one class only.
  AVERAGE_PRECISION, ROC_AUC: (1 for a positive example or 0, its score).
  V_MEASURE: numbers of (class, cluster).
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
    return _COLUMNS.get(self, 2)

  @property
  def of_all(self) -> Callable[[Any, Any], float] | None:
    """The score of both columns where it is no function of their sums."""
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
  Aggregate.MATTHEWS: lambda *sides: np.nan_to_num(
    embedding_metrics.pearson(*sides)
  ),
  Aggregate.AVERAGE_PRECISION: embedding_metrics.average_precision,
  Aggregate.ROC_AUC: embedding_metrics.roc_auc,
  Aggregate.V_MEASURE: embedding_metrics.v_measure,
}


@dataclasses.dataclass(frozen=True, eq=False)
class Statistics:
  """What single examples contribute to a score.

  Attributes:
    rows: [N, K] numbers of the examples; [N] is taken as K = 1.
    aggregate: what the K columns are.
    clusters: [N] names of what examples are of, such as the text of a
      question: those of one name are drawn together. None: each is alone.
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
        'Statistics of examples have the wrong shape',
        got=rows.shape,
        expected=f'[examples, {self.aggregate.columns}] for the aggregate '
        f'{self.aggregate.value!r}',
        where='Statistics.rows',
      )
    object.__setattr__(self, 'rows', rows)
    if self.clusters is not None:
      numbers: dict[Any, int] = {}  # in the order in which they come
      names = [numbers.setdefault(x, len(numbers)) for x in self.clusters]
      object.__setattr__(self, 'clusters', np.array(names, np.int64))
      metric_checks.same_length(rows, names, what='clusters')

  def by_cluster(self) -> 'Statistics':
    """The sums of each cluster's examples as one row, a mean as a ratio."""
    if self.clusters is None or self.aggregate.of_all is not None:
      return self
    rows, kind = self.rows, self.aggregate
    if kind is Aggregate.MEAN:
      rows = np.concatenate([rows, np.ones_like(rows)], 1)
      kind = Aggregate.RATIO
    sums = np.zeros((self.clusters.max(initial=-1) + 1, rows.shape[1]))
    np.add.at(sums, self.clusters, rows)
    return Statistics(sums, kind)

  def to_json(self) -> dict[str, Any]:
    """Plain JSON values."""
    clusters = None if self.clusters is None else self.clusters.tolist()
    return {
      'aggregate': self.aggregate.value,
      'rows': self.rows.tolist(),
      'clusters': clusters,
    }

  @classmethod
  def from_json(cls, value: Mapping[str, Any]) -> 'Statistics':
    """The inverse of `to_json`."""
    kind = Aggregate(value['aggregate'])
    rows = np.array(value['rows'], np.float64).reshape(-1, kind.columns)
    return cls(rows, kind, value['clusters'])

  @property
  def size(self) -> int:
    """The number of examples, N."""
    return len(self.rows)

  @property
  def value(self) -> float:
    """The score of all examples; NaN without any example."""
    if self.aggregate.of_all is not None:
      return self.aggregate.of_all(*self.rows.T) if self.size else np.nan
    return float(aggregate_scores(self.rows.sum(0), self.size, self.aggregate))


def aggregate_scores(
  sums: np.ndarray, size: int, aggregate: Aggregate
) -> np.ndarray:
  """Scores of sums over examples.

  Args:
    sums: [..., K].
    size: how many examples each sum is of.
    aggregate: what the columns are.

  Returns:
    [...]: fractions; BLEU and chrF in 0..100. Where the denominator is 0 an F1 is
    0 (as in seqeval), every other fraction NaN.
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
  """chrF (Popovic, 2015) with beta 2, as sacreBLEU has it."""
  system, reference, matches = np.moveaxis(
    sums.reshape(*sums.shape[:-1], -1, 3), -1, 0
  )
  counted = (system > 0) & (reference > 0)
  precision, recall = (
    safe_divide(
      safe_divide(np.where(counted, matches, 0), side, empty=0.0).sum(-1),
      counted.sum(-1),
      empty=0.0,
    )
    for side in (system, reference)
  )
  return 100 * safe_divide(
    5 * precision * recall, 4 * precision + recall, empty=0.0
  )


def safe_divide(numerator, denominator, *, empty: float = np.nan) -> np.ndarray:
  """Numerator / denominator, `empty` where the denominator is 0."""
  numerator, denominator = np.broadcast_arrays(
    np.asarray(numerator, np.float64), np.asarray(denominator, np.float64)
  )
  out = np.full(numerator.shape, empty)
  return np.divide(numerator, denominator, out=out, where=denominator != 0)


def _bleu(sums: np.ndarray, *, smoothed: bool) -> np.ndarray:
  """BLEU (Papineni et al., 2002) of [..., 10] sums.

  Smoothed: the k-th order without a match counts 1 / 2^k matches (Chen and
  Cherry, 2014, method 3; sacreBLEU's `exp`).
  """
  matches, totals = sums[..., :_BLEU_ORDER], sums[..., _BLEU_ORDER:-2]
  system, reference = sums[..., -2], sums[..., -1]
  absent = (matches == 0) & (totals > 0)
  matches = matches.astype(np.float64)
  if smoothed:
    matches = np.where(absent, 0.5 ** np.cumsum(absent, -1), matches)
  usable = np.asarray((totals > 0).all(-1) & (matches > 0).all(-1))
  if smoothed:  # nothing matches at all
    usable &= ~absent.all(-1)
  precisions = np.where(
    usable[..., None], safe_divide(matches, totals, empty=1.0), 1.0
  )
  brevity = np.minimum(0.0, 1 - safe_divide(reference, system, empty=1.0))
  values = 100 * np.exp(np.log(precisions).mean(-1) + brevity)
  return np.where(usable, values, 0.0)
