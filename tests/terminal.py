"""What a person sees of a command on a terminal of some width."""

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


def lines(
  command: list[str],
  width: int,
  *,
  environment: Mapping[str, str] | None = None,
  folder: pathlib.Path | None = None,
  interrupt_at: Callable[[str], bool] | None = None,
) -> list[str]:
  """Runs a command on a pseudo-terminal; returns all lines that stay on it.

  Args:
    command: the program and its arguments.
    width: of the terminal, in characters.
    environment: variables beside this process's own.
    folder: where it runs.
    interrupt_at: says of which line Ctrl-C follows, once.

  Returns:
    The lines from the first that was printed to the last that is not empty,
    without the white space behind each; one that the terminal folded is whole.
  """
  leader, follower = pty.openpty()
  size = struct.pack('HHHH', _LINES, width, 0, 0)
  fcntl.ioctl(follower, termios.TIOCSWINSZ, size)
  own = {name: v for name, v in os.environ.items() if name != 'COLUMNS'}
  process = subprocess.Popen(
    command,
    stdin=subprocess.DEVNULL,
    stdout=follower,
    stderr=follower,
    env=own | {'TERM': 'xterm-256color'} | dict(environment or {}),
    cwd=folder,
  )
  os.close(follower)
  screen = pyte.HistoryScreen(width, _LINES, history=10_000)
  stream = pyte.ByteStream(screen)
  while content := _read(leader):
    stream.feed(content)
    if interrupt_at and any(map(interrupt_at, _whole(screen))):
      process.send_signal(signal.SIGINT)
      interrupt_at = None
  os.close(leader)
  assert process.wait() == 0, '\n'.join(_whole(screen))
  return _whole(screen)


def _whole(screen: pyte.HistoryScreen) -> list[str]:
  """The lines of a screen and those that left it; folded ones are whole."""
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
  except OSError:  # the command has ended
    return b''
