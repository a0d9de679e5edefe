"""Restarts: what the failure of a job's earlier processes cost, by phase.

A launcher that starts the processes again says in a variable when it noticed
the failure and when it started these. The rest is known here.
"""

import json
import time
from collections.abc import Mapping

from xlflax.launch import processes
from xlflax.training.processes import activities as activities_lib


class Restart:
  """A start of a run's processes after a failure.

  Args:
    environment: the process's variables.
    activities: what the run is at: the end of its start.
    step: the last one that was reported before the failure.
  """

  def __init__(
    self,
    environment: Mapping[str, str],
    activities: activities_lib.Activities,
    step: int,
  ):
    text = environment.get(processes.RESTART)
    self._told: dict[str, float] | None = json.loads(text) if text else None
    self._activities, self._step = activities, step
    self._compiled = activities.seconds()['compilation']
    self._restoring = activities.clock() - activities.since
    self._restored = time.time()

  def costs(self, step: int) -> dict[str, float] | None:
    """Seconds by phase, once a step is past what was lost; else None."""
    if self._told is None or step <= self._step:
      return None
    now = time.time()
    compiled = self._activities.seconds()['compilation'] - self._compiled
    noticed, started = self._told['noticed'], self._told['started']
    self._told = None
    return {
      'agree': started - noticed,
      'start': self._restored - self._restoring - started,
      'restore': self._restoring,
      'compile': compiled,
      'repeat': now - self._restored - compiled,
      'lost': now - noticed,
    }
