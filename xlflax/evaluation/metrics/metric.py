"""What a metric's number means: which way is better, and its unit."""

import dataclasses
import enum


class Better(enum.Enum):
  """Which of two numbers is the better one."""

  HIGHER = 'higher'
  LOWER = 'lower'
  NEITHER = 'neither'  # a fact, such as a number of tokens


class Unit(enum.Enum):
  """The unit of a metric's numbers."""

  FRACTION = 'fraction'  # 0..1; reports show percent
  POINTS = 'points'  # 0..100, such as BLEU
  UNBOUNDED = 'unbounded'  # such as a perplexity


_RANGES = {Unit.FRACTION: '0 to 1', Unit.POINTS: '0 to 100'}


@dataclasses.dataclass(frozen=True)
class Metric:
  """A metric of a task family.

  Attributes:
    name: before the `/` of `EvalResult.metrics`, such as 'accuracy'.
    better: which way is better.
    unit: of its numbers.
    title: what readers call it; '': the name, with spaces.
  """

  name: str
  better: Better = Better.HIGHER
  unit: Unit = Unit.FRACTION
  title: str = ''

  @property
  def explained(self) -> str:
    """'accuracy (0 to 1, higher is better)': the name, range and direction."""
    parts = [_RANGES[self.unit]] if self.unit in _RANGES else []
    if self.better is not Better.NEITHER:
      parts.append(f'{self.better.value} is better')
    return f'{self.title} ({", ".join(parts)})' if parts else self.title

  def __post_init__(self):
    if not self.title:
      object.__setattr__(self, 'title', self.name.replace('_', ' '))


ACCURACY = Metric('accuracy')
F1 = Metric('f1', title='F1')
PRECISION = Metric('precision')
RECALL = Metric('recall')
BEST_LAYER = Metric('best_layer', Better.NEITHER, Unit.UNBOUNDED)
