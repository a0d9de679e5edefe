"""What a person sees of a command on a terminal of some width."""

import fcntl
import os
import pty
import struct
import subprocess
import termios

import pyte

_LINES = 40


def lines(
  command: list[str], width: int, *, environment: dict[str, str] | None = None
) -> list[str]:
  """Runs a command on a pseudo-terminal; returns all lines that stay on it.

  Args:
    command: the program and its arguments.
    width: of the terminal, in characters.
    environment: variables beside this process's own.

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
    env=own | {'TERM': 'xterm-256color'} | (environment or {}),
  )
  os.close(follower)
  screen = pyte.HistoryScreen(width, _LINES, history=10_000)
  stream = pyte.ByteStream(screen)
  while content := _read(leader):
    stream.feed(content)
  os.close(leader)
  assert process.wait() == 0, '\n'.join(screen.display)
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
