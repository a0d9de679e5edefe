"""Tests that a command exits without waiting for threads."""

import subprocess
import sys

_PROGRAM = """
import sys, threading, time
from xlflax import cli
from xlflax.utils import process_exit
def run(name, arguments, level):
  thread = threading.Thread(target=time.sleep, args=(60,), daemon=False)
  thread.start()
  assert process_exit.is_command()
  process_exit.abandon_thread(thread)
  print('done')
  return 3
cli._run_command = run
sys.argv = ['xlflax', 'train']
sys.exit(cli.main())
"""


def test_running_thread_does_not_delay_the_exit():
  done = subprocess.run(
    [sys.executable, '-c', _PROGRAM], capture_output=True, text=True, timeout=50
  )
  assert (done.returncode, done.stdout) == (3, 'done\n')
