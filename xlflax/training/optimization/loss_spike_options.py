"""Options for the guard against loss spikes.

Large models have been trained past sudden rises of the loss by manual
intervention. For example, PaLM (section 5.1) was restarted about 100 steps
before each spike, without the batches around it. A step is a spike if its loss
exceeds

  median + `num_std` * max(1.4826 * MAD, median / 100)

of the last losses of steps with the same objectives. MAD is the median absolute
deviation, and 1.4826 MAD is the standard deviation of a normal distribution.
The limit is updated only at each report, so no step has to wait for the
previous step.
"""

import dataclasses
import enum
import math
from typing import Annotated

import annotated_types
import numpy as np

from xlflax.utils import class_registry, errors, validation


class SpikeAction(enum.Enum):
  """Action to take at a loss spike.

  Attributes:
    SKIP: The update is not applied.
    REWIND: The last checkpoint is restored, and the batches read since then are
      skipped.
  """

  SKIP = 'skip'
  REWIND = 'rewind'


@class_registry.register('loss_spike_guard')
@dataclasses.dataclass(frozen=True, kw_only=True)
class LossSpikeGuard:
  """Options that define loss spikes and the action to take at a spike.

  Attributes:
    action: Action that is taken at a spike.
    num_std: Number of standard deviations by which a loss must exceed the
      median to be a spike.
    window: Number of most recent losses from which the median is computed.
    min_history: Minimum number of losses before spikes are detected.
    max_rewinds: Maximum number of rewinds to the same checkpoint. A further
      spike ends the run.
  """

  action: SpikeAction = SpikeAction.SKIP
  num_std: validation.PositiveFloat = 10.0
  window: Annotated[int, annotated_types.Ge(2)] = 200
  min_history: Annotated[int, annotated_types.Ge(2)] = 100
  max_rewinds: validation.PositiveInt = 5

  def __post_init__(self):
    if self.min_history > self.window:
      raise errors.ConfigError(
        f'`min_history` must not exceed `window`, which is {self.window}',
        got=self.min_history,
        where=errors.field_location(self, 'min_history'),
      )

  def limit(self, losses: list[float]) -> float:
    """Returns the largest loss that does not count as a spike.

    It is infinite if fewer than `min_history` losses are given.
    """
    if len(losses) < self.min_history:
      return math.inf
    median = float(np.median(losses))
    deviation = 1.4826 * float(np.median(np.abs(np.array(losses) - median)))
    return median + self.num_std * max(deviation, abs(median) / 100)
