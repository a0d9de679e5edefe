"""Tests of the worker processes of a command."""

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


def test_workers_ignore_signals_of_the_terminal():
  with process_pool.start_process_pool(1, _start, 'a') as pool:
    for number in (None, signal.SIGINT, signal.SIGHUP):
      assert process_pool.get_result(pool.submit(_work, number)) == 'a'


def test_killed_worker_is_reported_as_a_failure():
  with process_pool.start_process_pool(1, _start, 'a') as pool:
    with pytest.raises(errors.XlflaxError) as raised:
      process_pool.get_result(pool.submit(_work, signal.SIGKILL))
  assert raised.value.status is errors.ExitStatus.FAILURE
