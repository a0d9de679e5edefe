"""Random kills of real processes: each command ends as if nobody touched it.

A parent imports the library and forks a process for each call, and compiled
programs are kept on disk, so that a call costs its own work and little else. A
case is a command that is killed (SIGKILL) again and again at random moments
and started again until it ends; everything that it leaves must then be what
one uninterrupted call leaves, bit by bit.
"""

import contextlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

from tests.campaigns import counts as counts_lib
from tests.campaigns import killed_commands, left
from tests.end_to_end import conftest as end_to_end

KILLS, EQUAL, OTHER = 'kills', 'identical results', 'different results'
_SERVER = """
import os, sys
from xlflax.data.seqio_tasks import tensorflow_setup
tensorflow_setup.load_tensorflow()
import jax
import xlflax.cli, xlflax.trainer, xlflax.evaluate
import xlflax.finetuning.finetune_grid, xlflax.training.train_loop
from xlflax.cli import cache, compilation_cache, convert, evaluate, finetune
from xlflax.cli import train, vocab
plain = compilation_cache.enable
def use(directory):  # small programs are kept too
  plain(directory)
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
  jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)
compilation_cache.enable = use
for line in sys.stdin:
  arguments = line.rstrip('\\n').split('\\x1f')
  child = os.fork()
  if not child:
    log = os.open(arguments[0], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    CALL
  print(child, flush=True)
  _, status, usage = os.wait4(child, 0)
  print(status, usage.ru_utime + usage.ru_stime, flush=True)
"""


_CALL = 'os._exit(xlflax.cli.main(arguments[1:]))'


class Server:
  """Runs `xlflax` commands in forked processes, one after the other.

  Args:
    environment: of the processes.
    call: what a forked process does with its `arguments`, of which the first
      is the log.
  """

  def __init__(self, environment: dict[str, str], call: str = _CALL):
    self._process = subprocess.Popen(
      [sys.executable, '-c', _SERVER.replace('CALL', call)],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
      env=environment,
    )

  def run(
    self,
    log: pathlib.Path,
    arguments: list[str],
    kill_after: float | None = None,
    number: int = signal.SIGKILL,
  ) -> tuple[int, float]:
    """Wait status and processor seconds of a command.

    Args:
      log: what it prints is added to this file.
      arguments: of `xlflax`.
      kill_after: it is killed when it has used so many processor seconds,
        which does not depend on what else the machine does.
      number: the signal that kills it.
    """
    child = self.start(log, arguments)
    if kill_after is not None:
      with contextlib.suppress(OSError):  # it has ended
        while time.clock_gettime(_clock_of(child)) < kill_after:
          time.sleep(0.001)
        os.kill(child, number)
    return self.wait()

  def start(self, log: pathlib.Path, arguments: list[str]) -> int:
    """Begins a command; returns its process."""
    assert self._process.stdin and self._process.stdout
    print('\x1f'.join([str(log), *arguments]), file=self._process.stdin)
    self._process.stdin.flush()
    return int(self._process.stdout.readline())

  def wait(self) -> tuple[int, float]:
    """Wait status and processor seconds of the command that was begun."""
    assert self._process.stdout
    status, seconds = self._process.stdout.readline().split()
    return int(status), float(seconds)

  def close(self) -> None:
    """Ends the parent."""
    assert self._process.stdin
    self._process.stdin.close()
    self._process.wait()


def campaign(
  space: end_to_end.Workspace,
  directory: pathlib.Path,
  *,
  kills: int,
  seed: int = 0,
  seconds: float = 0,
) -> dict[str, counts_lib.Counts]:
  """Kills every command in turns at random moments.

  Args:
    space: text, vocabulary and cache.
    directory: to work in.
    kills: how many, at least; every command is killed in any case.
    seed: of the moments.
    seconds: it goes on until so many have gone by.

  Returns:
    Name of a command -> kills and ends.
  """
  rng, start = random.Random(seed), time.monotonic()
  server = Server(space.environment())
  try:
    killed = [
      _Killed(server, directory, command)
      for command in killed_commands.prepare(server, space, directory)
    ]
    while True:
      for one in killed:
        one.killed(rng)
      found = {one.command.name: one.found for one in killed}
      done = sum(counts.outcomes[KILLS] for counts in found.values())
      if done >= kills and time.monotonic() - start >= seconds:
        return found
  finally:
    server.close()


class _Killed:
  """A command, and what one uninterrupted call of it leaves."""

  def __init__(self, server, directory, command: killed_commands.Command):
    self.command, self.found = command, counts_lib.Counts()
    self._server, self._log = server, directory / 'log'
    self._place = directory / command.name.replace(' ', '_')
    for _ in range(2 if command.compiles else 1):
      self._begin()
      status, self._takes = self._call()
      if status:
        raise RuntimeError(self._log.read_text()[-2000:])
    self._want = left.behind(self._place)

  def killed(self, rng: random.Random) -> None:
    """As many kills as the command says, then a call to its end."""
    self._begin()
    kills = 0
    while kills < self.command.kills:
      status, _ = self._call(rng.uniform(0, self._takes))
      if os.WIFSIGNALED(status):
        kills += 1
        self.found.add(KILLS)
      else:  # it had ended by itself
        self._end(status)
        self._begin()
    self._end(self._call()[0])

  def _end(self, status: int) -> None:
    """Counts an end, and whether it is the one that is wanted."""
    problem = self._refused() if status else ''
    problem = problem or left.difference(left.behind(self._place), self._want)
    problem = problem or left.damage(self._place / 'out')
    self.found.add(OTHER if problem else EQUAL, problem)

  def _begin(self) -> None:
    shutil.rmtree(self._place, ignore_errors=True)
    self._log.write_text('')
    self._place.mkdir()
    if self.command.start:
      shutil.copytree(self.command.start, self._place / 'out')

  def _call(self, kill_after: float | None = None) -> tuple[int, float]:
    arguments = self.command.arguments(str(self._place / 'out'))
    return self._server.run(self._log, arguments, kill_after)

  def _refused(self) -> str:
    """What the last call says; '' if it is that the work was done."""
    said = self._log.read_text()[-500:]
    return '' if self.command.done and self.command.done in said else said


def _clock_of(process: int) -> int:
  """The clock of a process's processor time, as Linux numbers them.

  It is what clock_getcpuclockid(3) gives.
  """
  return ~process << 3 | 2
