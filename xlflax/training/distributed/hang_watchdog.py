"""Watchdog, which reports and ends runs that make no progress.

The cause of a hang is not known in advance. It may be a loader whose file
system does not respond, a collective that waits for another process, or a
checkpoint that is never written. The training loop therefore records each
activity that it starts, and a thread checks the duration of the current one. If
it exceeds the limit, each process writes the stacks of its threads, and the job
ends with a status at which schedulers restart it.
"""

import math
import threading
from collections.abc import Callable

from xlflax.training.distributed import distributed_job, goodput
from xlflax.utils import errors

Activity = goodput.Activity

_SLOW_ACTIVITIES = (Activity.START, Activity.COMPILATION, Activity.EVALUATION)
_SLOW_FACTOR = 4  # Factor of the limit for slow activities.
_STEP_FACTOR = 10  # The limit is at least this multiple of the longest step.
_STOP_SECONDS = 60.0  # Minimum time to finish a step after a stop request.
_CHECK_SECONDS = 1.0  # Maximum time between two checks.


class Watchdog:
  """Context that ends the process if an activity takes too long.

  Args:
    activities: Record of the time that the run spends on each activity.
    limit_seconds: Maximum time in seconds to read a batch, execute a step or
      write a checkpoint. The limit is at least ten times the duration of the
      longest step. The start (which includes a restore), compilation and
      evaluation may take four times as long as the limit. If `limit_seconds` is
      0, there is no limit until a signal requests the run to stop.
    end: Function that takes a message and ends the process. If None, the stacks
      of all threads are written and the complete job ends with
      `ExitStatus.FAILURE`.
  """

  def __init__(
    self,
    activities: goodput.Activities,
    limit_seconds: float,
    *,
    end: Callable[[str], None] | None = None,
  ):
    self.activities = activities
    self._limit = limit_seconds or math.inf
    self._end = end or _end_job
    self._writing_since: float | None = None
    self._is_writing: Callable[[], bool] = lambda: False
    self._stop_requested_at: float | None = None
    self._stopped = threading.Event()
    self._thread = threading.Thread(
      target=self._run, name='xlflax watchdog', daemon=True
    )

  def __enter__(self) -> 'Watchdog':
    self._thread.start()
    return self

  def __exit__(self, *exc) -> None:
    self._stopped.set()
    if self._thread.is_alive():
      self._thread.join(timeout=10)

  def background_write(self, is_writing: Callable[[], bool]) -> None:
    """Starts or clears the time limit for a background checkpoint write.

    The limit starts if a checkpoint is being written, and is cleared otherwise.

    Args:
      is_writing: Function that returns whether a checkpoint is being written.
    """
    self._is_writing = is_writing
    if not is_writing():
      self._writing_since = None
    elif self._writing_since is None:
      self._writing_since = self.activities.clock()

  def stopping(self) -> None:
    """Limits the duration of the current step after a stop request."""
    if self._stop_requested_at is None:
      self._stop_requested_at = self.activities.clock()

  def problem(self) -> str | None:
    """Describes the activity that takes too long, or returns None."""
    activities = self.activities
    current_time = activities.clock()
    activity = activities.current

    duration = current_time - activities.since
    duration_after_request = 0.0
    if self._stop_requested_at is not None:
      duration_after_request = current_time - max(
        self._stop_requested_at, activities.since
      )
    if duration > self.limit(
      activity
    ) or duration_after_request > self._stop_limit(activity):
      return activities.describe()

    if self._writing_since is None:
      return None
    write_duration = current_time - self._writing_since
    # A loop that hangs elsewhere does not report that the write has ended.
    if write_duration > self.limit(Activity.SAVE) and self._is_writing():
      return f'{Activity.SAVE.description} for {write_duration:.0f} s'
    return None

  def limit(self, activity: Activity) -> float:
    """Returns an activity's maximum duration in seconds."""
    return max(self._limit, self._step_limit) * _duration_factor(activity)

  def _stop_limit(self, activity: Activity) -> float:
    """Returns the maximum duration, in seconds, after a stop request."""
    if activity is Activity.SAVE:
      return math.inf
    # Compilation includes a first step, whose duration is not measured.
    compilation = self.activities.longest[Activity.COMPILATION]
    limit = max(_STOP_SECONDS, compilation, self._step_limit)
    return limit * _duration_factor(activity)

  @property
  def _step_limit(self) -> float:
    """Maximum duration of a step in seconds, based on the longest step."""
    return _STEP_FACTOR * self.activities.longest[Activity.STEP]

  def _run(self) -> None:
    while not self._stopped.wait(min(_CHECK_SECONDS, self._limit / 4)):
      problem = self.problem()
      if problem is not None:
        self._end(f'This process has been {problem}')
        return


def _duration_factor(activity: Activity) -> int:
  """Returns the factor that multiplies an activity's time limit."""
  return _SLOW_FACTOR if activity in _SLOW_ACTIVITIES else 1


def _end_job(message: str) -> None:
  """Writes the stacks of all threads and ends the job."""
  error = errors.TrainingError(
    'The run makes no progress. Each step, batch and checkpoint must finish '
    'within the time limit',
    got=message,
    fix='Read the stacks of all threads above. Start the run again to resume '
    'from its last checkpoint. If the activity is slow but not stuck, pass a '
    'larger --watchdog_timeout (docs/trouble.md#hangs).',
    status=errors.ExitStatus.FAILURE,
  )
  distributed_job.end_job(error)
