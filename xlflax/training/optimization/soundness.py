"""Whether a run can go on after steps that were not finite or had risen."""

import logging
from collections.abc import Callable

from xlflax.foundation import errors
from xlflax.training import metric_accumulator, train_step
from xlflax.training import settings as settings_lib


def check(
  sums: metric_accumulator.Sums,
  step: int,
  settings: settings_lib.Settings,
  last_good: Callable[[], int | None],
) -> None:
  """Ends a run that cannot go on; else warns of steps that were skipped.

  Args:
    sums: of the steps since the last report.
    step: the last of them.
    settings: of the run.
    last_good: returns the step of the last checkpoint, None without any.

  Raises:
    TrainingError: parameters, or too many steps, are not finite.
  """
  found = _found(sums, step, settings)
  if found:
    what, got, fix = found
    last = last_good()
    raise errors.TrainingError(
      what,
      got=got,
      where=f'up to step {step}',
      fix=f'{fix}; the last good checkpoint is '
      f'{"none" if last is None else f"step {last}"} '
      '(docs/trouble.md#loss-that-is-not-finite)',
    )
  if sums.skipped or sums.spikes:
    logging.warning(
      '%d of the steps up to %d had a loss or gradient that '
      'is not finite and were skipped%s.',
      sums.skipped,
      step,
      f', and {sums.spikes} whose loss had risen suddenly'
      if sums.spikes
      else '',
    )


def _found(
  sums: metric_accumulator.Sums, step: int, settings: settings_lib.Settings
) -> tuple[str, str, str] | None:
  """What is wrong, how much of it, and what to do."""
  of_last = f'of the last {sums.steps} steps'
  if sums.unsound:
    return (
      'The parameters are not finite',
      f'{sums.unsound} {of_last}',
      'lower the learning rate',
    )
  if sums.skipped and settings.non_finite is train_step.NonFinite.STOP:
    return (
      'The loss or its gradient is not finite',
      f'{sums.skipped} {of_last}',
      'lower the learning rate or clip the gradient, or go on past such '
      'steps with --gin.trainer.Trainer.non_finite="\'skip\'"',
    )
  nothing_learnt = step >= settings.steps and sums.skipped == sums.steps
  if (sums.skipped or sums.spikes) and (
    sums.streak >= settings.most_skipped or nothing_learnt
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
