"""Node supervisor, which starts, monitors and restarts a node's processes.

All processes in a job end when one of them fails. The failed process's
supervisor ends the remaining processes on its node, and the processes on other
nodes end when they detect the lost process. Each supervisor then restarts the
processes on its node, and they connect to the coordinator again. Supervisors
therefore do not need to communicate with each other.
"""

import contextlib
import ctypes
import dataclasses
import json
import logging
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

from xlflax.launch import job_base
from xlflax.utils import errors, signals

# Environment variable with the earlier failures, for restarted processes.
RESTART_VARIABLE = 'XLFLAX_RESTART'
_POLL_SECONDS = 0.1
# Maximum number of lines that are printed from the log of a failed process.
_MAX_LOG_LINES = 60
# Number of consecutive polls after which a stopped process is killed.
_MAX_STOPPED_POLLS = 50
_RESTART_WINDOW_SECONDS = 3600.0
_MAX_REPORTED_FAILURES = 20
_PR_SET_PDEATHSIG = 1
# Exit statuses after a signal, in order of precedence.
_STOP_STATUSES = (errors.ExitStatus.STOPPED, errors.ExitStatus.INTERRUPTED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerProcess:
  """Command line, environment and log file of a process to start.

  Attributes:
    arguments: Command line of the process.
    environment: Variables that are added to the supervisor's environment.
    log: File to which standard output and standard error are appended.
    name: Name used in messages, such as 'Process 3 of 4'.
  """

  arguments: Sequence[str]
  environment: dict[str, str]
  log: pathlib.Path
  name: str

  def start(self, environment: dict[str, str]) -> subprocess.Popen:
    """Starts the process with additional environment variables."""
    self.log.parent.mkdir(parents=True, exist_ok=True)
    with self.log.open('ab') as log:
      return subprocess.Popen(
        self.arguments,
        env=os.environ
        | {'PYTHONUNBUFFERED': '1'}
        | environment
        | self.environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        preexec_fn=die_with_parent,
      )


def supervise(
  make_workers: Callable[[], Sequence[WorkerProcess]],
  *,
  grace_seconds: float,
  max_restarts: int = 0,
  model_dir: pathlib.Path | None = None,
) -> int:
  """Runs this node's processes until they exit, and restarts failed ones.

  Args:
    make_workers: Function that returns the processes to start. It is called for
      the start and for each restart of the job. The log of the first process is
      also printed.
    grace_seconds: Seconds to wait for the other processes to exit after one has
      failed.
    max_restarts: Maximum number of restarts within an hour. User errors are
      never retried.
    model_dir: Model directory of the run. After a failure, the step of its last
      checkpoint is logged. If None, no step is logged.

  Returns:
    0 after success, 75 after an orderly stop, 130 if a signal stopped the
    processes before there was anything to save, otherwise the exit status of
    the process that failed first, as a shell reports it.
  """
  restart_times: list[float] = []
  failures: list[dict[str, Any]] = json.loads(
    os.environ.get(RESTART_VARIABLE, '[]')
  )
  while True:
    reported = failures[-_MAX_REPORTED_FAILURES:]
    environment = {RESTART_VARIABLE: json.dumps(reported)} if reported else {}
    workers = make_workers()
    with _ProcessGroup(
      workers,
      environment,
      grace_seconds,
      model_dir,
      kill_stopped=max_restarts > 0,
    ) as group:
      status = group.wait()
    current_time = time.monotonic()
    restart_times = [
      t for t in restart_times if current_time - t < _RESTART_WINDOW_SECONDS
    ]
    if (
      not is_failure(status)
      or status == errors.ExitStatus.MISTAKE
      or group.stop_requested
      or len(restart_times) >= max_restarts
    ):
      return status
    logging.warning(
      'Restarting the processes (restart %d of at most %d within an hour), '
      '%.1f s after the failure.',
      len(restart_times) + 1,
      max_restarts,
      time.time() - group.detected_at,
    )
    restart_times.append(current_time)
    failures.append(
      {
        'failure': group.failure,
        'noticed': group.detected_at,
        'started': time.time(),
      }
    )


def is_failure(status: int) -> bool:
  """Returns whether an exit status indicates that the process failed."""
  return status not in (0, *_STOP_STATUSES)


def free_port() -> int:
  """Returns an unused TCP port on this machine."""
  with socket.socket() as listener:
    listener.bind(('', 0))
    return listener.getsockname()[1]


def die_with_parent() -> None:
  """Makes Linux send this process SIGTERM when its parent dies."""
  if sys.platform == 'linux':
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class _ProcessGroup:
  """Processes of one start of a job, which are killed on leaving the context.

  Attributes:
    failure: Description of the first failure, with its host. Empty before a
      failure.
    detected_at: Time of the last poll of the processes, in seconds since the
      epoch.
  """

  def __init__(
    self,
    workers: Sequence[WorkerProcess],
    environment: dict[str, str],
    grace_seconds: float,
    model_dir: pathlib.Path | None,
    *,
    kill_stopped: bool,
  ):
    self.failure = ''
    self.detected_at = time.time()
    self._workers = workers
    self._environment = environment
    self._grace_seconds = grace_seconds
    self._model_dir = model_dir
    self._kill_stopped = kill_stopped
    self._stopped_polls = [0] * len(workers)
    self._log_offset = 0
    self._forwarded_signals: set[int] = set()
    self._processes: list[subprocess.Popen] = []
    self._previous_handlers: dict[int, Any] = {}

  @property
  def stop_requested(self) -> bool:
    """True if the supervisor received a signal to stop."""
    return bool(self._forwarded_signals)

  def __enter__(self) -> '_ProcessGroup':
    for number in filter(signals.is_handled, signals.SIGNALS):
      self._previous_handlers[number] = signal.signal(number, self._forward)
    try:
      self._start()
    except BaseException:
      self.__exit__()
      raise
    return self

  def __exit__(self, *exc) -> None:
    self._kill_all()
    for number, handler in self._previous_handlers.items():
      signal.signal(number, handler)

  def _start(self) -> None:
    """Starts the processes."""
    first_log = self._workers[0].log
    if first_log.exists():
      self._log_offset = first_log.stat().st_size
    for worker in self._workers:
      self._processes.append(worker.start(self._environment))
    logging.info(
      'Started %d processes (%s). Logs are in %s. Log of the first process:',
      len(self._workers),
      ', '.join(str(process.pid) for process in self._processes),
      first_log.parent,
    )

  def _forward(self, number, frame) -> None:
    """Forwards a signal to all processes."""
    del frame
    self._forwarded_signals.add(number)
    logging.warning(
      'Forwarding %s to all processes.', signal.Signals(number).name
    )
    for process in self._processes:
      with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)

  def wait(self) -> int:
    """Waits for the processes to end and returns the exit status.

    The log of the first process is printed continuously.
    """
    with self._workers[0].log.open('rb') as log:
      log.seek(self._log_offset)
      while True:
        statuses = self._poll()
        _print_new_text(log)
        self.detected_at = time.time()
        for index, status in enumerate(statuses):
          if status is not None and is_failure(status):
            return self._end_after_failure(index, log)
        if None not in statuses:
          return self._joint_status()
        if errors.ExitStatus.INTERRUPTED in statuses:
          # The other processes may wait for this process to connect.
          self._end_all(self._grace_seconds)
          _print_new_text(log)
          return self._joint_status()
        if self._kill_stopped:
          self._kill_stopped_processes()
        time.sleep(_POLL_SECONDS)

  def _joint_status(self) -> int:
    """Returns the exit status of processes that have exited orderly."""
    statuses = self._poll()
    return next((s for s in _STOP_STATUSES if s in statuses), 0)

  def _poll(self) -> list[int | None]:
    """Returns the exit statuses, which are None for running processes.

    A process that does not handle signals yet is killed by a forwarded signal,
    which is not a failure.
    """
    statuses = [process.poll() for process in self._processes]
    return [
      errors.ExitStatus.INTERRUPTED
      if status is not None and -status in self._forwarded_signals
      else status
      for status in statuses
    ]

  def _kill_stopped_processes(self) -> None:
    """Kills processes that SIGSTOP has suspended for several seconds."""
    if sys.platform != 'linux':
      return
    for index, process in enumerate(self._processes):
      if not _is_stopped(process):
        self._stopped_polls[index] = 0
        continue
      self._stopped_polls[index] += 1
      if self._stopped_polls[index] > _MAX_STOPPED_POLLS:
        logging.error(
          '%s is stopped by a signal. Killing it.', self._workers[index].name
        )
        os.killpg(process.pid, signal.SIGKILL)

  def _end_after_failure(self, index: int, log: IO[bytes]) -> int:
    """Ends the remaining processes and returns the failed one's exit status."""
    worker = self._workers[index]
    code = self._processes[index].returncode
    description = f'{worker.name} {_describe_exit(code)}'
    self.failure = f'{description} on {socket.gethostname()}'
    logging.error('%s. Ending the other processes.', description)
    # A killed process could not notify the others, which are ended immediately.
    self._end_all(0 if code == -signal.SIGKILL else self._grace_seconds)
    _print_new_text(log)
    if index:
      self._print_end_of_log(worker.log)
    if code == errors.ExitStatus.MISTAKE:
      logging.error('The job is not restarted after a user error:')
      print(_last_message(worker.log), file=sys.stderr, flush=True)
      return code
    step = job_base.last_checkpoint(self._model_dir)
    logging.error(
      'The job failed. %s Logs of all processes are in %s.',
      'There is no checkpoint yet.'
      if step is None
      else f'A restart resumes from the checkpoint of step {step}.',
      worker.log.parent,
    )
    return 128 - code if code < 0 else code

  def _end_all(self, grace_seconds: float) -> None:
    """Waits for the processes to exit and kills those that do not."""
    deadline = time.monotonic() + grace_seconds
    while time.monotonic() < deadline and any(
      process.poll() is None for process in self._processes
    ):
      time.sleep(_POLL_SECONDS)
    self._kill_all()

  def _kill_all(self) -> None:
    """Kills the processes that have not exited."""
    for process in self._processes:
      if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
          os.killpg(process.pid, signal.SIGKILL)
        process.wait()

  def _print_end_of_log(self, path: pathlib.Path) -> None:
    """Prints the last lines of a log to standard error."""
    print(
      f'--- end of {path}',
      *_last_lines(path),
      '---',
      sep='\n',
      file=sys.stderr,
      flush=True,
    )


def _is_stopped(process: subprocess.Popen) -> bool:
  """Returns whether a signal has suspended a running process."""
  options = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
  try:
    return process.returncode is None and bool(
      os.waitid(os.P_PID, process.pid, options)
    )
  except ChildProcessError:  # The process has ended since it was polled.
    return False


def _last_lines(log: pathlib.Path) -> list[str]:
  """Returns the last lines of a log."""
  return log.read_text(errors='replace').splitlines()[-_MAX_LOG_LINES:]


def _last_message(log: pathlib.Path) -> str:
  """Returns the error message at the end of a log."""
  lines = _last_lines(log)
  starts = [i for i, line in enumerate(lines) if line.startswith('xlflax')]
  return '\n'.join(lines[starts[-1] if starts else -1 :])


def _describe_exit(code: int) -> str:
  """Describes the exit of a process in words."""
  if code < 0:
    return f'was killed by {signal.Signals(-code).name}'
  return f'failed with status {code}'


def _print_new_text(log: IO[bytes]) -> None:
  """Prints what was written to a log since the last call."""
  text = log.read()
  if text:
    sys.stdout.write(text.decode(errors='replace'))
    sys.stdout.flush()
