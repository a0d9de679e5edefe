"""Declarations of metrics: title, unit and direction of improvement."""

import dataclasses
import enum
import logging
import math
from collections.abc import Mapping

from xlflax.utils import logs, validation


class Better(enum.Enum):
  """Direction in which a metric improves."""

  HIGHER = 'higher'
  LOWER = 'lower'
  NEITHER = 'neither'  # a description, such as a number of tokens


class Unit(enum.Enum):
  """Unit of a metric's values."""

  FRACTION = 'fraction'  # from 0 to 1
  POINTS = 'points'  # from 0 to 100, such as BLEU
  UNBOUNDED = 'unbounded'  # such as a perplexity


_RANGES = {Unit.FRACTION: '0 to 1', Unit.POINTS: '0 to 100'}
_MAXIMA = {Unit.FRACTION: 1.0, Unit.POINTS: 100.0}
_TOLERANCE = 1e-5  # Relative tolerance for rounding errors in float32.


# Words in the names of metrics that decrease, and of metrics that increase, in
# better models.
_ERRORS = frozenset({'error', 'errors', 'loss', 'perplexity'})
_SCORES = frozenset({'accuracy', 'bleu', 'f1', 'precision', 'recall'})


@validation.validate_fields
@dataclasses.dataclass(frozen=True)
class Metric:
  """Declaration of a metric that a task family reports.

  Attributes:
    name: Name that precedes the `/` in the keys of `EvalResult.metrics`, such
      as 'accuracy'.
    better: Direction in which the metric improves. It determines which
      checkpoint `metric_for_best_model` keeps, and therefore has no default
      value.
    unit: Unit of the metric's values, which determines the displayed range. By
      default, the values are unbounded, and no range is displayed.
    title: Display name. If '', the metric's name is displayed with spaces
      instead of underscores.
    description: One or two sentences that define the metric on report pages. It
      is not compared when several tasks declare the same metric.
  """

  name: str
  better: Better
  unit: Unit = Unit.UNBOUNDED
  title: str = ''
  description: str = dataclasses.field(default='', compare=False)

  @property
  def explained(self) -> str:
    """Title and scale, such as 'accuracy (0 to 1, higher is better)'."""
    parts = [_RANGES[self.unit]] if self.unit in _RANGES else []
    if self.better is not Better.NEITHER:
      parts.append(f'{self.better.value} is better')
    return f'{self.title} ({", ".join(parts)})' if parts else self.title

  @property
  def value_range(self) -> str:
    """Range of the metric's values, such as '0 to 1', or 'unbounded'."""
    return _RANGES.get(self.unit, Unit.UNBOUNDED.value)

  def is_in_range(self, value: float) -> bool:
    """Returns whether a value is within the range of the metric's unit.

    Negative values are accepted down to the negative maximum, because
    correlations are fractions. NaN is accepted for values that are undefined.
    """
    maximum = _MAXIMA.get(self.unit, math.inf)
    return math.isnan(value) or abs(value) <= maximum * (1 + _TOLERANCE)

  def is_best_possible(self, value: float) -> bool:
    """Returns whether a value of a bounded metric cannot be improved."""
    if self.unit not in _MAXIMA or self.better is Better.NEITHER:
      return False
    best = _MAXIMA[self.unit] if self.better is Better.HIGHER else 0.0
    return value == best

  def __post_init__(self):
    if not self.title:
      object.__setattr__(self, 'title', self.name.replace('_', ' '))
    words = set(self.name.lower().split('_'))
    for names, usual in ((_ERRORS, Better.LOWER), (_SCORES, Better.HIGHER)):
      if words & names and self.better not in (usual, Better.NEITHER):
        logging.warning(
          'The metric %r is declared with Better.%s, so the checkpoint with '
          'the %s value is selected. Most metrics with such a name require '
          'Better.%s.',
          self.name,
          self.better.name,
          'highest' if self.better is Better.HIGHER else 'lowest',
          usual.name,
          extra=logs.ONCE,
        )

  def to_json(self) -> dict[str, str]:
    """Converts the declaration to JSON values."""
    return {
      'name': self.name,
      'better': self.better.value,
      'unit': self.unit.value,
      'title': self.title,
      'description': self.description,
    }

  @classmethod
  def from_json(cls, value: Mapping[str, str]) -> 'Metric':
    """Restores a declaration from the output of `to_json`.

    Raises:
      ValueError: If the direction or the unit is unknown.
      KeyError: If a required key is missing.
    """
    return cls(
      name=value['name'],
      better=Better(value['better']),
      unit=Unit(value['unit']),
      title=value['title'],
      description=value['description'],
    )


ACCURACY = Metric(
  'accuracy',
  Better.HIGHER,
  unit=Unit.FRACTION,
  description='Fraction of correct predictions. In retrieval, fraction of '
  'sentences whose nearest sentence in the other language is the translation, '
  'as the mean over both directions.',
)
F1 = Metric(
  'f1',
  Better.HIGHER,
  title='F1',
  unit=Unit.FRACTION,
  description='Harmonic mean of precision and recall. In question answering, '
  'mean F1 of the words of the predicted and the gold answers.',
)
PRECISION = Metric(
  'precision',
  Better.HIGHER,
  unit=Unit.FRACTION,
  description='Fraction of predicted items that are correct.',
)
RECALL = Metric(
  'recall',
  Better.HIGHER,
  unit=Unit.FRACTION,
  description='Fraction of gold items that are predicted.',
)
BEST_LAYER = Metric(
  'best_layer',
  Better.NEITHER,
  Unit.UNBOUNDED,
  description='Index of the layer with the best score on the test data itself.',
)
MAJORITY = Metric(
  'majority',
  Better.HIGHER,
  unit=Unit.FRACTION,
  description='Accuracy of always predicting the most frequent class of the '
  'test set. It does not depend on the model.',
)
CHANCE = Metric(
  'chance',
  Better.HIGHER,
  unit=Unit.FRACTION,
  description='Accuracy of guessing. It does not depend on the model.',
)
EXACT_MATCH = Metric(
  'exact_match',
  Better.HIGHER,
  unit=Unit.FRACTION,
  description='Fraction of examples whose complete prediction equals the gold '
  'annotation.',
)
SPEARMAN = Metric(
  'spearman',
  Better.HIGHER,
  unit=Unit.FRACTION,
  description='Rank correlation of predicted and gold scores.',
)
PEARSON = Metric(
  'pearson',
  Better.HIGHER,
  unit=Unit.FRACTION,
  description='Linear correlation of predicted and gold scores.',
)
NDCG_10 = Metric(
  'ndcg@10',
  Better.HIGHER,
  title='nDCG@10',
  unit=Unit.FRACTION,
  description='Normalized discounted cumulative gain of the first 10 '
  'documents, as the mean over queries.',
)
MRR_10 = Metric(
  'mrr@10',
  Better.HIGHER,
  title='MRR@10',
  unit=Unit.FRACTION,
  description='Mean reciprocal rank of the first relevant document among the '
  'first 10 documents.',
)
