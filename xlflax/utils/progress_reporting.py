"""Progress reports for long operations.

On a terminal, the live line below the log shows the progress immediately. A log
file gets a line every half minute.
"""

import contextlib
import contextvars
import logging
import time
from collections.abc import Iterator

from xlflax.utils import live_display

_LOG = logging.getLogger(__name__)
_LOG_INTERVAL_SECONDS = 30.0
_LIVE_INTERVAL_SECONDS = 0.1

_current: contextvars.ContextVar[str | None] = contextvars.ContextVar(
  'current', default=None
)


@contextlib.contextmanager
def progress_name(what: str) -> Iterator[None]:
  """Context in which readers of batches report progress under a given name.

  Outside of this context, reading is not reported. A terminal shows the name
  even while nothing is counted.

  Args:
    what: Name of the operation that reads batches, for progress reports.
  """
  token = _current.set(what)
  line = live_display.Line(what)
  try:
    yield
  finally:
    line.close()
    _current.reset(token)


def current_progress_name() -> str | None:
  """Returns the operation name that `progress_name` has set, or None."""
  return _current.get()


class Progress:
  """A counter that reports its progress: `with Progress(...) as report`."""

  def __init__(
    self,
    what: str | None,
    *,
    unit: str = 'sentences',
    done: float = 0,
    total: float | None = None,
  ):
    """Starts measuring the elapsed time.

    Args:
      what: Name of the operation. The attribute of the same name can be changed
        later. If None, nothing is reported.
      unit: Plural name of the items that are counted, such as 'lines'.
      done: Number of units that were finished before this operation started.
      total: Total number of units, or None if it is unknown.
    """
    self.what, self._unit, self._total = what, unit, total
    self._done = self._first = done
    self._start = self._last = self._shown = time.monotonic()
    self._line: live_display.Line | None = None

  def __enter__(self) -> 'Progress':
    return self

  def __exit__(self, *unused: object) -> None:
    if self._line:
      self._line.close()

  def reach(self, done: float, total: float) -> None:
    """Updates the number of finished units and the total number of units."""
    self._total = total
    if not self._done:  # The speed excludes what was done before the start.
      self._first = done
    self(done - self._done)

  def __call__(self, count: float) -> None:
    """Increases the count."""
    self._done += count
    current_time = time.monotonic()
    if self.what is None:
      return
    if (
      current_time - self._shown >= _LIVE_INTERVAL_SECONDS
      and live_display.is_live()
    ):
      self._shown = current_time
      self._line = self._line or live_display.Line(self.what, total=self._total)
      self._line.show(self._text(current_time), self._done, self._total)
    elif current_time - self._last >= _LOG_INTERVAL_SECONDS and not self._line:
      self._last = current_time
      _LOG.info(
        '%s',
        self._text(current_time),
        extra={
          'fields': dict(
            what=self.what, unit=self._unit, done=self._done, total=self._total
          )
        },
      )

  def _text(self, now: float) -> str:
    """Returns the progress in words, with the speed and the remaining time."""
    speed = (self._done - self._first) / max(now - self._start, 1e-9)
    parts = [
      f'{self.what} | {self._count()} {self._unit}',
      f'{speed:.0f}/s' if speed >= 10 else f'{speed:.2g}/s',
    ]
    if self._total is not None and speed:
      minutes_left = (self._total - self._done) / speed / 60
      parts.append(f'{minutes_left:.0f} min left')
    return ' | '.join(parts)

  def _count(self) -> str:
    """Returns the count, and the total if it is known."""
    return f'{self._done:,.0f}' + (
      '' if self._total is None else f' of {self._total:,.0f}'
    )
