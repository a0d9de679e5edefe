"""A process of a job that exchanges a number in each step, for tests.

Its argument is a JSON object: arguments of `distributed.initialize`, and
`result_path`, `versions` of packages, a `fault` at step 20,
`signal_at_start`, and `delay`, the seconds between joining the job and
training. It prints 'step 5' once, and writes the step at which it
stops, or its error, to `result_path` as JSON.
"""

import json
import os
import pathlib
import signal
import sys
import time

import jax
import numpy as np

from xlflax.training.distributed import distributed_job, joining, preemption
from xlflax.utils import errors

_FAULT_STEP = 20
_LAST_STEP = 2000


def _train(fault: str) -> int:
  from jax.experimental import multihost_utils

  step = 0
  distributed_job.set_exit_messages(
    lambda: 'Last checkpoint: 4.', lambda: f'training (step {step})'
  )
  with preemption.StopRequest() as stop:
    while step < _LAST_STEP and not stop.should_stop():
      multihost_utils.process_allgather(np.array([step]))
      step += 1
      if step == 5:
        print('step 5', flush=True)
      if step == _FAULT_STEP:
        _fail(fault)
      time.sleep(0.02)
  return step


def _fail(fault: str) -> None:
  if fault == 'bug':
    raise ZeroDivisionError('a bug')
  if fault == 'mistake':
    raise errors.CorpusError('No text', got='nothing')
  if fault == 'hang':
    distributed_job.end_job(
      errors.TrainingError('A hang', status=errors.ExitStatus.FAILURE)
    )


def main(text: str) -> int:
  options = json.loads(text)
  result_path = pathlib.Path(options.pop('result_path'))
  jax.config.update('jax_platforms', 'cpu')
  fault, versions = options.pop('fault', ''), options.pop('versions', {})
  signal_at_start = options.pop('signal_at_start', False)
  delay = options.pop('delay', 0)
  package_versions = joining.package_versions()
  joining.package_versions = lambda: package_versions | versions
  try:
    with distributed_job.leaving_together('train'):
      distributed_job.initialize_distributed(**options)
      if signal_at_start:
        from xlflax.utils import signals

        signals.note_signal(signal.SIGUSR1)
      time.sleep(delay)
      step = _train(fault)
      result_path.write_text(json.dumps({'stopped_at': step}))
  except errors.XlflaxError as error:
    result = {'error': error.parts, 'class': type(error).__name__}
    result_path.write_text(json.dumps(result))
    return error.status
  return 0


if __name__ == '__main__':
  signal.signal(signal.SIGUSR1, signal.SIG_IGN)
  os.environ.setdefault('JAX_PLATFORMS', 'cpu')
  sys.exit(main(sys.argv[1]))
