"""Worker processes of a command and their end."""

import os
import signal

import pytest

from xlflax.utils import errors, process_pool

_initializer_values = []


def _start(value):
  _initializer_values.append(value)


def _work(number):
  if number is not None:
    os.kill(os.getpid(), number)
  return _initializer_values[0]


def test_what_a_terminal_sends_is_left_to_the_command():
  with process_pool.start_process_pool(1, _start, 'a') as pool:
    for number in (None, signal.SIGINT, signal.SIGHUP):
      assert process_pool.get_result(pool.submit(_work, number)) == 'a'


def test_a_process_that_is_gone_is_told():
  with process_pool.start_process_pool(1, _start, 'a') as pool:
    with pytest.raises(errors.XlflaxError) as raised:
      process_pool.get_result(pool.submit(_work, signal.SIGKILL))
  assert raised.value.status is errors.ExitStatus.FAILURE
