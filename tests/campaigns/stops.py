"""Signals in every phase of training, and at random moments of all commands.

A run that goes on from a checkpoint sends itself a signal at the beginning of
a phase, on one process or on one of two. It must end with the status of a stop
and a whole checkpoint, and started again, as if nothing had been. The other
commands get signals at random moments: each ends with the status of an
interruption or of its end, without a traceback, and started again leaves what
one uninterrupted call leaves.
"""

import itertools
import os
import pathlib
import random
import shutil
import signal

from tests.campaigns import counts as counts_lib
from tests.campaigns import killed_commands, kills, left
from tests.end_to_end import conftest as end_to_end
from tests.end_to_end import signalled_worker
from xlflax.training.checkpointing import checkpoint_reader
from xlflax.utils import errors

# A process as a shell starts it: its signals, streams and end are its own.
# Its second argument is WHEN of `signalled_worker`, or that and @MOST, how many
# files it may have open.
CALL = """
    import resource
    from tests.end_to_end import signalled_worker
    when, _, most = arguments[1].partition('@')
    signalled_worker.install(when)
    if most:
      resource.setrlimit(resource.RLIMIT_NOFILE, (int(most), int(most)))
    sys.argv[1:] = arguments[2:]
    sys.exit(xlflax.cli.main())""".strip()
_SIGNALS = ('SIGTERM', 'SIGHUP', 'SIGUSR1', 'SIGINT')
_STOPPED = errors.ExitStatus.STOPPED
_OK = {0, int(errors.ExitStatus.INTERRUPTED), int(_STOPPED)}


def training(
  space: end_to_end.Workspace, directory: pathlib.Path, *, seed: int = 0
) -> counts_lib.Counts:
  """Every signal in every phase on one process, one of them on two.

  Of two processes the other one is late at its end.

  Args:
    space: text, vocabulary and cache.
    directory: to work in.
    seed: which signal two processes get in which phase; four are all.
  """
  phases = _Phases(space, directory)
  try:
    for phase, name in itertools.product(signalled_worker.PHASES, _SIGNALS):
      phases.case([f'{name}:{phase}'])
    for i, phase in enumerate(signalled_worker.PHASES):
      when = f'{_SIGNALS[(i + seed) % len(_SIGNALS)]}:{phase}'
      phases.case([when, 'LATE:leave'])
      phases.case(['LATE:leave', when])
    return phases.found
  finally:
    phases.close()


class _Phases:
  """A run of two steps, which is continued to ten."""

  def __init__(self, space: end_to_end.Workspace, directory: pathlib.Path):
    self.found = counts_lib.Counts()
    self._servers = [kills.Server(space.environment(), CALL) for _ in range(2)]
    self._folder = directory / 'phases'
    self._folder.mkdir()
    self._logs = [self._folder / f'log_{i}' for i in range(2)]
    self._words = killed_commands.train(space)
    for name, more in (('begun', ['--stop_after_steps=2']), ('whole', [])):
      statuses = self._call(self._folder / name, ['none'], more)
      if statuses != [0]:
        raise RuntimeError(self._said())
    self._whole = end_to_end.losses(self._folder / 'whole')

  def close(self) -> None:
    """Ends the servers."""
    for server in self._servers:
      server.close()

  def case(self, whens: list[str]) -> None:
    """One signal, and what becomes of the run."""
    run = self._folder / 'run'
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(self._folder / 'begun', run)
    statuses = self._call(run, whens)
    problem = self._problem(run, whens, statuses)
    what = 'lost' if problem else 'finished'
    if not problem and statuses[0]:
      what = 'stopped and resumed'
    self.found.add(what, problem and f'{whens}: {statuses}: {problem}')

  def _problem(self, run, whens, statuses) -> str:
    """What is wrong after a signal; '' for nothing."""
    signals = [when for when in whens if not when.startswith('LATE')]
    late = signals[0].endswith(signalled_worker.TOO_LATE)
    wanted = 0 if late else int(_STOPPED)
    said = self._said()
    if any(status != wanted for status in statuses):
      return said
    if 'Traceback' in said:
      return said
    last = checkpoint_reader.finished_steps(run)[-1]
    if not checkpoint_reader.is_valid(
      checkpoint_reader.checkpoint_path(run, last)
    ):
      return f'checkpoint {last} is not whole'
    if self._call(run, ['none']) != [0]:
      return self._said()
    alone = len(whens) == 1
    same = not alone or end_to_end.losses(run) == self._whole
    return '' if same else 'other losses than those of the whole run'

  def _call(self, run, whens, more=()) -> list[int]:
    """Statuses of the processes of a job."""
    port = end_to_end.free_port()
    for i, when in enumerate(whens):
      self._logs[i].write_text('')
      words = [when, *self._words, f'--model_dir={run}', *more]
      words += [f'--preemption_exit_code={_STOPPED}']
      if len(whens) > 1:
        words += [
          f'--coordinator_address=127.0.0.1:{port}',
          f'--num_processes={len(whens)}',
          f'--process_id={i}',
        ]
      self._servers[i].start(self._logs[i], words)
    return [
      os.waitstatus_to_exitcode(self._servers[i].wait()[0])
      for i in range(len(whens))
    ]

  def _said(self) -> str:
    texts = [log.read_text() for log in self._logs if log.exists()]
    return '\n'.join(text[-1500:] for text in texts)


def commands(
  space: end_to_end.Workspace,
  directory: pathlib.Path,
  *,
  signals: int,
  seed: int = 0,
) -> counts_lib.Counts:
  """Signals every command in turns at random moments.

  Args:
    space: text, vocabulary and cache.
    directory: to work in.
    signals: how many, at least.
    seed: of the moments.
  """
  rng, found = random.Random(seed), counts_lib.Counts()
  work = directory / 'stopped'
  work.mkdir()
  server = kills.Server(space.environment(), CALL)
  try:
    prepared = [
      Command(server, work, command)
      for command in killed_commands.prepare(Plain(server), space, work)
    ]
    while found.cases < signals:
      for one in prepared:
        one.stopped(rng, found)
    return found
  finally:
    server.close()


class Plain:
  """A server whose processes send themselves no signal."""

  def __init__(self, server: kills.Server):
    self._server = server

  def run(self, log, arguments, *more, most: str = '') -> tuple[int, float]:
    """See `kills.Server.run`; `most` files may be open."""
    return self._server.run(log, [f'none@{most}', *arguments], *more)


class Command:
  """A command, and what one uninterrupted call of it leaves."""

  def __init__(self, server, directory, command: killed_commands.Command):
    self.command = command
    self.place = directory / command.name.replace(' ', '_')
    self._server, self._log = Plain(server), directory / 'log'
    for _ in range(2 if command.compiles else 1):
      self.begin()
      status, self.takes = self.call()
      if status:
        raise RuntimeError(self.said())
    self._want = left.behind(self.place)

  def begin(self) -> None:
    """Removes what there is; copies what the command starts from."""
    if self.place.exists():
      for path in self.place.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    self.place.mkdir(exist_ok=True)
    if self.command.start:
      shutil.copytree(self.command.start, self.place / 'out')

  def call(self, *when, most: str = '') -> tuple[int, float]:
    """Exit status and processor seconds."""
    self._log.write_text('')
    words = self.command.arguments(str(self.place / 'out'))
    status, seconds = self._server.run(self._log, words, *when, most=most)
    return os.waitstatus_to_exitcode(status), seconds

  def said(self) -> str:
    """The end of what the last call printed."""
    return self._log.read_text()[-1500:]

  def stopped(self, rng: random.Random, found: counts_lib.Counts) -> None:
    """One signal at a random moment, and a call to the end."""
    self.begin()
    name = rng.choice(_SIGNALS)
    status, _ = self.call(rng.uniform(0.01, self.takes), signal.Signals[name])
    problem = ''
    if status not in _OK or 'Traceback' in self.said():
      problem = f'status {status}: {self.said()}'
    what = 'stopped' if status else 'finished'
    problem = problem or self.ends_whole()
    found.add(what, problem and f'{name}, {self.command.name}: {problem}')

  def ends_whole(self) -> str:
    """What another call leaves otherwise; '' for nothing."""
    status, _ = self.call()
    done = self.command.done and self.command.done in self.said()
    if status and not done:
      return f'status {status}: {self.said()}'
    return left.difference(left.behind(self.place), self._want)
