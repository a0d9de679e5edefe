"""Processes on this machine: started, watched and ended together."""

import contextlib
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

from xlflax.foundation import errors, stopping
from xlflax.launch import agents as agents_lib
from xlflax.launch import job as job_lib
from xlflax.launch import starts

_LOOK_EVERY = 0.1  # seconds
_SHOWN_LINES = 60  # of the log of a process that failed
_MOST_FROZEN = 50  # looks in a row at a process that a signal has stopped
_BUDGET_SECONDS = 3600.0  # in which so many restarts are allowed
_MOST_TOLD = 20
RESTART = (
  'XLFLAX_RESTART'  # the failures before, for processes that start again
)


def run(
  make_processes: Callable[[int], Sequence[starts.Process]],
  agents: agents_lib.Lead | agents_lib.Follower,
  *,
  grace_seconds: float,
  restarts: int = 0,
  model_dir: pathlib.Path | None = None,
  spares: bool = False,
) -> int:
  """Runs processes to their end; after a failure all start again, if asked.

  Args:
    make_processes: the processes of a generation, given the port of the first
      one of the job; the log of the first one here is shown.
    agents: what starts the processes of the job's nodes.
    grace_seconds: how long the others may take to end after a failure.
    restarts: how often within an hour they start again after a failure that
      is not a user's mistake.
    model_dir: the run's directory; its last checkpoint is named after a
      failure.
    spares: whether processes of the next generation wait beside these.

  Returns:
    0 after success, 75 after an orderly stop; otherwise the status of the
    process that failed first, as a shell would give it.
  """
  restarted: list[float] = []
  told = {k: v for k, v in os.environ.items() if k == RESTART}
  failures: list[dict[str, Any]] = json.loads(told.get(RESTART, '[]'))
  waiting = starts.Spares(make_processes if spares and restarts else None)
  with contextlib.closing(waiting):
    while (port := agents.begin()) is not None:
      running = _Running(
        make_processes(port), told, grace_seconds, model_dir, waiting
      )
      with running:
        running.kills_frozen = restarts > 0
        status = running.wait(agents.failed)
      status = agents.agree(status, running.failure)
      now = time.monotonic()
      restarted = [t for t in restarted if now - t < _BUDGET_SECONDS]
      if isinstance(agents, agents_lib.Lead):
        hopeless = status == errors.ExitStatus.MISTAKE or running.asked_to_stop
        last = hopeless or len(restarted) >= restarts or not agents.is_whole
        if last or not agents_lib.is_failure(status):
          return agents.end(status)
        logging.warning(
          'Starting the job again (%d of %d within an hour), %.1f s after the '
          'failure.',
          len(restarted) + 1,
          restarts,
          time.time() - running.noticed,
        )
      restarted.append(now)
      failures.append(
        {
          'failure': agents.failure,
          'noticed': running.noticed,
          'started': time.time(),
        }
      )
      told = {RESTART: json.dumps(failures[-_MOST_TOLD:])}
  return agents.status


def _is_stopped(process: subprocess.Popen) -> bool:
  """Whether a signal has stopped a process; one that has ended is not."""
  kind = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
  try:
    return process.returncode is None and bool(
      os.waitid(os.P_PID, process.pid, kind)
    )
  except ChildProcessError:  # it has ended since it was looked at
    return False


class _Running:
  """The processes of one attempt; a context manager."""

  def __init__(
    self,
    specs: Sequence[starts.Process],
    variables: dict[str, str],
    grace_seconds: float,
    model_dir: pathlib.Path | None,
    spares: starts.Spares,
  ):
    self._specs = specs
    self._variables = variables
    self._spares = spares
    self._shown = 0  # bytes of the first log that are of other generations
    self.noticed = time.time()  # when something ended
    self._grace_seconds = grace_seconds
    self._model_dir = model_dir
    self._processes: list[subprocess.Popen] = []
    self._previous: dict[int, object] = {}
    self.asked_to_stop = False
    self.kills_frozen = False
    self._frozen = [0] * len(specs)  # looks at which each was stopped
    self.failure = ''  # what failed, and where

  def __enter__(self) -> '_Running':
    for number in filter(stopping.is_heard, stopping.SIGNALS):
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
    first = self._specs[0].log
    if first.exists():
      self._shown = first.stat().st_size
    self._processes = self._spares.take(self._specs, self._variables)
    for spec in self._specs[len(self._processes) :]:
      self._processes.append(spec.start(self._variables))
    logging.info(
      'Started %d processes (%s), logs in %s; this is process 0:',
      len(self._specs),
      ', '.join(str(p.pid) for p in self._processes),
      self._specs[0].log.parent,
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

  def wait(self, failed_elsewhere: Callable[[], int | None]) -> int:
    """Shows the first log; returns the job's status when all have ended."""
    with self._specs[0].log.open('rb') as log:
      log.seek(self._shown)
      while True:
        running = [p for p in self._processes if p.poll() is None]
        _show(log)
        failed = self._first_failed()
        self.noticed = time.time()
        if failed is not None:
          return self._end_after(failed, log)
        elsewhere = failed_elsewhere()
        if elsewhere is not None:
          logging.error('Processes of another node failed; ending these.')
          self._wait_for_all(elsewhere)
          _show(log)
          return elsewhere
        if not running:
          statuses = {p.returncode for p in self._processes}
          return (
            errors.ExitStatus.STOPPED
            if errors.ExitStatus.STOPPED in statuses
            else 0
          )
        self._spares.look()
        self._kill_frozen()
        time.sleep(_LOOK_EVERY)

  def _kill_frozen(self) -> None:
    """Kills a process that SIGSTOP has stopped for seconds, and not all."""
    if not self.kills_frozen or sys.platform != 'linux':
      return
    for i, process in enumerate(self._processes):
      self._frozen[i] = self._frozen[i] + 1 if _is_stopped(process) else 0
      if self._frozen[i] > _MOST_FROZEN:
        logging.error(
          '%s is stopped by a signal; killing it.', self._specs[i].name
        )
        os.killpg(process.pid, signal.SIGKILL)

  def _first_failed(self) -> int | None:
    return next(
      (
        i
        for i, p in enumerate(self._processes)
        if p.returncode not in (None, 0, errors.ExitStatus.STOPPED)
      ),
      None,
    )

  def _end_after(self, failed: int, log: IO[bytes]) -> int:
    """Ends the others, reports the failure, and returns its status."""
    code = self._processes[failed].returncode
    what = f'{self._specs[failed].name} {_how(code)}'
    self.failure = f'{what} on {socket.gethostname()}'
    logging.error('%s; ending the others.', what)
    status = 128 - code if code < 0 else code
    self._wait_for_all(status)
    _show(log)
    if failed:
      self._show_end_of(failed)
    if status == errors.ExitStatus.MISTAKE:
      logging.error('The job is not started again after a mistake:')
      print(_last_words(self._specs[failed].log), file=sys.stderr, flush=True)
      return status
    step = job_lib.last_checkpoint(self._model_dir)
    logging.error(
      'The job failed. %s The logs of all processes are in %s.',
      'There is no checkpoint yet.'
      if step is None
      else f'Started again, it continues from the checkpoint of step {step}.',
      self._specs[0].log.parent,
    )
    return status

  def _wait_for_all(self, status: int) -> None:
    """Lets the others end; what was killed has told them nothing."""
    killed = status == 128 + signal.SIGKILL
    end = time.monotonic() + (0 if killed else self._grace_seconds)
    while time.monotonic() < end and any(
      p.poll() is None for p in self._processes
    ):
      time.sleep(_LOOK_EVERY)
    self._kill()

  def _show_end_of(self, failed: int) -> None:
    path = self._specs[failed].log
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


def _last_words(log: pathlib.Path) -> str:
  """The message at the end of a log: from the last line that begins one."""
  lines = log.read_text(errors='replace').splitlines()[-_SHOWN_LINES:]
  begins = [i for i, line in enumerate(lines) if line.startswith('xlflax')]
  return '\n'.join(lines[begins[-1] if begins else -1 :])


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
