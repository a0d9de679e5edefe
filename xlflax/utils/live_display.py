"""Standard error on a terminal: lines above, one live line below them.

Log records and live lines go through one console, so that neither overwrites
the other. Where standard error is no terminal, there are plain lines only.
"""

import contextlib
import multiprocessing
import os
import sys

import rich.console
import rich.progress

_WIDTH = 12  # of the bar
_REFRESHES = 4  # a second


class _Console(rich.console.Console):
  """A console that leaves the cursor alone: a killed command hides none."""

  def show_cursor(self, show: bool = True) -> bool:
    del show
    return False


def allow_live_lines(is_allowed: bool) -> None:
  """Says whether there are live lines at all."""
  global _is_allowed
  _is_allowed = is_allowed


def is_live() -> bool:
  """Whether this process may rewrite a line of a terminal."""
  return (
    _is_allowed
    and sys.stderr.isatty()
    and os.environ.get('TERM', 'dumb') not in ('dumb', 'unknown')
    and multiprocessing.parent_process() is None
  )


def write_lines(text: str) -> None:
  """Writes lines to standard error, above the live line if there is one."""
  bars = _bars
  if bars is None:
    sys.stderr.write(f'{text}\n')
    sys.stderr.flush()
  else:
    bars.console.print(text, markup=False, highlight=False, soft_wrap=True)


class Line:
  """The live line of what a command is at, with a bar; nothing in a log.

  Of several that are open, the last is shown.
  """

  def __init__(self, text: str, *, total: float | None = None):
    """Opens the line.

    Args:
      text: that is shown, shortened to the width of the terminal.
      total: where the bar is full; None: it only says that work goes on.
    """
    self._task: rich.progress.TaskID | None = None
    if not is_live():
      return
    bars = _opened()
    for other in _lines:
      bars.update(other, visible=False)
    self._task = bars.add_task(text, total=total)
    _lines.append(self._task)

  @property
  def is_open(self) -> bool:
    """Whether the line is on a terminal, or below another one."""
    return _bars is not None and self._task in _lines

  def show(
    self, text: str, done: float | None = None, total: float | None = None
  ) -> None:
    """Changes the text, and how full the bar is."""
    if self._task is not None and self.is_open:
      _opened().update(
        self._task, description=text, completed=done, total=total
      )

  def close(self) -> None:
    """Takes the line off the screen; the one before it is shown again."""
    if self._task is None or not self.is_open:
      return
    _lines.remove(self._task)
    if not _lines:
      clear_live_lines()
      return
    _opened().remove_task(self._task)
    _opened().update(_lines[-1], visible=True)


def clear_live_lines() -> None:
  """Takes every live line off the screen."""
  global _bars
  bars, _bars = _bars, None
  _lines.clear()
  if bars is not None:
    with contextlib.suppress(OSError):  # the terminal is gone
      bars.stop()


_is_allowed = True
_bars: rich.progress.Progress | None = None
_lines: list[rich.progress.TaskID] = []


def _opened() -> rich.progress.Progress:
  """The live region, opened where it is not."""
  global _bars
  if _bars is None:
    bars = rich.progress.Progress(
      rich.progress.BarColumn(_WIDTH),
      rich.progress.TextColumn('{task.description}', markup=False),
      rich.progress.TimeElapsedColumn(),
      console=_Console(stderr=True, force_terminal=True),
      transient=True,
      refresh_per_second=_REFRESHES,
      redirect_stdout=sys.stdout.isatty(),
    )
    bars.start()
    _bars = bars
  return _bars
