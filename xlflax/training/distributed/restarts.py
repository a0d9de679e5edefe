"""Restarts: what the failure of a job's earlier processes cost, by phase.

A launcher that starts the processes again says in a variable what failed,
when it noticed that and when it started these. The rest is known here.
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.launch import supervisor
from xlflax.training.distributed import goodput

_COMPILATION = goodput.Activity.COMPILATION


class Restart:
  """A start of a run's processes after failures.

  Args:
    environment: the process's variables.
    activities: what the run is at: the end of its start.
    records: the run's metrics up to the failure; its restarts are among them.
  """

  def __init__(
    self,
    environment: Mapping[str, str],
    activities: goodput.Activities,
    records: Sequence[Mapping[str, Any]],
  ):
    reported = json.loads(environment.get(supervisor.RESTART_VARIABLE, '[]'))
    recorded = [row['restart'] for row in records if 'restart' in row]
    last = max((failure['noticed'] for failure in recorded), default=0.0)
    # A failure before the steps of an earlier one were repeated adds to it.
    self._failures = [
      failure for failure in reported if failure['noticed'] > last
    ]
    self._generation = 1 + len(recorded)
    self._step = max((row['step'] for row in records), default=0)
    self._activities = activities
    self._wall = activities.seconds()['compilation']
    self._processor = activities.processors(_COMPILATION)
    self._restoring = activities.clock() - activities.since
    self._restored = time.time(), time.process_time()

  def costs(self, step: int) -> dict[str, float | str] | None:
    """Seconds by phase, once a step is past what was lost; else None.

    Those after 'processor/' are of this process's processors.
    """
    if not self._failures or step <= self._step:
      return None
    failures, self._failures = self._failures, []
    started, noticed = failures[-1]['started'], failures[-1]['noticed']
    ended = time.time(), time.process_time()
    compiled = self._activities.seconds()['compilation'] - self._wall
    compiling = self._activities.processors(_COMPILATION) - self._processor
    before = self._restored[1]
    return {
      'generation': self._generation,
      'failure': '; '.join(failure['failure'] for failure in failures),
      'noticed': noticed,
      'agree': started - noticed,
      'start': self._restored[0] - self._restoring - started,
      'restore': self._restoring,
      'compile': compiled,
      'repeat': ended[0] - self._restored[0] - compiled,
      'lost': ended[0] - failures[0]['noticed'],
      'processor/start': before,
      'processor/compile': compiling,
      'processor/repeat': ended[1] - self._restored[1] - compiling,
    }


def format_restart_costs(costs: Mapping[str, Any]) -> str:
  """What failed and what it cost, in one line."""
  phases = ('agree', 'start', 'restore', 'compile', 'repeat')
  parts = ', '.join(f'{name} {costs[name]:.1f} s' for name in phases)
  used = sum(v for k, v in costs.items() if k.startswith('processor/'))
  return (
    f'{costs["lost"]:.1f} s lost by failure {costs["generation"]} '
    f'({costs["failure"]}): {parts}; {used:.1f} s of processor 0'
  )
