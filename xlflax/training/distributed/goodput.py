"""What a run is at, and how long it has been at each: its goodput."""

import enum
import time
from collections.abc import Callable, Mapping


class Activity(enum.Enum):
  """What a run may be at; the value is for messages."""

  START = 'making or restoring its state'
  COMPILATION = 'compiling and taking a first step'
  BATCH = 'waiting for a batch'
  STEP = 'training'
  SAVE = 'writing a checkpoint'
  EVALUATION = 'evaluating'


_LOST = 'lost'  # work after the last checkpoint of an earlier process


class Activities:
  """Seconds of a run at each activity, over all the processes that it had.

  Attributes:
    at: the activity of now.
    detail: of which batch, step or checkpoint.
    since: clock when it began.
    processor: seconds of this process's processors when it began.

  Args:
    clock: seconds, rising.
  """

  def __init__(self, clock: Callable[[], float] = time.monotonic):
    self.clock = clock
    self.processor = time.process_time()
    self._processors = dict.fromkeys(Activity, 0.0)
    self.at, self.detail, self.since = Activity.START, '', clock()
    # Longest time spent at each activity without a break.
    self.longest = dict.fromkeys(Activity, 0.0)
    names = [a.name.lower() for a in Activity] + [_LOST]
    self._seconds = dict.fromkeys(names, 0.0)

  def go_on_from(self, saved: Mapping[str, float], written: float) -> None:
    """Adds what earlier processes of the run took.

    Args:
      saved: `seconds()` when the checkpoint was written.
      written: seconds of the run that its metrics speak of; what the
        checkpoint does not hold of them was lost.
    """
    for name, spent in saved.items():
      self._seconds[name] += spent
    self._seconds[_LOST] += max(0.0, written - sum(saved.values()))

  def begin(self, activity: Activity, detail: str = '') -> None:
    """Ends the activity of now, and begins another."""
    current_time = self.clock()
    self._seconds[self.at.name.lower()] += current_time - self.since
    self.longest[self.at] = max(
      self.longest[self.at], current_time - self.since
    )
    used = time.process_time()
    self._processors[self.at] += used - self.processor
    self.at, self.detail, self.since = activity, detail, current_time
    self.processor = used

  def progress(self) -> None:
    """Notes a finished step: a process that waits for steps does not hang."""
    if self.at is Activity.STEP:
      self.begin(Activity.STEP, self.detail)

  def describe(self) -> str:
    """Returns the current activity and its duration, for messages."""
    detail = f' {self.detail}' if self.detail else ''
    return f'{self.at.value}{detail} for {self.clock() - self.since:.0f} s'

  def seconds(self) -> dict[str, float]:
    """Seconds by the activities' names in lower case, and of 'lost' work."""
    current_name = self.at.name.lower()
    running = self._seconds[current_name] + self.clock() - self.since
    return self._seconds | {current_name: running}

  def processors(self, activity: Activity) -> float:
    """Seconds of this process's processors at an activity until now."""
    used = self._processors[activity]
    if activity is self.at:
      used += time.process_time() - self.processor
    return used

  def goodput(self) -> float:
    """Share of the time that went into training steps, 0 to 1."""
    seconds = self.seconds()
    return seconds['step'] / max(sum(seconds.values()), 1e-9)


def format_goodput(seconds: Mapping[str, float]) -> str:
  """'goodput 92.1 %: start 3 s, batch 0 s, ...', in one line."""
  total = max(sum(seconds.values()), 1e-9)
  parts = ', '.join(f'{name} {spent:.0f} s' for name, spent in seconds.items())
  return f'goodput {100 * seconds["step"] / total:.1f} %: {parts}'
