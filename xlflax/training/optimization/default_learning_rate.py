"""Default peak learning rate for runs that do not set one.

    peak = BASE * (width / WIDTH) ** WIDTH_POWER
         * (min(tokens, MOST_TOKENS) / TOKENS) ** TOKENS_POWER
         * (steps / STEPS) ** STEPS_POWER

where `tokens` is the number of tokens per step. The result is multiplied by
POST_NORM for layer norms after each block, and by CONTINUED for parameters that
another run has trained (in which case fewer steps than STEPS count as STEPS).
It is at most HIGHEST and rounded to two digits. The rule holds for optimizers
whose updates have the size of Adam's. The constant and the power of the width
are those of docs/recipes.md, "Width and learning rate" (widths of 64 and 128,
1,000 steps). The power of the steps leads from there to the learning rates of
published base models.
"""

import dataclasses
from typing import Any

from xlflax.training.optimization import optimizers, schedules
from xlflax.utils import errors, plurals

BASE = 8e-3
WIDTH, WIDTH_POWER = 128, -1.0
TOKENS, TOKENS_POWER, MOST_TOKENS = 2_560, 0.5, 10_240
STEPS, STEPS_POWER = 3_000, -0.5
POST_NORM, CONTINUED, HIGHEST = 0.5, 1 / 16, 1.1e-2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Basis:
  """Properties of a run that determine its default learning rate.

  Attributes:
    width: Width of the model's hidden states.
    tokens: Number of tokens per step including padding, averaged over steps.
    steps: Number of steps in the run.
    post_norm: Whether a layer norm follows each block (post-norm).
    continued: Whether the parameters are initialized from a different run.
  """

  width: int
  tokens: int
  steps: int
  post_norm: bool = False
  continued: bool = False

  def peak(self) -> float:
    """Computes the default peak learning rate from the properties of a run.

    The docstring of this module contains the formula.
    """
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
    """Describes a default learning rate and its derivation, for the log.

    Limits of the formula that apply are stated. An example is '8.0e-3, from
    width 128, 2,560 tokens per step, 3,000 steps. Set LEARNING_RATE to override
    it'.
    """
    peak = self.peak()
    tokens = f'{self.tokens:,} tokens per step'
    if self.tokens > MOST_TOKENS:
      tokens += f' (counted as {MOST_TOKENS:,}, the maximum)'
    steps = plurals.format_count(self.steps, 'step')
    if self.continued and self.steps < STEPS:
      steps += f' (counted as {STEPS:,}, the minimum)'
    parts = [
      f'{peak:.1e}'.replace('e-0', 'e-')
      + (' (the maximum)' if peak == HIGHEST else '')
      + f', from width {self.width}',
      tokens,
      steps,
      *(['post-norm'] if self.post_norm else []),
      *(['parameters of another run'] if self.continued else []),
    ]
    return ', '.join(parts) + '. Set LEARNING_RATE to override it'


def is_open(optimizer: optimizers.Optimizer) -> bool:
  """Returns whether an optimizer's schedule lacks a peak value."""
  schedule = optimizer.learning_rate
  return isinstance(schedule, schedules.Peaked) and schedule.peak_value is None


def with_peak(optimizer: optimizers.Optimizer, basis: Basis) -> Any:
  """Returns an optimizer with the default peak learning rate in its schedule.

  Args:
    optimizer: Optimizer whose learning rate schedule has no peak value.
    basis: Properties of the run, from which the default learning rate is
      computed.

  Raises:
    ConfigError: If the default learning rate is not defined for this optimizer.
  """
  if not optimizer.steps_as_adam:
    raise errors.ConfigError(
      'The learning rate must be set, because the optimizer does not have a '
      'default learning rate. The optimizers with a default are AdamW, '
      'StableAdamW, Muon and Adam',
      got=type(optimizer).__name__,
      fix='Pass --gin.LEARNING_RATE=RATE.',
    )
  schedule = optimizer.learning_rate
  assert isinstance(schedule, schedules.Peaked)
  rate = dataclasses.replace(schedule, peak_value=basis.peak())
  return dataclasses.replace(optimizer, learning_rate=rate)
