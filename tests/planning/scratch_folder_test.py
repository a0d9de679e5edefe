"""Tests of temporary folders of compilers."""

import pathlib
import signal
import subprocess
import sys
import time

import pytest

from xlflax.planning import scratch_folder

_PROGRAM = """
import sys, time
from xlflax.planning import scratch_folder
with scratch_folder.scratch_folder() as folder:
  (folder / 'dump.txt').write_text('HloModule x')
  print(folder, flush=True)
  time.sleep(60)
"""


def test_folder_is_removed_on_exit():
  with scratch_folder.scratch_folder() as folder:
    (folder / 'dump.txt').write_text('HloModule x')
  assert not folder.exists()


@pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGTERM])
def test_folder_of_a_killed_process_is_removed(number):
  process = subprocess.Popen(
    [sys.executable, '-c', _PROGRAM], stdout=subprocess.PIPE, text=True
  )
  assert process.stdout is not None
  folder = pathlib.Path(process.stdout.readline().strip())
  assert (folder / 'dump.txt').exists()
  process.send_signal(number)
  process.wait()
  end = time.monotonic() + 20
  while folder.exists() and time.monotonic() < end:
    time.sleep(0.05)
  assert not folder.exists()
