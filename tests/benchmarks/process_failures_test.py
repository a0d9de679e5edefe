"""Tests of the benchmark that measures how jobs end after process failures."""

import pytest

from benchmarks import process_failures


def test_find_message_returns_the_line_about_the_failed_process():
  outputs = [
    'Connection closed by peer\nprocess 1 of 3 on a lost the connection',
    'ValueError: a\nThese processes have failed: process 2 on b (step 5).',
  ]
  assert process_failures.find_message(outputs, 2).endswith('(step 5).')
  assert process_failures.find_message(outputs, 0).startswith('Connection')
  assert process_failures.find_message(['no failure'], 0) == ''


@pytest.mark.slow
def test_xlflax_ends_the_job_after_an_error():
  failure = process_failures.FAILURES['coordinator_error']
  outcome = process_failures.measure_failure('xlflax', failure)
  assert outcome.exit_codes == {1: 1, 2: 1}
  assert 0 < outcome.seconds < 30 and not outcome.is_training
  assert 'injected' in outcome.message


@pytest.mark.slow
def test_plain_jax_trains_with_different_configurations():
  failure = process_failures.FAILURES['configuration']
  outcome = process_failures.measure_failure('jax', failure)
  assert outcome.is_training and outcome.exit_codes == {0: None, 2: None}
