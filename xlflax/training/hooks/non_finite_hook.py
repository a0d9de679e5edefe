"""Hook that guards against non-finite losses and parameters."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from xlflax.training import metric_accumulator, train_step
from xlflax.training.hooks import hook_base
from xlflax.utils import errors, plurals

if TYPE_CHECKING:
  from xlflax.trainer import Trainer


class NonFiniteHook(hook_base.Hook):
  """Hook that ends runs with non-finite parameters or many non-finite steps."""

  def after_step(self, run, step, output):
    """See base class."""
    if run.is_report_step:
      run.wait_for_steps()
      self._check(run, run.accumulator.peek())

  def before_checkpoint(self, run):
    """See base class."""
    sums = run.accumulator.peek()
    if (
      sums.unsound or run.trainer.non_finite is train_step.NonFinitePolicy.STOP
    ):
      self._check(run, sums)
    return True

  def _check(self, run, sums: metric_accumulator.Sums) -> None:
    check_finite_step(sums, run.step, run.trainer, run.last_good_checkpoint)


def check_finite_step(
  sums: metric_accumulator.Sums,
  step: int,
  trainer: 'Trainer',
  last_good: Callable[[], int | None],
) -> None:
  """Raises an error for non-finite parameters or too many non-finite steps.

  A step is not finite if its loss or the gradient is not finite.

  Args:
    sums: Sums of the steps' losses and metrics since the last report.
    step: Number of the step after which the check runs.
    trainer: Settings of the run, which are the fields of its `Trainer`.
    last_good: Function that returns the step of the last checkpoint.

  Raises:
    TrainingError: If parameters are not finite, or if the loss or gradient was
      not finite in too many steps.
  """
  problem = _find_problem(sums, step, trainer)
  if problem:
    message, fix = problem
    last = last_good()
    checkpoint = (
      'No good checkpoint exists.'
      if last is None
      else f'The last good checkpoint was saved at step {last}.'
    )
    raise errors.TrainingError(
      f'Training stopped at step {step}. {message}',
      fix=f'{fix} {checkpoint} See docs/trouble.md#nan-or-inf-loss.',
    )
  if sums.skipped or sums.spikes:
    logging.warning(
      'Skipped %s with non-finite loss or gradient and %s up to step %d.',
      plurals.format_count(sums.skipped, 'step'),
      plurals.format_count(sums.spikes, 'loss spike'),
      step,
    )


def _find_problem(
  sums: metric_accumulator.Sums, step: int, trainer: 'Trainer'
) -> tuple[str, str] | None:
  """Returns the message and the hint of an error, or None."""
  if sums.unsound:
    return (
      f'The parameters were not finite in {sums.unsound} of the last '
      f'{plurals.format_count(sums.steps, "step")}',
      'Lower the learning rate.',
    )
  if sums.skipped and trainer.non_finite is train_step.NonFinitePolicy.STOP:
    return (
      f'The loss or its gradient was not finite in {sums.skipped} of the last '
      f'{plurals.format_count(sums.steps, "step")}',
      'Lower the learning rate or clip the gradient. To skip such steps, pass '
      '--gin.trainer.Trainer.non_finite="\'skip\'".',
    )
  all_skipped = step >= trainer.steps and sums.skipped == sums.steps
  if (sums.skipped or sums.spikes) and (
    sums.streak >= trainer.max_consecutive_skips or all_skipped
  ):
    message = (
      f'Too many consecutive steps ({sums.streak}) were skipped because of '
      'loss spikes'
      if sums.spikes
      else f'Too many consecutive steps ({sums.streak}) were skipped because '
      'they were not finite'
    )
    return (
      message,
      'Lower the learning rate or clip the gradient. '
      'Trainer.max_consecutive_skips is the number of consecutive skipped '
      'steps at which a run ends.',
    )
  return None
