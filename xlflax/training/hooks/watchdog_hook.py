"""Hook that ends a run that makes no progress."""

import contextlib

from xlflax.training.distributed import goodput, hang_watchdog
from xlflax.training.hooks import hook_base


class WatchdogHook(hook_base.Hook):
  """Hook that ends a run if an activity exceeds its time limit.

  Args:
    activities: Record of the time that the run spends on each activity.
    timeout_seconds: Maximum time in seconds to read a batch, execute a step or
      write a checkpoint.
  """

  def __init__(self, activities: goodput.Activities, timeout_seconds: float):
    self._watchdog = hang_watchdog.Watchdog(activities, timeout_seconds)

  def stopping(self) -> None:
    """Limits the duration of the current step after a stop request."""
    self._watchdog.stopping()

  def running(self, run) -> contextlib.AbstractContextManager:
    """See base class."""
    return self._watchdog

  def after_step(self, run, step, output):
    """See base class."""
    self._watch_writing(run)

  def after_checkpoint(self, run, step):
    """See base class."""
    self._watch_writing(run)

  def _watch_writing(self, run) -> None:
    """Watches a checkpoint that is written in the background."""
    self._watchdog.background_write(lambda: run.checkpoints.is_writing)
