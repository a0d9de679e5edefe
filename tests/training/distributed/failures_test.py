"""Tests of the processes of a job when one of them fails."""

import signal
import socket
import subprocess
import sys
import time

import pytest

from tests.slow import mark_slow
from xlflax.training.distributed import failures

_HOST = socket.gethostname()
_SURVIVOR_SECONDS = 30


@pytest.mark.parametrize(
  'text, expected',
  [
    (
      'UNKNOWN: Gloo all-reduce failed: [external/gloo/gloo/transport/tcp/'
      'pair.cc:547] Connection closed by peer [127.0.0.1]:9614',
      True,
    ),
    ('NCCL operation failed: remote process exited or there was a', True),
    ('DEADLINE_EXCEEDED: Barrier timed out. Id: x', True),
    ("Batching rule for 'optimization_barrier' not implemented", False),
    ('INTERNAL: during context opt-barrier.3', False),
    ('INTERNAL: NCCL operation failed: invalid usage', False),
    ('RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes', False),
  ],
)
def test_errors_of_a_lost_process_are_recognized(text, expected):
  assert failures.is_lost_process(RuntimeError(text)) == expected


@pytest.mark.parametrize(
  'error, expected',
  [
    (RuntimeError('any'), True),
    (ValueError('UNKNOWN: Gloo AllGather failed'), True),
    (ValueError('could not convert'), False),
    (ZeroDivisionError('UNKNOWN: a bug'), False),
  ],
)
def test_errors_raised_by_jax_are_recognized(error, expected):
  assert failures.is_raised_by_jax(error) == expected


def test_processes_missing_at_a_barrier_are_parsed():
  text = (
    '# of tasks that reached the barrier: 2/4.\nThe first task at the barrier:'
    ' 0. Some timed out task names:\n12\n3\nRPC: /xla.coordination'
  )
  assert failures.timed_out_processes(text) == [3, 12]
  assert failures.timed_out_processes('INTERNAL: another error') == []


def test_descriptions_contain_host_names():
  hosts = ['a', 'a', 'b', 'c']
  assert failures.describe_hosts(hosts) == '0-1 on a, 2 on b, 3 on c'
  assert failures.describe_processes([1, 3], hosts) == '1 on a, 3 on c'
  assert failures.describe_processes(range(12)).endswith('9 and 2 more')


def test_abort_handler_is_called_only_inside_the_context():
  code = (
    'import os\nfrom xlflax.training.distributed import failures\n'
    'with failures.abort_handler(lambda: os._exit({status})):\n  {body}\n'
    'os.abort()'
  )
  codes = [
    subprocess.run(
      [sys.executable, '-c', code.format(status=74, body=body)], check=False
    ).returncode
    for body in ('os.abort()', 'pass')
  ]
  assert codes == [74, -signal.SIGABRT]


def _survivors(lost: int) -> list[int]:
  return [i for i in range(3) if i != lost]


@pytest.mark.parametrize('lost', mark_slow([0, 2], slow=[2]))
def test_killed_process_stops_the_other_processes(start_job, lost):
  job = start_job({}, {}, {})
  job.wait_for_step()
  start = time.monotonic()
  job.signal(lost, signal.SIGKILL)
  assert job.exit_codes(_survivors(lost)) == [74, 74], job.errors()
  assert time.monotonic() - start < _SURVIVOR_SECONDS
  for index in _survivors(lost):
    text = job.errors()[index]
    # JAX calls the coordinator "leader", and aborts immediately.
    assert ('leader' if lost == 0 else f'process 2 on {_HOST}') in text


@pytest.mark.slow
@pytest.mark.parametrize('frozen', [0, 2])
def test_frozen_process_stops_the_other_processes(start_job, frozen):
  """The errors contain stack traces, the step and the hosts."""
  job = start_job({}, {}, {})
  job.wait_for_step()
  start = time.monotonic()
  job.signal(frozen, signal.SIGSTOP)
  assert job.exit_codes(_survivors(frozen)) == [74, 74], job.errors()
  assert time.monotonic() - start < _SURVIVOR_SECONDS
  for index in _survivors(frozen):
    text = job.errors()[index]
    assert 'training (step ' in text and f'0-2 on {_HOST}' in text
    assert 'job_worker.py' in text and 'most recent call first' in text
    assert frozen == 0 or '\n2\n' in text  # JAX's list of unhealthy tasks


@pytest.mark.parametrize(
  'fault, exit_code, reason',
  [
    pytest.param('bug', 1, 'ZeroDivisionError: a bug', marks=pytest.mark.slow),
    ('mistake', 2, 'Got: nothing'),
  ],
)
@pytest.mark.parametrize(
  'failing', [pytest.param(0, marks=pytest.mark.slow), 1]
)
def test_exception_stops_all_processes_with_its_exit_code(
  start_job, fault, exit_code, reason, failing
):
  job = start_job(*({'fault': fault if i == failing else ''} for i in range(2)))
  assert job.exit_codes() == [exit_code] * 2, job.errors()
  other = job.errors()[1 - failing]
  assert f'process {failing} of 2 on {_HOST}' in other and reason in other
  assert 'Last checkpoint: 4.' in other


@pytest.mark.slow
def test_hanging_process_causes_stack_traces_of_all_processes(start_job):
  job = start_job({}, {'fault': 'hang'})
  assert job.exit_codes() == [74, 74], job.errors()
  assert all('most recent call first' in text for text in job.errors())
