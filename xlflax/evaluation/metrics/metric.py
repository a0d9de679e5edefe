"""Metric declarations with the direction of improvement and the unit."""

import dataclasses
import enum


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


@dataclasses.dataclass(frozen=True)
class Metric:
  """Declaration of a metric that a task family reports.

  Attributes:
    name: Name before the `/` in `EvalResult.metrics`, such as 'accuracy'.
    better: Direction in which the metric improves, up or down.
    unit: Unit of the metric's values, from which reports derive the displayed
      range. By default, the values are unbounded, and no range is displayed.
    title: Display name. If '', the metric's name with spaces is displayed.
  """

  name: str
  better: Better = Better.HIGHER
  unit: Unit = Unit.UNBOUNDED
  title: str = ''

  @property
  def explained(self) -> str:
    """Title and scale, such as 'accuracy (0 to 1, higher is better)'."""
    parts = [_RANGES[self.unit]] if self.unit in _RANGES else []
    if self.better is not Better.NEITHER:
      parts.append(f'{self.better.value} is better')
    return f'{self.title} ({", ".join(parts)})' if parts else self.title

  def __post_init__(self):
    if not self.title:
      object.__setattr__(self, 'title', self.name.replace('_', ' '))


ACCURACY = Metric('accuracy', unit=Unit.FRACTION)
F1 = Metric('f1', title='F1', unit=Unit.FRACTION)
PRECISION = Metric('precision', unit=Unit.FRACTION)
RECALL = Metric('recall', unit=Unit.FRACTION)
BEST_LAYER = Metric('best_layer', Better.NEITHER, Unit.UNBOUNDED)
