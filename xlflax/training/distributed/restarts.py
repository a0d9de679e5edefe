"""Time lost when a run's processes fail, by phase of the restart.

A launcher that restarts the processes passes the failures, and the times at
which it noticed them and started the new processes, in an environment variable.
The durations of the other phases are measured in this process.
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.launch import supervisor
from xlflax.training.distributed import goodput

_COMPILATION = goodput.Activity.COMPILATION


class Restart:
  """Measurement of the time that a run lost to failures of its processes.

  The object must be created at the end of the activity `START`.

  Args:
    environment: This process's environment variables.
    activities: Record of the time that the run spends on each activity.
    records: Lines of `metrics.jsonl` up to the failure, which include the costs
      of earlier restarts.
  """

  def __init__(
    self,
    environment: Mapping[str, str],
    activities: goodput.Activities,
    records: Sequence[Mapping[str, Any]],
  ):
    reported = json.loads(environment.get(supervisor.RESTART_VARIABLE, '[]'))
    recorded = [record['restart'] for record in records if 'restart' in record]
    last_noticed = max(
      (failure['noticed'] for failure in recorded), default=0.0
    )
    # Failures before the lost steps of an earlier failure were repeated are
    # added to it.
    self._failures = [
      failure for failure in reported if failure['noticed'] > last_noticed
    ]
    self._generation = 1 + len(recorded)
    self._last_step = max((record['step'] for record in records), default=0)
    self._activities = activities
    self._compile_seconds = activities.seconds()['compilation']
    self._compile_cpu_seconds = activities.cpu_seconds(_COMPILATION)
    self._restore_seconds = activities.clock() - activities.since
    self._restored_time = time.time()
    self._restored_cpu_time = time.process_time()

  def costs(self, step: int) -> dict[str, float | str] | None:
    """Returns the seconds lost to failures, by phase of the restart.

    The costs are known once the lost steps have been repeated. Values with the
    prefix 'processor/' are CPU seconds of this process.

    Args:
      step: Number of completed steps.

    Returns:
      The costs. None if there was no failure, the lost steps are not repeated
      yet, or the costs have been returned before.
    """
    if not self._failures or step <= self._last_step:
      return None
    failures, self._failures = self._failures, []
    started, noticed = failures[-1]['started'], failures[-1]['noticed']
    current_time, current_cpu_time = time.time(), time.process_time()
    compile_seconds = (
      self._activities.seconds()['compilation'] - self._compile_seconds
    )
    compile_cpu_seconds = (
      self._activities.cpu_seconds(_COMPILATION) - self._compile_cpu_seconds
    )
    return {
      'generation': self._generation,
      'failure': '; '.join(failure['failure'] for failure in failures),
      'noticed': noticed,
      'agree': started - noticed,
      'start': self._restored_time - self._restore_seconds - started,
      'restore': self._restore_seconds,
      'compile': compile_seconds,
      'repeat': current_time - self._restored_time - compile_seconds,
      'lost': current_time - failures[0]['noticed'],
      'processor/start': self._restored_cpu_time,
      'processor/compile': compile_cpu_seconds,
      'processor/repeat': current_cpu_time
      - self._restored_cpu_time
      - compile_cpu_seconds,
    }


def format_restart_costs(costs: Mapping[str, Any]) -> str:
  """Formats the costs of a restart (see `Restart.costs`) as a single line."""
  phases = ', '.join(
    f'{name} {costs[name]:.1f} s'
    for name in ('agree', 'start', 'restore', 'compile', 'repeat')
  )
  cpu_seconds = sum(
    value for name, value in costs.items() if name.startswith('processor/')
  )
  return (
    f'{costs["lost"]:.1f} s lost by failure {costs["generation"]} '
    f'({costs["failure"]}): {phases}; {cpu_seconds:.1f} CPU seconds in '
    'process 0'
  )
