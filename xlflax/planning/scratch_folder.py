"""A folder for what a compiler writes, gone with the process that made it."""

import contextlib
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

# Reads until the planning process has ended, in whatever way.
_WATCH = 'cat > /dev/null; rm -rf "$1"'


@contextlib.contextmanager
def scratch_folder() -> Iterator[pathlib.Path]:
  """An empty folder, which a killed process leaves no more than others do.

  A shell waits for the end of the process and removes the folder, as nothing
  in a process outlives SIGKILL, and as a compiler may still write into it.
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
