"""Tests of processes that cannot join a job."""

import socket

import pytest

_HOST = socket.gethostname()
_FAILURE = 74


def test_missing_process_is_reported(start_job):
  job = start_job({}, {}, num_processes=3, initialization_timeout=5)
  assert job.exit_codes() == [_FAILURE] * 2, job.errors()
  for index, text in enumerate(job.errors()):
    assert 'missing: 2' in text and f'process {index} on {_HOST}' in text
    assert 'Check failure stack trace' not in text


@pytest.mark.slow
def test_missing_coordinator_is_reported(start_job):
  job = start_job(
    {'process_id': 1},
    {'process_id': 2},
    num_processes=3,
    initialization_timeout=5,
  )
  assert job.exit_codes() == [_FAILURE] * 2, job.errors()
  assert all('coordinator 127.0.0.1:' in text for text in job.errors())


def _errors(job):
  assert job.exit_codes() == [2] * len(job.processes), job.errors()
  results = job.results()
  assert {result['class'] for result in results} == {'ConfigError'}
  # All processes raise the same error.
  assert len({str(result['error']) for result in results}) == 1
  return results[0]['error']


def test_different_configurations_are_reported(start_job):
  job = start_job(
    {'configuration': 'LR = 1\nSTEPS = 2'},
    {'configuration': 'LR = 1\nSTEPS = 3'},
  )
  error = _errors(job)
  assert error['got'].split('\n')[1:5] == [
    f'--- process 0 on {_HOST}',
    f'+++ process 1 on {_HOST}',
    '-STEPS = 2',
    '+STEPS = 3',
  ]


@pytest.mark.slow
def test_different_numbers_of_processes_are_reported(start_job):
  """JAX accepts such processes, and their collectives would be wrong."""
  error = _errors(start_job({'num_processes': 2}, {'num_processes': 3}))
  assert error['got'].startswith(f'2 in process 0 on {_HOST}, 3 in process 1')


@pytest.mark.slow
def test_different_package_versions_are_reported(start_job):
  error = _errors(start_job({}, {'versions': {'jax': '9.9'}}))
  assert 'jax 9.9' in error['got'] and 'process 1' in error['got']


@pytest.mark.slow
def test_duplicate_process_ids_fail(start_job):
  job = start_job(
    {}, {}, {'process_id': 1}, num_processes=3, initialization_timeout=10
  )
  codes = job.exit_codes()
  assert codes[0] == _FAILURE and sorted(codes[1:]) == [2, _FAILURE]


@pytest.mark.slow
def test_coordinator_port_in_use_is_reported(start_job):
  with socket.create_server(('127.0.0.1', 0)) as server:
    address = f'127.0.0.1:{server.getsockname()[1]}'
    job = start_job(
      {}, {}, coordinator_address=address, initialization_timeout=5
    )
    assert job.exit_codes() == [_FAILURE] * 2, job.errors()
  # Process 0 raises an error of JAX; process 1 is aborted by JAX.
  assert address in job.results()[0]['error']['where']
  assert address in job.errors()[1]
