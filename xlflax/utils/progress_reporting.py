"""How far a command is with what takes long.

A terminal shows it at once, in the live line below the log; a log gets a line
every half a minute.
"""

import contextlib
import contextvars
import logging
import time
from collections.abc import Iterator

from xlflax.utils import live_display

_LOG = logging.getLogger(__name__)
_SECONDS = 30.0
_LIVE = 0.1  # seconds between two states of a live line

_current: contextvars.ContextVar[str | None] = contextvars.ContextVar(
  'current', default=None
)


@contextlib.contextmanager
def progress_name(what: str) -> Iterator[None]:
  """Batches that are read in here report under this name; else they do not.

  A terminal shows the name, too, while nothing is counted.
  """
  token = _current.set(what)
  line = live_display.Line(what)
  try:
    yield
  finally:
    line.close()
    _current.reset(token)


def current_progress_name() -> str | None:
  """The name that `progress_name` gives."""
  return _current.get()


class Progress:
  """Counts what is done, and shows it: `with Progress(...) as report`."""

  def __init__(
    self,
    what: str | None,
    *,
    unit: str = 'sentences',
    done: float = 0,
    total: float | None = None,
  ):
    """Starts the clock.

    Args:
      what: is being done; None: nothing is said. May be changed.
      unit: that is counted, in the plural.
      done: before the start.
      total: at the end; None where it is not known.
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
    """Says how much is done, of how much."""
    self._total = total
    if not self._done:  # what was there before has no part in the speed
      self._first = done
    self(done - self._done)

  def __call__(self, count: float) -> None:
    """Counts `count` more."""
    self._done += count
    current_time = time.monotonic()
    if self.what is None:
      return
    if current_time - self._shown >= _LIVE and live_display.is_live():
      self._shown = current_time
      self._line = self._line or live_display.Line(self.what, total=self._total)
      self._line.show(self._text(current_time), self._done, self._total)
    elif current_time - self._last >= _SECONDS and not self._line:
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
    return f'{self._done:,.0f}' + (
      '' if self._total is None else f' of {self._total:,.0f}'
    )
