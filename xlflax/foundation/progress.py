"""A line about the progress of what takes long, every half a minute."""

import contextlib
import contextvars
import logging
import time
from collections.abc import Iterator

_LOG = logging.getLogger(__name__)
_SECONDS = 30.0

_current: contextvars.ContextVar[str | None] = contextvars.ContextVar(
  'current', default=None
)


@contextlib.contextmanager
def named(what: str) -> Iterator[None]:
  """Batches that are read in here report under this name; else they do not."""
  token = _current.set(what)
  try:
    yield
  finally:
    _current.reset(token)


def current() -> str | None:
  """The name that `named` gives."""
  return _current.get()


class Progress:
  """Counts what is done, and says so every half a minute."""

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
    self._start = self._last = time.monotonic()

  def __call__(self, count: float) -> None:
    """Counts `count` more."""
    self._done += count
    now = time.monotonic()
    if self.what is None or now - self._last < _SECONDS:
      return
    self._last = now
    speed = (self._done - self._first) / max(now - self._start, 1e-9)
    _LOG.info(
      '%s | %s %s | %s/s%s',
      self.what,
      self._count(),
      self._unit,
      f'{speed:.0f}' if speed >= 10 else f'{speed:.2g}',
      ''
      if self._total is None or not speed
      else f' | {(self._total - self._done) / speed / 60:.0f} min left',
    )

  def _count(self) -> str:
    return f'{self._done:,.0f}' + (
      '' if self._total is None else f' of {self._total:,.0f}'
    )
