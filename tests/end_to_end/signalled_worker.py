"""Runs `xlflax` with a signal: `signalled_worker.py WHEN ARGUMENTS`.

WHEN is NAME:PHASE, such as SIGTERM:save. The process sends itself the signal
once, at the start of the phase. 'none' sends no signal, and LATE:PHASE delays
the phase.
"""

import os
import signal
import sys
import time
from typing import Any

PHASES = ('start', 'restore', 'compile', 'first_step', 'save', 'end', 'leave')
# phases that are too late to save a checkpoint before the final one
TOO_LATE = ('end', 'leave')
_LATE = 2.0  # seconds


def install(when: str) -> None:
  """Sets up the signal of this process."""
  if when == 'none':
    return
  name, _, phase = when.partition(':')
  owner, method = _phase_methods()[phase]
  original = getattr(owner, method)
  remaining = [None]

  def called(*args: Any, **named: Any) -> Any:
    if remaining:
      remaining.pop()
      if name == 'LATE':
        time.sleep(_LATE)
      else:
        os.kill(os.getpid(), signal.Signals[name])
    return original(*args, **named)

  setattr(owner, method, called)


def _phase_methods() -> dict[str, tuple[Any, str]]:
  """Returns the method that is called at the start of each phase."""
  from xlflax.training import (
    metric_accumulator,
    step_compilation,
    training_run,
    training_setup,
  )
  from xlflax.training.checkpointing import checkpoints
  from xlflax.utils import process_exit

  return {
    'start': (training_setup.Setup, 'open_loaders'),
    'restore': (checkpoints.Checkpoints, 'restore_last'),
    'compile': (step_compilation.StepCompiler, 'step_of'),
    'first_step': (metric_accumulator.MetricAccumulator, 'add'),
    'save': (checkpoints.Checkpoints, 'save'),
    'end': (training_run.TrainingRun, 'summary'),
    'leave': (process_exit, 'end_command'),
  }


if __name__ == '__main__':
  from xlflax import cli

  install(sys.argv[1])
  sys.argv[1:] = sys.argv[2:]
  sys.exit(cli.main())
