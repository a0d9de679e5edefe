"""Hook that reports the time that a run lost to failures and restarts."""

import logging
import os

from xlflax.training.distributed import distributed_job, restarts
from xlflax.training.hooks import hook_base


class RestartCostHook(hook_base.Hook):
  """Hook that reports lost time once all lost steps have been repeated."""

  _restart: restarts.Restart | None = None

  def before_training(self, run):
    """See base class."""
    if distributed_job.is_lead():
      self._restart = restarts.Restart(
        os.environ, run.activities, run.previous_records
      )

  def after_step(self, run, step, output):
    """See base class."""
    self._report(run)

  def before_checkpoint(self, run):
    """See base class."""
    self._report(run)
    return True

  def _report(self, run) -> None:
    step = run.finished_on_devices
    costs = self._restart.costs(step) if self._restart else None
    if costs:
      logging.info('Step %d: %s.', step, restarts.format_restart_costs(costs))
      run.write_training_metrics(step, restart=costs)
