"""Options of the guard against loss spikes.

Large models are trained past sudden rises of the loss by hand: PaLM (section
5.1) was restarted about 100 steps before each spike, without the batches around
it. A step is a spike if its loss exceeds

  median + `deviations` * max(1.4826 * MAD, median / 100)

of the last losses of steps with the same objectives. MAD is the median absolute
deviation, and 1.4826 MAD is the standard deviation of a normal distribution.
The limit is updated at each report, so that no step waits for the step before.
"""

import dataclasses
import enum
import math
from typing import Annotated

import annotated_types
import numpy as np

from xlflax.utils import class_registry, errors, validation


class Response(enum.Enum):
  """Action taken at a loss spike."""

  SKIP = 'skip'  # The update is not applied.
  REWIND = 'rewind'  # Restore the last checkpoint and skip the batches since.


@class_registry.register('loss_spikes')
@dataclasses.dataclass(frozen=True, kw_only=True)
class LossSpikes:
  """Detection of loss spikes, and the action taken.

  Attributes:
    response: Action taken at a spike.
    deviations: Number of standard deviations above the median that make a
      spike.
    window: Number of last losses that the median is computed from.
    after: Number of losses that are needed before spikes are detected.
    most_rewinds: Maximum number of rewinds to the same checkpoint. A further
      spike ends the run.
  """

  response: Response = Response.SKIP
  deviations: validation.PositiveFloat = 10.0
  window: Annotated[int, annotated_types.Ge(2)] = 200
  after: Annotated[int, annotated_types.Ge(2)] = 100
  most_rewinds: validation.PositiveInt = 5

  def __post_init__(self):
    if self.after > self.window:
      raise errors.ConfigError(
        'Loss spikes are looked for after more losses than are kept',
        got=f'after={self.after}, window={self.window}',
        expected='after of at most window',
        where='LossSpikes.after',
      )

  def limit(self, losses: list[float]) -> float:
    """Returns the largest loss that is not a spike.

    It is infinite if fewer than `after` losses are given.
    """
    if len(losses) < self.after:
      return math.inf
    middle = float(np.median(losses))
    spread = 1.4826 * float(np.median(np.abs(np.array(losses) - middle)))
    return middle + self.deviations * max(spread, abs(middle) / 100)
