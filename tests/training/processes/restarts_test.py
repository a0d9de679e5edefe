"""What a restart cost, by phase."""

import json
import time

from xlflax.launch import processes
from xlflax.training.processes import activities, restarts


class _Clock:
  now = 0.0

  def __call__(self):
    return self.now


def _restart(told, clock):
  at = activities.Activities(clock)
  clock.now += 2  # restoring
  environment = {processes.RESTART: json.dumps(told)} if told else {}
  return at, restarts.Restart(environment, at, 7)


def test_phases_of_a_restart():
  now, clock = time.time(), _Clock()
  at, restart = _restart({'noticed': now - 10, 'started': now - 9}, clock)
  at.begin(activities.Activity.COMPILATION)
  clock.now += 3
  at.begin(activities.Activity.STEP)
  assert restart.costs(7) is None  # not past it yet
  costs = restart.costs(8)
  assert costs['agree'] == 1
  assert (costs['restore'], costs['compile']) == (2, 3)
  assert abs(costs['start'] - 7) < 1 and abs(costs['lost'] - 10) < 1
  phases = sum(costs.values()) - costs['lost']
  assert abs(phases - costs['lost']) < 1e-6
  assert restart.costs(9) is None  # told once


def test_a_first_start_cost_nothing():
  _, restart = _restart(None, _Clock())
  assert restart.costs(100) is None
