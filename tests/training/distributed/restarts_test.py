"""Tests of the cost of a restart by phase."""

import json
import time

from xlflax.launch import supervisor
from xlflax.training.distributed import goodput, restarts


class _Clock:
  now = 0.0

  def __call__(self):
    return self.now


def _restart(failures, clock, records=({'step': 7},)):
  at = goodput.Activities(clock)
  clock.now += 2  # restoring
  environment = (
    {supervisor.RESTART_VARIABLE: json.dumps(failures)} if failures else {}
  )
  return at, restarts.Restart(environment, at, records)


def _failure(timestamp: float, description: str = 'process 2 on n1') -> dict:
  return {
    'failure': description,
    'noticed': timestamp,
    'started': timestamp + 1,
  }


def test_restart_costs_are_reported_by_phase():
  start_time, clock = time.time(), _Clock()
  at, restart = _restart([_failure(start_time - 10)], clock)
  at.start(goodput.Activity.COMPILATION)
  clock.now += 3
  at.start(goodput.Activity.STEP)
  assert restart.costs(7) is None  # The lost steps are not repeated yet.
  costs = restart.costs(8)
  assert costs['agree'] == 1
  assert (costs['restore'], costs['compile']) == (2, 3)
  assert abs(costs['start'] - 7) < 1 and abs(costs['lost'] - 10) < 1
  phases = ('agree', 'start', 'restore', 'compile', 'repeat')
  assert abs(sum(costs[name] for name in phases) - costs['lost']) < 1e-6
  assert (costs['generation'], costs['failure']) == (1, 'process 2 on n1')
  assert 0 <= costs['processor/compile'] < 1 < costs['processor/start']
  assert restart.costs(9) is None  # reported once
  text = restarts.format_restart_costs(costs)
  assert 'lost by failure 1 (process 2 on n1): agree 1.0 s, start' in text


def test_costs_include_failures_before_the_lost_steps_are_repeated():
  start_time = time.time()
  failures = [_failure(start_time - t, f'at {t}') for t in (90, 30, 10)]
  records = [{'step': 4, 'restart': {'noticed': start_time - 90}}, {'step': 9}]
  _, restart = _restart(failures, _Clock(), records)
  costs = restart.costs(10)
  assert costs['failure'] == 'at 30; at 10' and costs['generation'] == 2
  assert abs(costs['lost'] - 30) < 1 and costs['agree'] == 1


def test_first_start_has_no_restart_costs():
  _, restart = _restart(None, _Clock())
  assert restart.costs(100) is None
