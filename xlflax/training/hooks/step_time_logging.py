"""Hook that compares the processes' step times and detects stragglers."""

from xlflax.training.distributed import stragglers
from xlflax.training.hooks import hook_base


class StepTimeHook(hook_base.Hook):
  """Hook that compares the step times of all processes at each report.

  Args:
    clock: `StepTimes` that measures this process's step times.
  """

  def __init__(self, clock: stragglers.StepTimes):
    self._clock = clock

  def before_training(self, run):
    """See base class."""
    self._clock.restart(run.step)

  def report(self, step: int) -> dict[str, float]:
    """Returns the step times since the last report and warns of stragglers.

    Args:
      step: Number of completed steps, which is equal on all processes.
    """
    times = self._clock.take(step)
    if not times:
      return {}
    self._clock.report(times)
    return times.metrics()
