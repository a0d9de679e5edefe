"""Watchdog: a run that makes no progress says where it hangs, and ends.

What a hang blocks is not known beforehand: a loader whose file system is gone,
a collective whose peer is stuck, a checkpoint that is never written. So the
training loop says what it begins, and a thread looks whether it stays there
for too long. Then each process writes the stacks of its threads, and the job
ends with a status at which schedulers start it again.
"""

import math
import threading
from collections.abc import Callable

from xlflax.training.distributed import distributed_job, goodput
from xlflax.utils import errors

Activity = goodput.Activity

_SLOWER = 4  # how many times longer the activities of `_LONG` may take
_LONG = (Activity.START, Activity.COMPILATION, Activity.EVALUATION)
_STEPS = 10  # a step may take so many times as long as the longest so far
_STOPPING = 60.0  # seconds, after a signal, until the step must be done
_EVERY = 1.0  # seconds between looks, at most


class Watchdog:
  """Ends a process that stays at one activity for too long.

  A context manager; nothing is watched outside of it.

  Args:
    activities: what the run is at.
    limit_seconds: how long a batch, a step or a checkpoint may take; grows to
      ten times the longest step. The start (a restore), compilation and
      evaluation may take four times as long. 0 sets no limit until a signal asks the run to stop.
    end: how the process ends, given a message; None: all threads' stacks are
      written and the whole job ends with `ExitStatus.FAILURE`.
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
    self._end = end or _end
    self._writing_since: float | None = None
    self._is_writing: Callable[[], bool] = lambda: False
    self._asked: float | None = None  # when a signal asked the run to stop
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
    """Says how to ask whether a checkpoint is written beside the training."""
    self._is_writing = is_writing
    if not is_writing():
      self._writing_since = None
    elif self._writing_since is None:
      self._writing_since = self.activities.clock()

  def stopping(self) -> None:
    """Says that a signal asked the run to stop: its step must end soon."""
    if self._asked is None:
      self._asked = self.activities.clock()

  def problem(self) -> str | None:
    """What has taken too long; None while all is well."""
    at = self.activities
    current_time = at.clock()
    stop_requested_at = (
      current_time if self._asked is None else max(self._asked, at.since)
    )
    if current_time - at.since > self.limit(
      at.at
    ) or current_time - stop_requested_at > self._last(at.at):
      return at.describe()
    since = self._writing_since
    late = since is not None and current_time - since > self.limit(
      Activity.SAVE
    )
    # A loop that hangs elsewhere does not say that the write has ended.
    if since is not None and late and self._is_writing():
      return f'{Activity.SAVE.value} for {current_time - since:.0f} s'
    return None

  def limit(self, activity: Activity) -> float:
    """Seconds that an activity may take."""
    return max(self._limit, self._longest) * _slower(activity)

  def _last(self, activity: Activity) -> float:
    """Seconds that it may take after the run was asked to stop."""
    if activity is Activity.SAVE:
      return math.inf
    # Compilation includes a first step, whose own time is not known.
    compilation = self.activities.longest[Activity.COMPILATION]
    shortest_limit = max(_STOPPING, compilation, self._longest)
    return shortest_limit * _slower(activity)

  @property
  def _longest(self) -> float:
    return _STEPS * self.activities.longest[Activity.STEP]

  def _run(self) -> None:
    while not self._stopped.wait(min(_EVERY, self._limit / 4)):
      problem = self.problem()
      if problem is not None:
        self._end(f'This process has been {problem}')
        return


def _slower(activity: Activity) -> int:
  return _SLOWER if activity in _LONG else 1


def _end(message: str) -> None:
  """Writes all stacks and ends the job."""
  error = errors.TrainingError(
    'The run makes no progress',
    got=message,
    expected='a step, a batch or a checkpoint within the limit',
    fix='the stacks above say where each thread is; started again, the run '
    'continues from its last checkpoint. Where the work is slow and not '
    'stuck, raise --watchdog_timeout (docs/trouble.md#it-hangs)',
    status=errors.ExitStatus.FAILURE,
  )
  distributed_job.end_job(error)
