"""Several processes on this machine, started, watched and ended together."""

import contextlib
import ctypes
import dataclasses
import logging
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO

from xlflax import errors
from xlflax.launch import job as job_lib

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
_LOOK_EVERY = 0.1  # seconds
_SHOWN_LINES = 60  # of the log of a process that failed
_PR_SET_PDEATHSIG = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalJob:
  """A job on this machine.

  Attributes:
    command: what each process runs, such as ('train', '--model_dir=runs/a').
    num_processes: how many.
    cpu_devices: force so many CPU devices for each process; None takes the
      GPUs, shared equally, or one CPU device where there is none.
    logs: folder of a log for each process.
    port: of process 0 for the others; None takes a free one.
    grace_seconds: how long the others may take to end after a failure.
    program: what runs the command.
  """

  command: tuple[str, ...]
  num_processes: int
  cpu_devices: int | None = None
  logs: pathlib.Path = pathlib.Path('logs')
  port: int | None = None
  grace_seconds: float = 10.0
  program: tuple[str, ...] = (sys.executable, '-m', 'xlflax.cli')

  def __post_init__(self):
    devices = 1 if self.cpu_devices is None else self.cpu_devices
    if self.num_processes < 1 or devices < 1:
      raise errors.ConfigError(
        'A job needs processes and devices',
        got=f'num_processes={self.num_processes}, '
        f'cpu_devices={self.cpu_devices}',
        expected='1 or more',
      )

  def log(self, process_id: int) -> pathlib.Path:
    return self.logs / f'process_{process_id}.log'

  def arguments(self, process_id: int, port: int) -> list[str]:
    """The command line of a process, after `xlflax`."""
    return [
      *self.command,
      f'--coordinator=localhost:{port}',
      f'--num_processes={self.num_processes}',
      f'--process_id={process_id}',
      f'--stopped_status={job_lib.STOPPED}',
    ]

  def variables(self, process_id: int, gpus: Sequence[str]) -> dict[str, str]:
    """What a process's environment has beyond the launcher's.

    Raises:
      ConfigError: the GPUs can't be shared equally.
    """
    if self.cpu_devices is None and gpus:
      if len(gpus) % self.num_processes:
        raise errors.ConfigError(
          "The processes can't share the GPUs equally",
          got=f'{self.num_processes} processes, {len(gpus)} GPUs',
          fix='start another number of processes, set CUDA_VISIBLE_DEVICES, '
          'or give --cpu_devices',
        )
      share = len(gpus) // self.num_processes
      own = gpus[process_id * share : (process_id + 1) * share]
      return {'CUDA_VISIBLE_DEVICES': ','.join(own)}
    return {
      'JAX_PLATFORMS': 'cpu',
      'JAX_NUM_CPU_DEVICES': str(self.cpu_devices or 1),
    }


def gpus(environment: Mapping[str, str]) -> list[str]:
  """Names of the GPUs that may be used, for CUDA_VISIBLE_DEVICES."""
  if environment.get('JAX_PLATFORMS') == 'cpu':
    return []
  if (listed := environment.get('CUDA_VISIBLE_DEVICES')) is not None:
    return [name for name in listed.split(',') if name]
  if not shutil.which('nvidia-smi'):
    return []
  shown = subprocess.run(
    ['nvidia-smi', '--query-gpu=index', '--format=csv,noheader'],
    capture_output=True,
    text=True,
    check=False,
  )
  return shown.stdout.split() if shown.returncode == 0 else []


def free_port() -> int:
  with socket.socket() as listener:
    listener.bind(('', 0))
    return listener.getsockname()[1]


def run(job: LocalJob, *, restarts: int = 0) -> int:
  """Runs a job to its end; a failed one is started again, if asked.

  Args:
    job: the job.
    restarts: how often it is started again after a failure that is no user's
      mistake; it continues from its last checkpoint.

  Returns:
    0 after success or an orderly stop; otherwise the status of the process
    that failed first, as a shell would give it.
  """
  attempt = 0
  while True:
    with _Running(job) as running:
      status = running.wait()
    if status in (0, job_lib.STOPPED):
      return 0
    mistake = status == 2 or running.asked_to_stop
    if mistake or attempt >= restarts:
      return status
    attempt += 1
    logging.warning('Starting the job again (%d of %d).', attempt, restarts)


class _Running:
  """The processes of one attempt; a context manager."""

  def __init__(self, job: LocalJob):
    self._job = job
    self._processes: list[subprocess.Popen] = []
    self._previous: dict[int, object] = {}
    self.asked_to_stop = False

  def __enter__(self) -> '_Running':
    for number in PASSED_ON:
      self._previous[number] = signal.signal(number, self._pass_on)
    try:
      self._start()
    except BaseException:
      self.__exit__()
      raise
    return self

  def __exit__(self, *exc) -> None:
    self._kill()
    for number, handler in self._previous.items():
      signal.signal(number, handler)  # type: ignore[arg-type]

  def _start(self) -> None:
    job = self._job
    port = job.port or free_port()
    names = gpus(os.environ)
    job.logs.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {'PYTHONUNBUFFERED': '1'}
    for i in range(job.num_processes):
      with job.log(i).open('wb') as log:
        self._processes.append(
          subprocess.Popen(
            [*job.program, *job.arguments(i, port)],
            env=environment | job.variables(i, names),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,
          )
        )
    logging.info(
      'Started %d processes (%s), logs in %s; this is process 0:',
      job.num_processes,
      ', '.join(str(p.pid) for p in self._processes),
      job.logs,
    )

  def _pass_on(self, number, frame) -> None:
    del frame
    self.asked_to_stop = True
    logging.warning(
      '%s passed on to all processes.', signal.Signals(number).name
    )
    for process in self._processes:
      with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)

  def wait(self) -> int:
    """Shows process 0's log; the status of the job when all have ended."""
    with self._job.log(0).open('rb') as log:
      while True:
        running = [p for p in self._processes if p.poll() is None]
        _show(log)
        failed = self._first_failed()
        if failed is not None:
          return self._end_after(failed, log)
        if not running:
          statuses = {p.returncode for p in self._processes}
          return job_lib.STOPPED if job_lib.STOPPED in statuses else 0
        time.sleep(_LOOK_EVERY)

  def _first_failed(self) -> int | None:
    return next(
      (
        i
        for i, p in enumerate(self._processes)
        if p.returncode not in (None, 0, job_lib.STOPPED)
      ),
      None,
    )

  def _end_after(self, failed: int, log: IO[bytes]) -> int:
    """Ends the others, and says what happened."""
    code = self._processes[failed].returncode
    logging.error(
      'Process %d of %d %s; ending the others.',
      failed,
      self._job.num_processes,
      _how(code),
    )
    end = time.monotonic() + self._job.grace_seconds
    while time.monotonic() < end and any(
      p.poll() is None for p in self._processes
    ):
      time.sleep(_LOOK_EVERY)
    self._kill()
    _show(log)
    if failed:
      self._show_end_of(failed)
    step = job_lib.last_checkpoint(job_lib.model_dir(self._job.command))
    logging.error(
      'The job failed. %s The logs of all processes are in %s.',
      'There is no checkpoint yet.'
      if step is None
      else f'Started again, it continues from the checkpoint of step {step}.',
      self._job.logs,
    )
    return 128 - code if code < 0 else code

  def _show_end_of(self, failed: int) -> None:
    path = self._job.log(failed)
    lines = path.read_text(errors='replace').splitlines()[-_SHOWN_LINES:]
    print(
      f'--- the end of {path}',
      *lines,
      '---',
      sep='\n',
      file=sys.stderr,
      flush=True,
    )

  def _kill(self) -> None:
    for process in self._processes:
      if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
          os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def die_with_parent() -> None:
  """Lets Linux send this process SIGTERM if its parent is killed."""
  if sys.platform == 'linux':
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _how(code: int) -> str:
  if code < 0:
    return f'was killed by {signal.Signals(-code).name}'
  return f'failed with status {code}'


def _show(log: IO[bytes]) -> None:
  """Prints what is new in a log."""
  text = log.read()
  if text:
    sys.stdout.write(text.decode(errors='replace'))
    sys.stdout.flush()


def rendered(job: LocalJob) -> str:
  """The processes' command lines, for a person to read."""
  port = job.port or 12345
  names = gpus(os.environ)
  lines = []
  for i in range(job.num_processes):
    variables = ' '.join(
      f'{k}={shlex.quote(v)}' for k, v in job.variables(i, names).items()
    )
    command = shlex.join(['xlflax', *job.arguments(i, port)])
    lines.append(f'{variables} {command} > {job.log(i)} 2>&1 &')
  return '\n'.join([*lines, 'wait'])
