"""Hook that handles stop signals, such as SIGTERM before a preemption."""

from collections.abc import Callable

from xlflax.training.distributed import preemption
from xlflax.training.hooks import hook_base


class StopRequestHook(hook_base.Hook):
  """Hook that stops all processes at the same step if one receives a signal.

  Args:
    on_request: Function called in another thread when a signal arrives.
  """

  def __init__(self, on_request: Callable[[], None] = lambda: None):
    self._stop = preemption.StopRequest(on_request)

  def running(self, run):
    """See base class. Handles signals until the last checkpoint is written."""
    return self._stop

  def before_training(self, run):
    """See base class."""
    return self._request(run)

  def after_step(self, run, step, output):
    """See base class."""
    return self._request(run)

  def _request(self, run) -> hook_base.Request | None:
    """Returns a request to stop, or None.

    All processes must call this method the same number of times.
    """
    if run.step >= run.trainer.last_step or not self._stop.should_stop():
      return None
    run.results['interrupted'] = True
    return hook_base.Request(stop=True)
