"""Process that runs commands with unusual standard streams.

  python -m tests.cli.stream_worker JOBS

JOBS is a JSON list of jobs. A job consists of the arguments of a command, the
kinds of its standard output and standard error, and a folder. The process
imports all commands once and runs each job in a fork. The streams of kind
'file' are written to the folder, which also receives the exit status.
"""

import contextlib
import gc
import io
import json
import os
import pathlib
import signal
import sys

from xlflax import cli

_TIMEOUT = 120  # Seconds per command.


def main(jobs_file: str) -> None:
  """Runs the jobs in a file."""
  with contextlib.redirect_stdout(io.StringIO()):
    for name in cli.COMMANDS:
      cli.main([name, '--help'])  # Imports the modules of the command.
  # Garbage collection in forks does not copy the memory of these modules.
  gc.freeze()
  for job in json.loads(pathlib.Path(jobs_file).read_text()):
    folder = pathlib.Path(job['folder'])
    folder.mkdir(parents=True)
    child = os.fork()
    if not child:
      signal.alarm(_TIMEOUT)
      os.chdir(job['directory'])
      for number, name in ((1, 'stdout'), (2, 'stderr')):
        _open_stream(number, name, job[name], folder / name)
      sys.argv = ['xlflax', *job['arguments']]
      sys.exit(cli.main())
    _, wait_status = os.waitpid(child, 0)
    (folder / 'status').write_text(str(os.waitstatus_to_exitcode(wait_status)))


def _open_stream(number: int, name: str, kind: str, path: pathlib.Path) -> None:
  """Opens a file descriptor as a stream of some kind.

  Args:
    number: Number of the file descriptor.
    name: Name of the stream in `sys`.
    kind: 'file', 'unread' (a pipe without a reader), 'full' (a full disk) or
      'closed'.
    path: File of a stream of kind 'file'.
  """
  if kind == 'closed':
    os.close(number)
    setattr(sys, name, None)  # Python sets a closed stream to None at startup.
    return
  if kind == 'unread':
    reader, descriptor = os.pipe()
    os.close(reader)
  elif kind == 'full':
    descriptor = os.open('/dev/full', os.O_WRONLY)
  else:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
  os.dup2(descriptor, number)
  os.close(descriptor)


if __name__ == '__main__':
  main(sys.argv[1])
