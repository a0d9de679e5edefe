"""Handling of standard streams that are closed or have no reader.

A job can outlive the terminal, pipe or log file with which it was started.
Output without a reader is then dropped. A command that writes its results to
disk continues.
"""

import codecs
import errno
import io
import json
import os
import select
import sys
from typing import Any

# Errors of a stream that has no reader or is closed.
_GONE = frozenset((errno.EPIPE, errno.EBADF, errno.EIO, errno.ENXIO))
_ESCAPE = 'xlflax.escape'
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


def open_closed_streams() -> None:
  """Opens /dev/null in place of each standard stream that is closed.

  Without this call, a file that is opened later would get the descriptor of a
  closed standard stream, and output would be written into that file.
  """
  for number, name in enumerate(('stdin', 'stdout', 'stderr')):
    descriptor = number
    try:
      os.fstat(number)
    except OSError:
      # The system returns the lowest free number, which is that of the stream.
      descriptor = os.open(os.devnull, os.O_RDWR)
    if getattr(sys, name) is not None:
      continue
    if descriptor == number and not _is_null(number):
      # Another file has the number of the stream already.
      descriptor = os.open(os.devnull, os.O_RDWR)
    mode = 'w' if number else 'r'
    stream = open(descriptor, mode, encoding='utf-8', closefd=False)  # noqa: SIM115
    setattr(sys, name, stream)


def _is_null(number: int) -> bool:
  """Returns whether a descriptor refers to /dev/null."""
  return os.path.samestat(os.fstat(number), os.stat(os.devnull))


def drop_unread_output(*, stdout: bool) -> None:
  """Configures standard streams to drop output that has no reader.

  Standard error also drops output that does not fit on a full disk.

  Args:
    stdout: Whether to drop unread standard output. If False, writing raises
      BrokenPipeError.
  """
  sys.stderr = _wrap_stream(
    sys.stderr, 'standard error', unread=True, full=True
  )
  sys.stdout = _wrap_stream(sys.stdout, 'standard output', unread=stdout)


def drop_pending_output() -> None:
  """Drops output that cannot be flushed, to avoid an error message at exit."""
  for stream in (sys.stdout, sys.stderr):
    try:
      stream.flush()
    except (OSError, ValueError):
      _redirect_to_null(stream)


def is_stdout_unread() -> bool:
  """Returns whether standard output has no reader, as after `| head`."""
  try:
    number = sys.stdout.fileno()
  except (OSError, ValueError):  # The stream is not a file.
    return False
  poll = select.poll()
  poll.register(number, 0)
  return any(event & select.POLLERR for _, event in poll.poll(0))


def _redirect_to_null(stream: Any) -> None:
  """Redirects a stream to /dev/null."""
  try:
    number = stream.fileno()
  except (OSError, ValueError):  # The stream is not a file.
    return
  null = os.open(os.devnull, os.O_WRONLY)
  os.dup2(null, number)
  os.close(null)


def _wrap_stream(stream: Any, name: str, **drops: bool) -> Any:
  """Returns a copy of a stream that drops what cannot be written.

  Characters that the encoding of the stream does not contain are escaped.

  Args:
    stream: The stream to wrap.
    name: The name of the stream, for messages.
    **drops: Arguments of `_File`.
  """
  try:
    raw = _File(stream.fileno(), name, **drops)
  except (OSError, ValueError):  # The stream is not a file.
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
  r"""Escapes characters that the encoding of a stream does not contain.

  The characters become `\uXXXX` as in JSON, so that JSON output stays valid.
  The bytes of a path that is not UTF-8, which Python represents as surrogates,
  are escaped, too.
  """
  assert isinstance(error, UnicodeEncodeError)
  text = error.object[error.start : error.end]
  return ''.join(json.dumps(c)[1:-1] for c in text), error.end


class _File(io.FileIO):
  """File object that replaces a standard stream.

  Args:
    number: Number of the file descriptor.
    name: The name of the stream, for messages.
    unread: Whether to discard output if the stream has no reader, such as a
      closed pipe.
    full: Whether to discard output if the disk is full.
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
    """Writes the content, or discards it if it cannot be written.

    Content is discarded if the stream has no reader or the disk is full,
    depending on the arguments `unread` and `full`. Other errors are raised.
    """
    try:
      return super().write(content)  # type: ignore[return-value]
    except OSError as error:
      if error.errno not in self._dropped:
        error.filename = self._name
        raise
      if error.errno in _GONE:
        _redirect_to_null(self)
      return memoryview(content).nbytes
