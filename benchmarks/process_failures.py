"""Time until a job ends after the failure of one of its processes.

  python -m benchmarks.process_failures
  python -m benchmarks.process_failures --failures worker_killed --rounds 3

Jobs of three CPU processes on this machine all-gather a number every 20 ms. One
failure is injected into each job. The benchmark measures the time until the
remaining processes have exited, and reports their exit codes and the first line
of their output that identifies the failure. Each failure is injected into two
jobs: one that calls `jax.distributed` alone, and one that uses xlflax's
distributed runtime.
"""

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.launch import supervisor

_NUM_PROCESSES = 3
_HEARTBEAT_TIMEOUT_SECONDS = 10
_INITIALIZATION_TIMEOUT_SECONDS = 15
# Longest time for which the benchmark waits for the remaining processes.
_MAX_SECONDS = 60
_NUM_STARTUP_STEPS = 5
_TRAINS = 'The process trains.'
_LIBRARIES = ('jax', 'xlflax')


@dataclasses.dataclass(frozen=True)
class Failure:
  """A failure that is injected into one process or all processes of a job.

  Attributes:
    description: Description of the failure, for the table.
    process_id: Index of the failing process. If None, all processes are
      affected.
    at_startup: Whether the failure occurs before training.
    sent_signal: Signal that is sent to the failing process. Without a signal,
      the process raises an error, unless the failure occurs at startup.
    is_missing: Whether the failing process is never started.
    options: Additional settings of the failing process (see `run_worker`).
    environment: Environment variables of all processes. `{port}` is replaced
      by a TCP port that is not in use.
  """

  description: str
  process_id: int | None
  at_startup: bool = False
  sent_signal: signal.Signals | None = None
  is_missing: bool = False
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


FAILURES = {
  'worker_killed': Failure('worker killed', 2, sent_signal=signal.SIGKILL),
  'coordinator_killed': Failure(
    'process 0 killed', 0, sent_signal=signal.SIGKILL
  ),
  'worker_frozen': Failure(
    'worker frozen (SIGSTOP)', 2, sent_signal=signal.SIGSTOP
  ),
  'coordinator_frozen': Failure(
    'process 0 frozen', 0, sent_signal=signal.SIGSTOP
  ),
  'worker_error': Failure('error in process 2', 2),
  'coordinator_error': Failure('error in process 0', 0),
  'worker_missing': Failure(
    'a worker never starts', 2, at_startup=True, is_missing=True
  ),
  'coordinator_missing': Failure(
    'process 0 never starts', 0, at_startup=True, is_missing=True
  ),
  'process_count': Failure(
    'a different number of processes',
    1,
    at_startup=True,
    options={'num_processes': 4},
  ),
  'configuration': Failure(
    'a different configuration',
    1,
    at_startup=True,
    options={'configuration': 'STEPS = 3'},
  ),
  'proxy': Failure(
    '`http_proxy` that does not respond',
    None,
    at_startup=True,
    environment={'http_proxy': 'http://127.0.0.1:{port}'},
  ),
}


@dataclasses.dataclass(frozen=True)
class Outcome:
  """Result of a job into which a failure was injected.

  Attributes:
    seconds: Time in seconds from the failure to the exit of the last remaining
      process, or until the benchmark stops waiting. If the failure occurs at
      startup, the time is measured from the start of the processes.
    exit_codes: Map from the number of each remaining process to its exit code,
      or to None if the process was still running.
    is_training: Whether the job trained despite the failure.
    message: Line of a remaining process's output that identifies the failure.
  """

  seconds: float
  exit_codes: dict[int, int | None]
  is_training: bool
  message: str


class Job:
  """Worker processes of a job, and their output files.

  Args:
    library: Library that connects the processes: 'jax' or 'xlflax'.
    failure: Failure to inject into the job.
    directory: Directory for the output of the processes.

  Attributes:
    start_time: Time at which the first process was started, in seconds, as
      returned by `time.monotonic`.
  """

  def __init__(self, library: str, failure: Failure, directory: pathlib.Path):
    self._failure = failure
    self._failure_path = directory / 'fail'
    self._processes: dict[int, subprocess.Popen] = {}
    self._paths: dict[int, pathlib.Path] = {}
    self.start_time = time.monotonic()
    address = f'127.0.0.1:{supervisor.free_port()}'
    environment = {
      name: value
      for name, value in os.environ.items()
      if 'proxy' not in name.lower()
    } | {'JAX_PLATFORMS': 'cpu'}
    for name, value in failure.environment.items():
      environment[name] = value.format(port=supervisor.free_port())
    for process_id in range(_NUM_PROCESSES):
      is_failing = process_id == failure.process_id
      if is_failing and failure.is_missing:
        continue
      options = {
        'library': library,
        'address': address,
        'num_processes': _NUM_PROCESSES,
        'process_id': process_id,
        'configuration': 'STEPS = 2',
        'failure_path': str(
          self._failure_path if is_failing else directory / 'none'
        ),
      }
      if is_failing:
        options |= failure.options
      self._paths[process_id] = directory / f'{process_id}.log'
      with self._paths[process_id].open('w') as log:
        self._processes[process_id] = subprocess.Popen(
          [
            sys.executable,
            '-m',
            'benchmarks.process_failures',
            f'--worker={json.dumps(options)}',
          ],
          env=environment,
          stdout=log,
          stderr=log,
        )

  def wait_for_steps(self) -> bool:
    """Waits until all processes are training or a process has exited.

    The wait ends at the latest `_MAX_SECONDS` after the start of the job.

    Returns:
      Whether all processes are training. False if this limit is reached first,
      or if the failing process was not started.
    """
    while time.monotonic() - self.start_time < _MAX_SECONDS:
      if all(_TRAINS in path.read_text() for path in self._paths.values()):
        return len(self._paths) == _NUM_PROCESSES
      if any(
        process.poll() is not None for process in self._processes.values()
      ):
        return False
      time.sleep(0.05)
    return False

  def inject_failure(self) -> float:
    """Injects the job's failure, and returns the time of the injection.

    The failing process receives the failure's signal or raises an error.
    """
    if self._failure.sent_signal is None:
      self._failure_path.touch()
    else:
      process = self._processes[self._failure.process_id]
      process.send_signal(self._failure.sent_signal)
    return time.monotonic()

  def wait(self, failure_time: float, *, is_training: bool = False) -> Outcome:
    """Waits until all processes except the failing process have exited.

    The wait ends after `_MAX_SECONDS` at the latest.

    Args:
      failure_time: Time of the failure in seconds, as returned by
        `time.monotonic`.
      is_training: Whether the job trains despite the failure. In this case, the
        method does not wait.
    """
    remaining = {
      process_id: process
      for process_id, process in self._processes.items()
      if process_id != self._failure.process_id
    }
    while not is_training and time.monotonic() - failure_time < _MAX_SECONDS:
      if all(process.poll() is not None for process in remaining.values()):
        break
      time.sleep(0.02)
    return Outcome(
      seconds=time.monotonic() - failure_time,
      exit_codes={i: process.poll() for i, process in remaining.items()},
      is_training=is_training,
      message=find_message(
        [self._paths[i].read_text() for i in remaining],
        self._failure.process_id,
      ),
    )

  def output(self) -> str:
    """Returns the output of all processes."""
    return '\n'.join(path.read_text() for path in self._paths.values())

  def close(self) -> None:
    """Kills all processes that are still running."""
    for process in self._processes.values():
      process.kill()
      process.wait()


# Patterns of lines that identify a failure, from the most to the least
# informative. The first pattern names the failed process.
_MESSAGE_PATTERNS = (
  r'.*process {process_id} (?:of \d+ )?on .*',
  r'.*(?:leader|Missing|missing|unhealthy|[Hh]eartbeat|Connection closed).*',
  r'.*(?:Error|DEADLINE|UNAVAILABLE).*',
)


def find_message(outputs: Sequence[str], process_id: int | None) -> str:
  """Returns the output line that identifies the failed process most clearly.

  Args:
    outputs: Standard output and error of each remaining process.
    process_id: Number of the failed process.

  Returns:
    The first line that matches the most informative pattern, or an empty string
    if no line matches.
  """
  for pattern in _MESSAGE_PATTERNS:
    for output in outputs:
      match = re.search(pattern.format(process_id=process_id), output)
      if match:
        return match[0].strip()
  return ''


def measure_failure(library: str, failure: Failure) -> Outcome:
  """Injects a failure into a new job.

  Args:
    library: Library that connects the processes: 'jax' or 'xlflax'.
    failure: Failure to inject.

  Returns:
    The outcome.

  Raises:
    RuntimeError: If the job does not start to train before the failure.
  """
  with tempfile.TemporaryDirectory() as directory:
    job = Job(library, failure, pathlib.Path(directory))
    try:
      is_training = job.wait_for_steps()
      if failure.at_startup:
        return job.wait(job.start_time, is_training=is_training)
      if not is_training:
        raise RuntimeError(f'The job did not start: {job.output()}')
      return job.wait(job.inject_failure())
    finally:
      job.close()


def run_worker(options: Mapping[str, Any]) -> int:
  """Runs one worker process of a job until it is killed or fails.

  Args:
    options: Settings of the process, such as 'library' and 'process_id', as
      passed by `Job`.

  Returns:
    The exit code.
  """
  import jax

  jax.config.update('jax_platforms', 'cpu')
  if options['library'] == 'jax':
    jax.distributed.initialize(
      options['address'],
      options['num_processes'],
      options['process_id'],
      initialization_timeout=_INITIALIZATION_TIMEOUT_SECONDS,
      heartbeat_timeout_seconds=_HEARTBEAT_TIMEOUT_SECONDS,
    )
    _gather_numbers(pathlib.Path(options['failure_path']))
    return 0
  from xlflax.training.distributed import distributed_job
  from xlflax.utils import errors

  try:
    with distributed_job.leaving_together('train'):
      distributed_job.initialize_distributed(
        coordinator_address=options['address'],
        num_processes=options['num_processes'],
        process_id=options['process_id'],
        configuration=options['configuration'],
        initialization_timeout=_INITIALIZATION_TIMEOUT_SECONDS,
        heartbeat_timeout_seconds=_HEARTBEAT_TIMEOUT_SECONDS,
      )
      _gather_numbers(pathlib.Path(options['failure_path']))
  except errors.XlflaxError as error:
    print(error, flush=True)
    return error.status
  return 0


def _gather_numbers(failure_path: pathlib.Path) -> None:
  """All-gathers numbers until a file exists, and raises an error then."""
  import numpy as np
  from jax.experimental import multihost_utils

  for step in itertools.count():
    multihost_utils.process_allgather(np.array([step]))
    if step == _NUM_STARTUP_STEPS:
      print(_TRAINS, flush=True)
    if failure_path.exists():
      raise ValueError('The benchmark makes this process fail.')
    time.sleep(0.02)


def _format_outcomes(outcomes: Sequence[Outcome]) -> str:
  """Formats the times and the exit codes of repeated measurements."""
  codes = sorted(
    {code for outcome in outcomes for code in outcome.exit_codes.values()},
    key=str,
  )
  if None in codes:
    if all(outcome.is_training for outcome in outcomes):
      return 'trains'
    return f'more than {_MAX_SECONDS} s'
  seconds = [outcome.seconds for outcome in outcomes]
  times = ' to '.join(
    dict.fromkeys(f'{value:.1f}' for value in (min(seconds), max(seconds)))
  )
  # A negative exit code is the number of the signal that ended the process,
  # for which a shell reports 128 more.
  shell_codes = [128 - code if code < 0 else code for code in codes]
  return f'{times} s, {" or ".join(map(str, shell_codes))}'


def main() -> None:
  """Runs the benchmark or, in a subprocess, one worker process of a job."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument(
    '--failures',
    default=','.join(FAILURES),
    help='Comma-separated names of the failures. By default, all failures.',
  )
  parser.add_argument(
    '--rounds', type=int, default=1, help='Number of jobs per failure.'
  )
  parser.add_argument(
    '--output', type=pathlib.Path, help='JSON file for all outcomes.'
  )
  parser.add_argument('--worker', help=argparse.SUPPRESS)
  arguments = parser.parse_args()
  if arguments.worker:
    sys.exit(run_worker(json.loads(arguments.worker)))
  results: dict[str, dict[str, list[Outcome]]] = {}
  print('| failure | JAX alone | xlflax |\n| --- | --- | --- |')
  for name in arguments.failures.split(','):
    failure = FAILURES[name]
    results[name] = {library: [] for library in _LIBRARIES}
    for _ in range(arguments.rounds):
      for library, outcomes in results[name].items():
        outcomes.append(measure_failure(library, failure))
    cells = [_format_outcomes(outcomes) for outcomes in results[name].values()]
    print(f'| {failure.description} | {" | ".join(cells)} |', flush=True)
  for name, outcomes_of_libraries in results.items():
    for library, outcomes in outcomes_of_libraries.items():
      print(f'{name}, {library}: {outcomes[0].message}')
  if arguments.output:
    arguments.output.write_text(
      json.dumps(
        results, default=dataclasses.asdict, indent=2, ensure_ascii=False
      )
    )


if __name__ == '__main__':
  main()
