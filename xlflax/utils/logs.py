"""Logging of commands to standard error, as text or as JSON lines."""

import contextlib
import datetime
import json
import logging
import os
import sys
import traceback
import types
from collections.abc import Iterator

from xlflax.utils import errors, live_display, signals

# Argument `extra` of warnings about files and settings, which a command may
# read several times, for example in each trial of a grid. If a command repeats
# such a warning, only the first one is logged.
ONCE = {'is_logged_once': True}


class _Handler(logging.Handler):
  """A handler that writes records above the live line."""

  def emit(self, record: logging.LogRecord) -> None:
    try:
      live_display.write_lines(self.format(record))
    except Exception:
      self.handleError(record)


class _JsonLines(logging.Formatter):
  """A formatter of records as lines of JSON with additional fields."""

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


def set_up_logging(level: int = logging.INFO, *, as_json: bool = False) -> None:
  """Configures the log format, which includes the time and the level.

  Records from other libraries are logged only at the level WARNING and above.

  Args:
    level: The lowest level of records that are logged. Above INFO, progress
      lines that are rewritten on the terminal (live lines) are disabled, too.
    as_json: Whether to write each record as a JSON object, for programs. Live
      lines are disabled in this case.
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
  handler.addFilter(_is_not_reported_elsewhere)
  handler.addFilter(_RepetitionFilter())
  root = logging.getLogger()
  root.handlers[:] = [handler]
  root.setLevel(level)
  for name in ('absl', 'jax', 'orbax', 'tensorflow', 'matplotlib', 'urllib3'):
    logging.getLogger(name).setLevel(logging.WARNING)
  sys.excepthook, sys.unraisablehook = _excepthook, _unraisablehook
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')


class _RepetitionFilter(logging.Filter):
  """Filter that skips repetitions of records with `extra=ONCE`.

  `set_up_logging` creates the filter, so that it has the lifetime of a command.
  """

  def __init__(self):
    super().__init__()
    self._logged_messages: set[str] = set()

  def filter(self, record: logging.LogRecord) -> bool:
    if not ONCE.items() <= vars(record).items():
      return True
    message = record.getMessage()
    is_new = message not in self._logged_messages
    self._logged_messages.add(message)
    return is_new


@contextlib.contextmanager
def skip_repeated_messages(logger: str) -> Iterator[None]:
  """Context in which a logger logs each message only once.

  Args:
    logger: Name of the logger, usually the name of a module.
  """
  logged_messages = set()

  def is_new(record: logging.LogRecord) -> bool:
    message = record.getMessage()
    is_repeated = message in logged_messages
    logged_messages.add(message)
    return not is_repeated

  logging.getLogger(logger).addFilter(is_new)
  try:
    yield
  finally:
    logging.getLogger(logger).removeFilter(is_new)


def log_exit(command: str, error: errors.XlflaxError, *, as_json: bool) -> None:
  """Logs the error that ended a command, as text or as JSON.

  Args:
    command: The name of the command that failed.
    error: The error that ended the command.
    as_json: Whether to write the error as a JSON object.
  """
  if as_json:
    logging.error('%s', error, extra={'fields': error.parts})
  else:
    print(f'xlflax {command}: {error}', file=sys.stderr)


def _is_not_reported_elsewhere(record: logging.LogRecord) -> bool:
  """Returns whether a record contains something that is not reported elsewhere.

  If a disk is full, Orbax logs the traceback of each array and thread, and
  asyncio logs all errors but the first. The caller that waits for the
  checkpoint receives the error and reports it once.
  """
  _, _, trace = record.exc_info or (None, None, None)
  if trace is None:
    return True
  frames = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(trace))
  return record.name != 'asyncio' and not any('orbax' in f for f in frames)


def _is_repeated_error(kind: type, trace: types.TracebackType | None) -> bool:
  """Returns whether TensorStore reports a write after a previous error.

  TensorStore reports each write to an event loop that ended with the first
  error.
  """
  first = trace.tb_frame.f_code.co_name if trace else ''
  return kind is RuntimeError and first == 'call_soon_threadsafe'


def _excepthook(kind, error, trace) -> None:
  """Calls the default hook, unless `_is_repeated_error` is true."""
  if not _is_repeated_error(kind, trace):
    sys.__excepthook__(kind, error, trace)


def _unraisablehook(unraisable: 'sys.UnraisableHookArgs') -> None:
  """Calls the default hook, except for errors that are handled elsewhere.

  The exceptions are: `_is_repeated_error`; an event loop without a file
  descriptor, whose creation raised an error already; and a signal that arrived
  in a finalizer, which is raised again.
  """
  if isinstance(unraisable.exc_value, signals.Stopped):
    signals.raise_again(unraisable.exc_value)
    return
  owner = getattr(unraisable.object, '__qualname__', '')
  is_after_error = _is_repeated_error(
    unraisable.exc_type, unraisable.exc_traceback
  )
  if not is_after_error and owner != 'BaseEventLoop.__del__':
    sys.__unraisablehook__(unraisable)
