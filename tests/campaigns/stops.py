"""Campaign of signals during training and at random moments of all commands.

A run that resumes from a checkpoint sends itself a signal at the start of a
phase, on one process or on one of two. It must exit with the status of a stop
and a valid checkpoint. After a restart, it must produce the same results as an
uninterrupted run. The other commands get signals at random moments: each exits
with the status of an interruption or of success, without a traceback, and
another call produces the same output as one uninterrupted call.
"""

import itertools
import os
import pathlib
import random
import shutil
import signal
from typing import Any

from tests.campaigns import counts, killed_commands, kills, output_comparison
from tests.end_to_end import conftest as end_to_end
from tests.end_to_end import signalled_worker
from xlflax.training.checkpointing import checkpoint_reader
from xlflax.utils import errors

# Runs a process as a shell would, with its own signals, streams and exit.
# Its second argument is WHEN of `signalled_worker`, optionally followed by
# @MAX_FILES, the limit on open files.
CALL = """
    import resource
    from tests.end_to_end import signalled_worker
    when, _, max_files = arguments[1].partition('@')
    signalled_worker.install(when)
    if max_files:
      resource.setrlimit(resource.RLIMIT_NOFILE, 2 * (int(max_files),))
    sys.argv[1:] = arguments[2:]
    sys.exit(xlflax.cli.main())""".strip()
_SIGNALS = ('SIGTERM', 'SIGHUP', 'SIGUSR1', 'SIGINT')
_STOPPED = errors.ExitStatus.STOPPED
_EXPECTED_STATUSES = {0, int(errors.ExitStatus.INTERRUPTED), int(_STOPPED)}


def signal_training(
  space: end_to_end.Workspace, directory: pathlib.Path, *, seed: int = 0
) -> counts.Counts:
  """Sends every signal in every phase to one process, one of them to two.

  With two processes, the other process delays its exit.

  Args:
    space: Workspace with text, vocabulary and cache.
    directory: Working directory.
    seed: Offset of the signal that is sent in each phase of a job with two
      processes. Four consecutive seeds together send every signal in every
      phase.
  """
  phases = _Phases(space, directory)
  try:
    for phase, name in itertools.product(signalled_worker.PHASES, _SIGNALS):
      phases.run_case([f'{name}:{phase}'])
    for i, phase in enumerate(signalled_worker.PHASES):
      when = f'{_SIGNALS[(i + seed) % len(_SIGNALS)]}:{phase}'
      phases.run_case([when, 'LATE:leave'])
      phases.run_case(['LATE:leave', when])
    return phases.counts
  finally:
    phases.close()


class _Phases:
  """A run of two steps that is resumed and trained to step ten."""

  def __init__(self, space: end_to_end.Workspace, directory: pathlib.Path):
    self.counts = counts.Counts()
    self._servers = [kills.Server(space.environment(), CALL) for _ in range(2)]
    self._folder = directory / 'phases'
    self._folder.mkdir()
    self._logs = [self._folder / f'log_{i}' for i in range(2)]
    self._arguments = killed_commands.train_arguments(space)
    for name, extra_arguments in (
      ('begun', ['--stop_after_steps=2']),
      ('whole', []),
    ):
      statuses = self._call(self._folder / name, ['none'], extra_arguments)
      if statuses != [0]:
        raise RuntimeError(self._output())
    self._expected_losses = end_to_end.losses(self._folder / 'whole')

  def close(self) -> None:
    """Terminates the servers."""
    for server in self._servers:
      server.close()

  def run_case(self, whens: list[str]) -> None:
    """Sends one signal and checks the run."""
    run = self._folder / 'run'
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(self._folder / 'begun', run)
    statuses = self._call(run, whens)
    problem = self._problem(run, whens, statuses)
    outcome = 'lost' if problem else 'finished'
    if not problem and statuses[0]:
      outcome = 'stopped and resumed'
    self.counts.add(outcome, problem and f'{whens}: {statuses}: {problem}')

  def _problem(self, run, whens, statuses) -> str:
    """Returns a description of the problem after a signal, or ''."""
    signals = [when for when in whens if not when.startswith('LATE')]
    is_too_late = signals[0].endswith(signalled_worker.TOO_LATE)
    expected_status = 0 if is_too_late else int(_STOPPED)
    output = self._output()
    if any(status != expected_status for status in statuses):
      return output
    if 'Traceback' in output:
      return output
    last_step = checkpoint_reader.finished_steps(run)[-1]
    if not checkpoint_reader.is_valid(
      checkpoint_reader.checkpoint_path(run, last_step)
    ):
      return f'checkpoint {last_step} is not whole'
    if self._call(run, ['none']) != [0]:
      return self._output()
    is_single_process = len(whens) == 1
    has_same_losses = (
      not is_single_process or end_to_end.losses(run) == self._expected_losses
    )
    return '' if has_same_losses else 'other losses than those of the whole run'

  def _call(self, run, whens, extra_arguments=()) -> list[int]:
    """Returns the exit statuses of the processes of a job."""
    port = end_to_end.free_port()
    for i, when in enumerate(whens):
      self._logs[i].write_text('')
      arguments = [
        when,
        *self._arguments,
        f'--model_dir={run}',
        *extra_arguments,
      ]
      arguments += [f'--preemption_exit_code={_STOPPED}']
      if len(whens) > 1:
        arguments += [
          f'--coordinator_address=127.0.0.1:{port}',
          f'--num_processes={len(whens)}',
          f'--process_id={i}',
        ]
      self._servers[i].start(self._logs[i], arguments)
    return [
      os.waitstatus_to_exitcode(self._servers[i].wait()[0])
      for i in range(len(whens))
    ]

  def _output(self) -> str:
    texts = [log.read_text() for log in self._logs if log.exists()]
    return '\n'.join(text[-1500:] for text in texts)


def signal_commands(
  space: end_to_end.Workspace,
  directory: pathlib.Path,
  *,
  signals: int,
  seed: int = 0,
) -> counts.Counts:
  """Sends signals to every command in turn at random moments.

  Args:
    space: Workspace with text, vocabulary and cache.
    directory: Working directory.
    signals: Minimum total number of signals. Every command receives at least
      one.
    seed: Random seed for the moments at which signals are sent.
  """
  rng, totals = random.Random(seed), counts.Counts()
  work_directory = directory / 'stopped'
  work_directory.mkdir()
  server = kills.Server(space.environment(), CALL)
  try:
    prepared = [
      Command(server, work_directory, command)
      for command in killed_commands.prepare_commands(
        ServerWithoutSignals(server), space, work_directory
      )
    ]
    while totals.cases < signals:
      for prepared_command in prepared:
        prepared_command.run_case(rng, totals)
    return totals
  finally:
    server.close()


class ServerWithoutSignals:
  """A server whose processes do not send themselves signals."""

  def __init__(self, server: kills.Server):
    self._server = server

  def run(
    self, log, arguments, *kill_options, max_files: str = ''
  ) -> tuple[int, float]:
    """Calls `kills.Server.run` with a limit of `max_files` open files."""
    return self._server.run(
      log, [f'none@{max_files}', *arguments], *kill_options
    )


class Command:
  """A command and the expected output of one uninterrupted call."""

  def __init__(self, server, directory, command: killed_commands.Command):
    self.command = command
    self.directory = directory / command.name.replace(' ', '_')
    self._server, self._log = ServerWithoutSignals(server), directory / 'log'
    for _ in range(2 if command.compiles else 1):
      self.reset()
      status, self.duration = self.call()
      if status:
        raise RuntimeError(self.output())
    self._expected = self._read_outputs()

  def reset(self) -> None:
    """Clears the output directory and copies the start directory."""
    if self.directory.exists():
      for path in self.directory.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    self.directory.mkdir(exist_ok=True)
    if self.command.start:
      shutil.copytree(self.command.start, self.directory / 'out')

  def call(self, *when, max_files: str = '') -> tuple[int, float]:
    """Returns the exit status and the CPU seconds."""
    self._log.write_text('')
    arguments = self.command.arguments(str(self.directory / 'out'))
    status, seconds = self._server.run(
      self._log, arguments, *when, max_files=max_files
    )
    return os.waitstatus_to_exitcode(status), seconds

  def output(self) -> str:
    """Returns the last part of the last call's output."""
    return self._log.read_text()[-1500:]

  def run_case(self, rng: random.Random, totals: counts.Counts) -> None:
    """Sends a signal at a random moment, then calls the command to its end."""
    self.reset()
    name = rng.choice(_SIGNALS)
    status, _ = self.call(
      rng.uniform(0.01, self.duration), signal.Signals[name]
    )
    problem = ''
    if status not in _EXPECTED_STATUSES or 'Traceback' in self.output():
      problem = f'status {status}: {self.output()}'
    outcome = 'stopped' if status else 'finished'
    problem = problem or self.check_completion()
    totals.add(outcome, problem and f'{name}, {self.command.name}: {problem}')

  def check_completion(self) -> str:
    """Returns how another call's output differs, or ''."""
    status, _ = self.call()
    was_finished = (
      self.command.finished_message
      and self.command.finished_message in self.output()
    )
    if status and not was_finished:
      return f'status {status}: {self.output()}'
    return output_comparison.describe_difference(
      self._read_outputs(), self._expected
    )

  def _read_outputs(self) -> dict[str, Any]:
    return output_comparison.read_outputs(
      self.directory, older_checkpoints=False
    )
