"""Tests of the live status line and of log lines on a terminal."""

import re
import subprocess
import sys

import pytest

from tests import terminal

_RUN = """
import logging, sys, time, warnings
from xlflax.utils import logs, progress_reporting, live_display
from xlflax.training import progress_lines as training

logs.set_up_logging()
run = training.Progress(
  first_step=0, total_steps=60, flops_per_step=None, peak_flops=None
)
time.sleep(0.6)
run.begin(1, 9.5, 0.5)
for step in range(2, 61):
  time.sleep(0.01)
  run.advance(step)
  if step % 10 == 0:
    run.report(step, 10 / step, 100)
  if step == 30:
    with progress_reporting.progress_name('retrieval'):
      with progress_reporting.Progress('rows', unit='rows', total=40) as report:
        for _ in range(4):
          time.sleep(0.11)
          report(10)
        logging.info('between')
  if step == 45:
    print('printed', file=sys.stderr)
    print('to standard output')
run.close()
logging.info('the end %s', 'x' * 130)
"""


@pytest.mark.parametrize('width', [80, 120])
def test_log_lines_are_preserved_by_the_live_line(width):
  screen_lines = terminal.run_in_terminal([sys.executable, '-c', _RUN], width)
  messages = [line.partition(' I ')[2] or line for line in screen_lines]
  assert messages[0].startswith('step 1/60 | loss 9.5000 | first step: ')
  reports = [line for line in messages if ' tok/s' in line]
  assert [line.partition(' | ')[0] for line in reports] == [
    f'step {step}/60' for step in range(10, 61, 10)
  ]
  assert all('ETA 00:00:0' in line for line in reports)
  assert [line for line in messages[1:] if line not in reports] == [
    'between',
    'printed',
    'to standard output',
    'the end ' + 'x' * 130,
  ]


def test_live_line_is_displayed_during_the_command():
  """The process exits without removing the line."""
  program = _RUN.replace('run.close()', 'import os; os._exit(0)')
  screen_lines = terminal.run_in_terminal([sys.executable, '-c', program], 80)
  (live,) = [line for line in screen_lines if '━' in line]
  assert re.search(r'step \d+/60 \| loss \d\.\d{4} \| ETA 00:00:0', live)
  assert len(live) <= 80


_PLAIN = """
import logging
from xlflax.utils import logs, progress_reporting, live_display
logs.set_up_logging()
with progress_reporting.progress_name('quiet'):
  logging.warning('a line')
print(live_display.is_live())
"""


def test_redirected_log_has_plain_lines():
  done = subprocess.run(
    [sys.executable, '-c', _PLAIN], capture_output=True, text=True, check=True
  )
  assert done.stderr.partition(' W ')[2] == 'a line\n'
  assert done.stdout == 'False\n'
  dumb = terminal.run_in_terminal(
    [sys.executable, '-c', _PLAIN], 80, environment={'TERM': 'dumb'}
  )
  assert dumb[0][9:] == 'W a line' and dumb[1:] == ['False']


def test_log_level_warning_hides_progress():
  program = _RUN.replace(
    'logs.set_up_logging()', 'logs.set_up_logging(logging.WARNING)'
  )
  screen_lines = terminal.run_in_terminal([sys.executable, '-c', program], 80)
  assert screen_lines == ['printed', 'to standard output']
