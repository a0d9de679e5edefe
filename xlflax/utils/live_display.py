"""Terminal output on standard error, with a live line below the log.

The live line is rewritten in place and shows the current activity. Log records
and live lines go through the same console, so that they do not overwrite each
other. If standard error is not a terminal, only plain lines are written.
"""

import contextlib
import multiprocessing
import os
import sys

import rich.console
import rich.progress

_BAR_WIDTH = 12
_REFRESHES_PER_SECOND = 4


class _Console(rich.console.Console):
  """A console that never hides the cursor, even if the command is killed."""

  def show_cursor(self, show: bool = True) -> bool:
    del show
    return False


def allow_live_lines(is_allowed: bool) -> None:
  """Enables or disables live lines, which are rewritten on the terminal."""
  global _is_allowed
  _is_allowed = is_allowed


def is_live() -> bool:
  """Returns whether this process may rewrite lines on the terminal."""
  return (
    _is_allowed
    and sys.stderr.isatty()
    and os.environ.get('TERM', 'dumb') not in ('dumb', 'unknown')
    and multiprocessing.parent_process() is None
  )


def write_lines(text: str) -> None:
  """Writes lines to standard error, above the progress line if one is shown."""
  bars = _bars
  if bars is None:
    sys.stderr.write(f'{text}\n')
    sys.stderr.flush()
  else:
    bars.console.print(text, markup=False, highlight=False, soft_wrap=True)


class Line:
  """Terminal line that shows a command's current activity and a progress bar.

  Nothing is written if standard error is not a terminal. Of several open lines,
  only the last one is shown.
  """

  def __init__(self, text: str, *, total: float | None = None):
    """Opens the line.

    Args:
      text: Text of the line, which is truncated to the width of the terminal.
      total: The count at which the bar is full. If None, the bar only indicates
        activity.
    """
    self._task: rich.progress.TaskID | None = None
    if not is_live():
      return
    bars = _live_region()
    for other in _lines:
      bars.update(other, visible=False)
    self._task = bars.add_task(text, total=total)
    _lines.append(self._task)

  @property
  def is_open(self) -> bool:
    """True if the live line is open, even if a newer live line hides it."""
    return _bars is not None and self._task in _lines

  def show(
    self, text: str, done: float | None = None, total: float | None = None
  ) -> None:
    """Updates the line's text and its progress bar.

    Args:
      text: The new text of the line.
      done: The current count, or None to keep the previous count.
      total: The count at which the bar is full, or None to keep the previous
        total.
    """
    if self._task is not None and self.is_open:
      _live_region().update(
        self._task, description=text, completed=done, total=total
      )

  def close(self) -> None:
    """Removes this live line and redisplays the live line opened before it."""
    if self._task is None or not self.is_open:
      return
    _lines.remove(self._task)
    if not _lines:
      clear_live_lines()
      return
    _live_region().remove_task(self._task)
    _live_region().update(_lines[-1], visible=True)


def clear_live_lines() -> None:
  """Removes all live lines from the screen."""
  global _bars
  bars, _bars = _bars, None
  _lines.clear()
  if bars is not None:
    with contextlib.suppress(OSError):  # The terminal was closed.
      bars.stop()


_is_allowed = True
_bars: rich.progress.Progress | None = None
_lines: list[rich.progress.TaskID] = []


def _live_region() -> rich.progress.Progress:
  """Returns the live region, which is opened by the first call."""
  global _bars
  if _bars is None:
    bars = rich.progress.Progress(
      rich.progress.BarColumn(_BAR_WIDTH),
      rich.progress.TextColumn('{task.description}', markup=False),
      rich.progress.TimeElapsedColumn(),
      console=_Console(stderr=True, force_terminal=True),
      transient=True,
      refresh_per_second=_REFRESHES_PER_SECOND,
      redirect_stdout=sys.stdout.isatty(),
    )
    bars.start()
    _bars = bars
  return _bars
