"""The peak of the learning rate, for runs that do not give one.

    peak = BASE * (width / WIDTH) ** WIDTH_POWER
         * (min(tokens a step, MOST_TOKENS) / TOKENS) ** TOKENS_POWER
         * (steps / STEPS) ** STEPS_POWER

times POST_NORM for layer norms after each block and CONTINUED for parameters
that another run has trained (there fewer steps than STEPS count as STEPS), and
at most HIGHEST; rounded to two digits. For optimizers whose steps have the size
of Adam's. Height and power of width are those of docs/recipes.md, "Another
width" (64 and 128 wide, 1,000 steps); the power of steps leads from there to
what published base models train with.
"""

import dataclasses
from typing import Any

from xlflax.training.optimization import optimizers, schedules
from xlflax.utils import errors

BASE = 8e-3
WIDTH, WIDTH_POWER = 128, -1.0
TOKENS, TOKENS_POWER, MOST_TOKENS = 2_560, 0.5, 10_240
STEPS, STEPS_POWER = 3_000, -0.5
POST_NORM, CONTINUED, HIGHEST = 0.5, 1 / 16, 1.1e-2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Basis:
  """What the rate follows from.

  Attributes:
    width: of the model's states.
    tokens: of the rows of a step, padding included; the mean over steps.
    steps: of the whole run.
    post_norm: whether layer norms come after each block.
    continued: whether parameters come from another run.
  """

  width: int
  tokens: int
  steps: int
  post_norm: bool = False
  continued: bool = False

  def peak(self) -> float:
    """The peak by the rule above."""
    scaled_peak = (
      BASE
      * (self.width / WIDTH) ** WIDTH_POWER
      * (min(self.tokens, MOST_TOKENS) / TOKENS) ** TOKENS_POWER
      * (max(self.steps, STEPS * self.continued) / STEPS) ** STEPS_POWER
      * (POST_NORM if self.post_norm else 1)
      * (CONTINUED if self.continued else 1)
    )
    return float(f'{min(scaled_peak, HIGHEST):.1e}')

  def words(self) -> str:
    """'8.0e-3, from width 128, 2,560 tokens a step, 3,000 steps; set ...'."""
    parts = [
      f'{self.peak():.1e}'.replace('e-0', 'e-') + f', from width {self.width}',
      f'{self.tokens:,} tokens a step',
      f'{self.steps:,} steps',
      *(['post-norm'] if self.post_norm else []),
      *(['parameters of another run'] if self.continued else []),
    ]
    return ', '.join(parts) + '; set LEARNING_RATE to choose'


def is_open(optimizer: optimizers.Optimizer) -> bool:
  """Whether the peak of an optimizer's schedule is left to the rule."""
  schedule = optimizer.learning_rate
  return isinstance(schedule, schedules.Peaked) and schedule.peak is None


def with_peak(optimizer: optimizers.Optimizer, basis: Basis) -> Any:
  """The optimizer with the rule's peak in its schedule.

  Raises:
    ConfigError: the rule does not hold for this kind of optimizer.
  """
  if not optimizer.steps_as_adam:
    raise errors.ConfigError(
      'No learning rate is given, and none follows for this optimizer',
      got=type(optimizer).__name__,
      expected='a learning rate, or an optimizer whose steps are as long as '
      "Adam's: AdamW, StableAdamW, Muon, Adam",
      fix='set LEARNING_RATE',
    )
  schedule = optimizer.learning_rate
  assert isinstance(schedule, schedules.Peaked)
  rate = dataclasses.replace(schedule, peak=basis.peak())
  return dataclasses.replace(optimizer, learning_rate=rate)
