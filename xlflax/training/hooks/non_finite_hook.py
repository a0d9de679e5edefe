"""Guard against losses and parameters that are not finite."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from xlflax.training import metric_accumulator, train_step
from xlflax.training.hooks import hook_base
from xlflax.utils import errors

if TYPE_CHECKING:
  from xlflax import trainer as trainer_lib


class NonFiniteHook(hook_base.Hook):
  """Ends a run whose parameters, or too many steps, are not finite."""

  def after_step(self, run, step, output):
    """See base class."""
    if run.is_report_step:
      run.wait_for_steps()
      self._check(run, run.accumulator.peek())

  def before_checkpoint(self, run):
    """See base class."""
    sums = run.accumulator.peek()
    if sums.unsound or run.trainer.non_finite is train_step.NonFinite.STOP:
      self._check(run, sums)
    return True

  def _check(self, run, sums: metric_accumulator.Sums) -> None:
    check_finite_step(sums, run.step, run.trainer, run.last_good_checkpoint)


def check_finite_step(
  sums: metric_accumulator.Sums,
  step: int,
  trainer: 'trainer_lib.Trainer',
  last_good: Callable[[], int | None],
) -> None:
  """Ends a run that cannot continue, or warns of skipped steps.

  Args:
    sums: Sums of the steps since the last report.
    step: Last of these steps.
    trainer: The run.
    last_good: Function that returns the step of the last checkpoint.

  Raises:
    TrainingError: If parameters, or too many steps, are not finite.
  """
  problem = _find_problem(sums, step, trainer)
  if problem:
    message, got, fix = problem
    last = last_good()
    raise errors.TrainingError(
      message,
      got=got,
      where=f'up to step {step}',
      fix=f'{fix}; the last good checkpoint is '
      f'{"none" if last is None else f"step {last}"} '
      '(docs/trouble.md#loss-that-is-not-finite)',
    )
  if sums.skipped or sums.spikes:
    logging.warning(
      'Skipped %d steps up to step %d whose loss or gradient is not finite%s.',
      sums.skipped,
      step,
      f', and {sums.spikes} loss spikes' if sums.spikes else '',
    )


def _find_problem(
  sums: metric_accumulator.Sums, step: int, trainer: 'trainer_lib.Trainer'
) -> tuple[str, str, str] | None:
  """Returns the message, the value and the hint of an error, or None."""
  of_last = f'of the last {sums.steps} steps'
  if sums.unsound:
    return (
      'The parameters are not finite',
      f'{sums.unsound} {of_last}',
      'lower the learning rate',
    )
  if sums.skipped and trainer.non_finite is train_step.NonFinite.STOP:
    return (
      'The loss or its gradient is not finite',
      f'{sums.skipped} {of_last}',
      'lower the learning rate or clip the gradient, or go on past such '
      'steps with --gin.trainer.Trainer.non_finite="\'skip\'"',
    )
  nothing_learnt = step >= trainer.steps and sums.skipped == sums.steps
  if (sums.skipped or sums.spikes) and (
    sums.streak >= trainer.most_skipped or nothing_learnt
  ):
    return (
      'The loss has risen and does not come down'
      if sums.spikes
      else 'No step is finite any more',
      f'{sums.streak} steps in a row that were skipped',
      'lower the learning rate or clip the gradient; '
      'Trainer.most_skipped says how many are too many',
    )
  return None
