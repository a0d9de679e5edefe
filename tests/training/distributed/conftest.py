"""Fixtures that start jobs of several processes."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.end_to_end.conftest import free_port

_ROOT = pathlib.Path(__file__).parents[3]
_WORKER = pathlib.Path(__file__).with_name('job_worker.py')
_STARTUP_SECONDS = 90


class Job:
  """Processes that run `job_worker`.

  Args:
    directory: Directory for the output and result files of the processes.
    processes: Arguments of each process, in addition to the coordinator's
      address.
    environment: Environment variables that are set in addition to the current
      ones.
  """

  def __init__(self, directory: pathlib.Path, processes, **environment: str):
    self._paths = [
      (directory / f'{i}.out', directory / f'{i}.err')
      for i in range(len(processes))
    ]
    # Gloo also writes to the standard output of the processes.
    self._result_paths = [
      directory / f'{i}.json' for i in range(len(processes))
    ]
    address = f'127.0.0.1:{free_port()}'
    self.processes = []
    for (out, err), result_path, arguments in zip(
      self._paths, self._result_paths, processes, strict=True
    ):
      with out.open('w') as stdout, err.open('w') as stderr:
        text = json.dumps(
          {'coordinator_address': address, 'result_path': str(result_path)}
          | arguments
        )
        self.processes.append(
          subprocess.Popen(
            [sys.executable, str(_WORKER), text],
            cwd=_ROOT,
            env=os.environ | {'JAX_PLATFORMS': 'cpu'} | environment,
            stdout=stdout,
            stderr=stderr,
          )
        )

  def wait_for_step(self) -> None:
    """Waits until all processes have taken five steps."""
    deadline = time.monotonic() + _STARTUP_SECONDS
    while not all('step 5' in out.read_text() for out, _ in self._paths):
      assert time.monotonic() < deadline, self.errors()
      time.sleep(0.05)

  def signal(self, index: int, number: signal.Signals) -> None:
    """Sends a signal to a process."""
    self.processes[index].send_signal(number)

  def exit_codes(
    self, indices: Sequence[int] | None = None, timeout: float = 60
  ) -> list[int]:
    """Waits for processes (default: all); returns their exit codes."""
    chosen = range(len(self.processes)) if indices is None else indices
    deadline = time.monotonic() + timeout
    return [
      self.processes[i].wait(max(deadline - time.monotonic(), 0.1))
      for i in chosen
    ]

  def errors(self) -> list[str]:
    """Returns what each process has written to standard error."""
    return [err.read_text() for _, err in self._paths]

  def results(self) -> list[dict[str, Any]]:
    """Returns the result of each process; `{}` if it has none."""
    return [
      json.loads(path.read_text()) if path.exists() else {}
      for path in self._result_paths
    ]

  def close(self) -> None:
    for process in self.processes:
      if process.poll() is None:
        process.kill()
        process.wait()


@pytest.fixture
def start_job(tmp_path):
  """Returns a function that starts jobs. Its arguments are those of the processes."""
  jobs = []

  def start(*processes: dict[str, Any], environment=None, **common) -> Job:
    defaults = {
      'num_processes': len(processes),
      'initialization_timeout': 60,
      'heartbeat_timeout_seconds': 10,
    }
    arguments = [
      defaults | {'process_id': i} | common | arguments_of_process
      for i, arguments_of_process in enumerate(processes)
    ]
    directory = tmp_path / f'job{len(jobs)}'
    directory.mkdir()
    jobs.append(Job(directory, arguments, **(environment or {})))
    return jobs[-1]

  yield start
  for job in jobs:
    job.close()
