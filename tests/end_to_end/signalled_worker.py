"""`xlflax ...` that a signal reaches: `signalled_worker.py WHEN ARGUMENTS`.

WHEN is NAME:PHASE, such as SIGTERM:save: the process sends itself the signal
at the beginning of the phase, once; 'none' sends none. LATE:PHASE is late.
"""

import os
import signal
import sys
import time
from typing import Any

PHASES = ('start', 'restore', 'compile', 'first_step', 'save', 'end', 'leave')
TOO_LATE = ('end', 'leave')  # for a checkpoint before the last one
_LATE = 2.0  # seconds


def install(when: str) -> None:
  """Has this process send itself a signal."""
  if when == 'none':
    return
  name, _, phase = when.partition(':')
  owner, method = _places()[phase]
  plain = getattr(owner, method)
  left = [None]

  def called(*args: Any, **named: Any) -> Any:
    if left:
      left.pop()
      if name == 'LATE':
        time.sleep(_LATE)
      else:
        os.kill(os.getpid(), signal.Signals[name])
    return plain(*args, **named)

  setattr(owner, method, called)


def _places() -> dict[str, tuple[Any, str]]:
  """Phase -> what is called at its beginning."""
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
