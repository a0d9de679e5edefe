"""Output of a command on a pseudo-terminal of a given width."""

import fcntl
import os
import pathlib
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping

import pyte

_LINES = 40


def run_in_terminal(
  command: list[str],
  width: int,
  *,
  environment: Mapping[str, str] | None = None,
  folder: pathlib.Path | None = None,
  interrupt_at: Callable[[str], bool] | None = None,
) -> list[str]:
  """Runs a command on a pseudo-terminal; returns all lines that remain on it.

  Args:
    command: Program and its arguments.
    width: Terminal width in characters.
    environment: Additional environment variables.
    folder: Working directory.
    interrupt_at: Function that returns whether a line on the screen is the one
      after which Ctrl-C is sent. It is sent only once. If None, it is never
      sent.

  Returns:
    Lines from the first printed line to the last nonempty line, without
    trailing white space. Lines that the terminal wrapped are joined.
  """
  leader, follower = pty.openpty()
  size = struct.pack('HHHH', _LINES, width, 0, 0)
  fcntl.ioctl(follower, termios.TIOCSWINSZ, size)
  variables = {name: v for name, v in os.environ.items() if name != 'COLUMNS'}
  process = subprocess.Popen(
    command,
    stdin=subprocess.DEVNULL,
    stdout=follower,
    stderr=follower,
    env=variables | {'TERM': 'xterm-256color'} | dict(environment or {}),
    cwd=folder,
  )
  os.close(follower)
  screen = pyte.HistoryScreen(width, _LINES, history=10_000)
  stream = pyte.ByteStream(screen)
  while content := _read(leader):
    stream.feed(content)
    if interrupt_at and any(map(interrupt_at, _join_wrapped_lines(screen))):
      process.send_signal(signal.SIGINT)
      interrupt_at = None
  os.close(leader)
  assert process.wait() == 0, '\n'.join(_join_wrapped_lines(screen))
  return _join_wrapped_lines(screen)


def _join_wrapped_lines(screen: pyte.HistoryScreen) -> list[str]:
  """Returns the lines of a screen and its history; joins wrapped lines."""
  width = screen.columns
  past = [
    ''.join(line[column].data for column in range(width))
    for line in screen.history.top
  ]
  text = ''.join(
    line if len(line.rstrip()) == width else f'{line.rstrip()}\n'
    for line in (*past, *screen.display)
  )
  return text.rstrip('\n').split('\n')


def _read(leader: int) -> bytes:
  try:
    return os.read(leader, 65536)
  except OSError:  # the command has exited
    return b''
