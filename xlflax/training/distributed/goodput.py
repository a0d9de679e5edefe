"""Time that a run spends on each activity, and the resulting goodput."""

import enum
import time
from collections.abc import Callable, Mapping


class Activity(enum.Enum):
  """Activities on which a run spends its time."""

  START = 'start'
  COMPILATION = 'compilation'
  BATCH = 'batch'
  STEP = 'step'
  SAVE = 'save'
  EVALUATION = 'evaluation'

  @property
  def description(self) -> str:
    """Description for messages, such as 'writing a checkpoint'."""
    return _DESCRIPTIONS[self]


_DESCRIPTIONS = {
  Activity.START: 'initializing or restoring its state',
  Activity.COMPILATION: 'compiling and taking a first step',
  Activity.BATCH: 'waiting for a batch',
  Activity.STEP: 'training',
  Activity.SAVE: 'writing a checkpoint',
  Activity.EVALUATION: 'evaluating',
}
_LOST = 'lost'  # Work after the last checkpoint of an earlier process.


class Activities:
  """Time that a run spends on each activity, including time before a restart.

  Attributes:
    current: Activity on which the run currently spends its time.
    detail: Batch, step or checkpoint that the current activity processes, for
      messages.
    since: Clock time at which the current activity started.
    cpu_since: CPU seconds that this process had used when the current activity
      started.
    longest: Longest uninterrupted time of each activity in seconds.
    earlier_seconds: Seconds that earlier processes of the run spent.

  Args:
    clock: Function that returns a monotonic time in seconds.
  """

  def __init__(self, clock: Callable[[], float] = time.monotonic):
    self.clock = clock
    self.current = Activity.START
    self.detail = ''
    self.since = clock()
    self.cpu_since = time.process_time()
    self.longest = dict.fromkeys(Activity, 0.0)
    self.earlier_seconds = 0.0
    self._cpu_seconds = dict.fromkeys(Activity, 0.0)
    names = [activity.value for activity in Activity] + [_LOST]
    self._seconds = dict.fromkeys(names, 0.0)

  def add_earlier_processes(
    self, saved: Mapping[str, float], written: float
  ) -> None:
    """Adds the time that earlier processes of this run spent on each activity.

    Args:
      saved: Result of `seconds()` when the checkpoint was written.
      written: Duration of the run in seconds, as recorded in its metrics file.
        The time that exceeds the sum of `saved` was spent after the checkpoint
        and is counted as lost.
    """
    for name, seconds in saved.items():
      self._seconds[name] += seconds
    saved_seconds = sum(saved.values())
    self._seconds[_LOST] += max(0.0, written - saved_seconds)
    self.earlier_seconds += max(written, saved_seconds)

  def start(self, activity: Activity, detail: str = '') -> None:
    """Ends the current activity and starts another one.

    Args:
      activity: Activity that the run starts.
      detail: Batch, step or checkpoint that the activity processes, for
        messages.
    """
    current_time = self.clock()
    duration = current_time - self.since
    self._seconds[self.current.value] += duration
    self.longest[self.current] = max(self.longest[self.current], duration)
    cpu_time = time.process_time()
    self._cpu_seconds[self.current] += cpu_time - self.cpu_since
    self.current, self.detail, self.since = activity, detail, current_time
    self.cpu_since = cpu_time

  def progress(self) -> None:
    """Restarts the timer of the current activity after a step has finished."""
    if self.current is Activity.STEP:
      self.start(Activity.STEP, self.detail)

  def describe(self) -> str:
    """Describes the current activity and its duration, for messages."""
    detail = f' {self.detail}' if self.detail else ''
    duration = self.clock() - self.since
    return f'{self.current.description}{detail} for {duration:.0f} s'

  def seconds(self) -> dict[str, float]:
    """Returns the seconds spent on each activity.

    Work after the last checkpoint of an earlier process is counted as 'lost'.
    """
    name = self.current.value
    current_seconds = self._seconds[name] + self.clock() - self.since
    return self._seconds | {name: current_seconds}

  def cpu_seconds(self, activity: Activity) -> float:
    """Returns the CPU seconds that this process used for an activity."""
    seconds = self._cpu_seconds[activity]
    if activity is self.current:
      seconds += time.process_time() - self.cpu_since
    return seconds

  def goodput(self) -> float:
    """Returns the fraction of the time that was spent on training steps (0 to
    1).
    """
    seconds = self.seconds()
    return seconds['step'] / max(sum(seconds.values()), 1e-9)


def format_goodput(seconds: Mapping[str, float]) -> str:
  """Formats the goodput and the time spent on each activity.

  For example, 'goodput 92.1 %: start 3 s, batch 0 s, ...'.

  Args:
    seconds: Seconds by activity, as returned by `Activities.seconds`.
  """
  total = max(sum(seconds.values()), 1e-9)
  activities = ', '.join(
    f'{name} {duration:.0f} s' for name, duration in seconds.items()
  )
  return f'goodput {100 * seconds["step"] / total:.1f} %: {activities}'
