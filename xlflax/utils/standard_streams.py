"""Standard streams that are closed, or that nobody reads any more.

A job can outlive the terminal, pipe or log that it was started with. What
cannot be told to anybody is dropped; a command whose results are on disk goes
on.
"""

import codecs
import errno
import io
import json
import os
import select
import sys
from typing import Any

# Nobody is at the other end, or the end itself is gone.
_GONE = frozenset((errno.EPIPE, errno.EBADF, errno.EIO, errno.ENXIO))
_ESCAPE = 'xlflax.escape'
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


def open_closed() -> None:
  """Opens what is closed of the standard streams, as if it were /dev/null.

  Else a file that is opened later would get the number of a stream, and what
  is printed would be written into it.
  """
  for number, name in enumerate(('stdin', 'stdout', 'stderr')):
    opened = number
    try:
      os.fstat(number)
    except OSError:
      opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    if getattr(sys, name) is not None:
      continue
    if opened == number and not _is_nowhere(number):
      opened = os.open(os.devnull, os.O_RDWR)  # it is another file's by now
    mode = 'w' if number else 'r'
    stream = open(opened, mode, encoding='utf-8', closefd=False)  # noqa: SIM115
    setattr(sys, name, stream)


def _is_nowhere(number: int) -> bool:
  """Whether a descriptor is one of /dev/null."""
  return os.path.samestat(os.fstat(number), os.stat(os.devnull))


def drop_unread(*, stdout: bool) -> None:
  """Drops what nobody can read of standard error, and of standard output.

  Args:
    stdout: False: writing raises BrokenPipeError where nobody reads.
  """
  sys.stderr = _wrapped(sys.stderr, 'standard error', unread=True, full=True)
  sys.stdout = _wrapped(sys.stdout, 'standard output', unread=stdout)


def drop_pending_output() -> None:
  """Drops what is left: at its end Python would complain of it."""
  for stream in (sys.stdout, sys.stderr):
    try:
      stream.flush()
    except (OSError, ValueError):
      _to_nowhere(stream)


def is_unread() -> bool:
  """Returns whether nobody reads standard output, as after `| head`."""
  try:
    number = sys.stdout.fileno()
  except (OSError, ValueError):  # no file
    return False
  poll = select.poll()
  poll.register(number, 0)
  return any(event & select.POLLERR for _, event in poll.poll(0))


def _to_nowhere(stream: Any) -> None:
  try:
    number = stream.fileno()
  except (OSError, ValueError):  # no file
    return
  nowhere = os.open(os.devnull, os.O_WRONLY)
  os.dup2(nowhere, number)
  os.close(nowhere)


def _wrapped(stream: Any, name: str, **drops: bool) -> Any:
  """Returns a stream like this one that drops what cannot be written.

  Characters that its encoding does not have are escaped.
  """
  try:
    raw = _File(stream.fileno(), name, **drops)
  except (OSError, ValueError):  # no file
    return stream
  stream.flush()
  codecs.register_error(_ESCAPE, _escape)
  through = stream.write_through
  return io.TextIOWrapper(
    raw if through else io.BufferedWriter(raw),  # type: ignore[arg-type]
    encoding=stream.encoding,
    errors=_ESCAPE,
    line_buffering=stream.line_buffering,
    write_through=through,
  )


def _escape(error: UnicodeError) -> tuple[str, int]:
  r"""Escapes characters that a stream's encoding does not have.

  They become `\uXXXX` in JSON's notation, so that JSON stays JSON. The bytes of
  a path that is not UTF-8 (halves of surrogate pairs in Python) are escaped,
  too.
  """
  assert isinstance(error, UnicodeEncodeError)
  text = error.object[error.start : error.end]
  return ''.join(json.dumps(c)[1:-1] for c in text), error.end


class _File(io.FileIO):
  """A stream's file.

  Args:
    number: its descriptor.
    name: for messages.
    unread: drops what nobody can read.
    full: drops what a full disk does not take.
  """

  def __init__(
    self, number: int, name: str, *, unread: bool, full: bool = False
  ):
    super().__init__(number, 'wb', closefd=False)
    self._name = name
    self._dropped = (_GONE if unread else frozenset()) | (
      _FULL if full else frozenset()
    )

  def write(self, content: Any) -> int:
    """Writes, or drops what cannot be written."""
    try:
      return super().write(content)  # type: ignore[return-value]
    except OSError as error:
      if error.errno not in self._dropped:
        error.filename = self._name
        raise
      if error.errno in _GONE:
        _to_nowhere(self)
      return memoryview(content).nbytes
