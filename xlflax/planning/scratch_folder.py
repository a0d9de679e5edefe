"""Temporary folders that are removed even if the process is killed."""

import contextlib
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

# The shell command reads from a pipe, which closes when the process ends for
# any reason, including SIGKILL.
_WATCH = 'cat > /dev/null; rm -rf "$1"'


@contextlib.contextmanager
def scratch_folder() -> Iterator[pathlib.Path]:
  """Context manager that yields an empty folder and removes it on exit.

  The folder is temporary. A separate shell waits for the end of the process and
  removes the folder, because a process cannot handle SIGKILL, and because a
  compiler may still write into the folder.
  """
  path = pathlib.Path(tempfile.mkdtemp(prefix='xlflax-plan-'))
  watcher = subprocess.Popen(
    ['/bin/sh', '-c', _WATCH, 'sh', str(path)],
    stdin=subprocess.PIPE,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
    start_new_session=True,
  )
  try:
    yield path
  finally:
    shutil.rmtree(path, ignore_errors=True)
    watcher.communicate()
