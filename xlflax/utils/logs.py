"""Logging of the command line: lines on standard error, for people or as JSON."""

import datetime
import json
import logging
import os
import sys
import traceback
import types

from xlflax.utils import errors, live_display, signals


class _Handler(logging.Handler):
  """Writes each record as lines, above what the command is at."""

  def emit(self, record: logging.LogRecord) -> None:
    try:
      live_display.write_lines(self.format(record))
    except Exception:
      self.handleError(record)


class _JsonLines(logging.Formatter):
  """A record as one line of JSON, with the fields that it was given."""

  def format(self, record: logging.LogRecord) -> str:
    time = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    line = {
      'time': time.isoformat(timespec='milliseconds'),
      'level': record.levelname.lower(),
      'message': record.getMessage(),
      **getattr(record, 'fields', {}),
    }
    if record.exc_info:
      line['trace'] = self.formatException(record.exc_info)
    return json.dumps(line, default=str)


def set_up(level: int = logging.INFO, *, as_json: bool = False) -> None:
  """Lines with time and level; other libraries only from warnings on.

  Args:
    level: the least that is shown; above INFO there is no live line either.
    as_json: whether a line is a JSON object, for programs; no live line then.
  """
  live_display.allow_live_lines(level <= logging.INFO and not as_json)
  handler = _Handler()
  handler.setFormatter(
    _JsonLines()
    if as_json
    else logging.Formatter(
      '%(asctime)s %(levelname).1s %(message)s', datefmt='%H:%M:%S'
    )
  )
  handler.addFilter(_is_news)
  root = logging.getLogger()
  root.handlers[:] = [handler]
  root.setLevel(level)
  for name in ('absl', 'jax', 'orbax', 'tensorflow', 'matplotlib', 'urllib3'):
    logging.getLogger(name).setLevel(logging.WARNING)
  sys.excepthook, sys.unraisablehook = _excepthook, _unraisablehook
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')


def log_exit(command: str, error: errors.XlflaxError, *, as_json: bool) -> None:
  """Says what ends a command, as a line of text or of JSON."""
  if as_json:
    logging.error('%s', error, extra={'fields': error.parts})
  else:
    print(f'xlflax {command}: {error}', file=sys.stderr)


def _is_news(record: logging.LogRecord) -> bool:
  """Whether a line says what nothing else says.

  Orbax logs the traceback of each array and thread that a full disk stops, and
  asyncio those that were not the first: what they raise reaches the one who
  waits for the checkpoint, and is told once.
  """
  _, _, trace = record.exc_info or (None, None, None)
  if trace is None:
    return True
  frames = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(trace))
  return record.name != 'asyncio' and not any('orbax' in f for f in frames)


def _is_given_up(kind: type, trace: types.TracebackType | None) -> bool:
  """Whether TensorStore tells of a write after another one's error.

  It reports each to an event loop that ended with the first error.
  """
  first = trace.tb_frame.f_code.co_name if trace else ''
  return kind is RuntimeError and first == 'call_soon_threadsafe'


def _excepthook(kind, error, trace) -> None:
  """As Python's, but for `_is_given_up`."""
  if not _is_given_up(kind, trace):
    sys.__excepthook__(kind, error, trace)


def _unraisablehook(told: 'sys.UnraisableHookArgs') -> None:
  """As Python's, but for what is told elsewhere, or followed.

  That is `_is_given_up`; an event loop that had no descriptor, whose opening
  was an error; and a signal that came in a finaliser, which comes again.
  """
  if isinstance(told.exc_value, signals.Stopped):
    signals.raise_again(told.exc_value)
    return
  owner = getattr(told.object, '__qualname__', '')
  given_up = _is_given_up(told.exc_type, told.exc_traceback)
  if not given_up and owner != 'BaseEventLoop.__del__':
    sys.__unraisablehook__(told)
