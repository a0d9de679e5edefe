"""Campaign of random kills of real processes.

A parent process imports the library and forks a process for each call, and
compiled programs are cached on disk, so that a call costs little more than its
own work. A case kills a command (SIGKILL) repeatedly at random moments and
restarts it until it finishes. Its output must then equal the output of one
uninterrupted call bit for bit.
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

from tests.campaigns import counts, killed_commands, output_comparison
from tests.end_to_end import conftest as end_to_end

KILLS, EQUAL, DIFFERENT = 'kills', 'identical results', 'different results'
_SERVER = """
import os, sys
from xlflax.data.seqio_tasks import tensorflow_setup
tensorflow_setup.load_tensorflow()
import jax
import xlflax.cli, xlflax.trainer, xlflax.evaluate
import xlflax.finetuning.finetune_grid, xlflax.training.train_loop
from xlflax.cli import cache, compilation_cache, convert, evaluate, finetune
from xlflax.cli import train, vocab
enable_cache = compilation_cache.enable
def enable_for_all_programs(directory):  # caches small programs too
  enable_cache(directory)
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
  jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)
compilation_cache.enable = enable_for_all_programs
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
    environment: Environment variables of the processes.
    call: Python code that each forked process executes. It can read the list
      `arguments`, whose first element is the path of the log file.
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
    """Runs a command; returns its wait status and CPU seconds.

    Args:
      log: File to which the output is appended.
      arguments: Arguments of `xlflax`.
      kill_after: CPU seconds after which the command is killed, independent of
        the load of the machine. If None, the command is not killed.
      number: Signal that kills the command.
    """
    child = self.start(log, arguments)
    if kill_after is not None:
      with contextlib.suppress(OSError):  # the process has ended
        while time.clock_gettime(_clock_id(child)) < kill_after:
          time.sleep(0.001)
        os.kill(child, number)
    return self.wait()

  def start(self, log: pathlib.Path, arguments: list[str]) -> int:
    """Starts a command; returns its process ID."""
    assert self._process.stdin and self._process.stdout
    print('\x1f'.join([str(log), *arguments]), file=self._process.stdin)
    self._process.stdin.flush()
    return int(self._process.stdout.readline())

  def wait(self) -> tuple[int, float]:
    """Returns the wait status and CPU seconds of the started command."""
    assert self._process.stdout
    status, seconds = self._process.stdout.readline().split()
    return int(status), float(seconds)

  def close(self) -> None:
    """Terminates the parent process."""
    assert self._process.stdin
    self._process.stdin.close()
    self._process.wait()


def run_campaign(
  space: end_to_end.Workspace,
  directory: pathlib.Path,
  *,
  kills: int,
  seed: int = 0,
  seconds: float = 0,
) -> dict[str, counts.Counts]:
  """Kills every command in turn at random moments.

  Args:
    space: Workspace with text, vocabulary and cache.
    directory: Working directory.
    kills: Minimum total number of kills. Every command is killed at least once,
      even if this exceeds `kills`.
    seed: Random seed for the moments at which commands are killed.
    seconds: Minimum duration.

  Returns:
    Mapping from the name of a command to its counts.
  """
  rng, start = random.Random(seed), time.monotonic()
  server = Server(space.environment())
  try:
    commands = [
      _KilledCommand(server, directory, command)
      for command in killed_commands.prepare_commands(server, space, directory)
    ]
    while True:
      for killed_command in commands:
        killed_command.run_round(rng)
      results = {
        killed_command.command.name: killed_command.counts
        for killed_command in commands
      }
      num_kills = sum(
        command_counts.outcomes[KILLS] for command_counts in results.values()
      )
      if num_kills >= kills and time.monotonic() - start >= seconds:
        return results
  finally:
    server.close()


class _KilledCommand:
  """A command and the expected output of one uninterrupted call."""

  def __init__(self, server, directory, command: killed_commands.Command):
    self.command, self.counts = command, counts.Counts()
    self._server, self._log = server, directory / 'log'
    self._directory = directory / command.name.replace(' ', '_')
    for _ in range(2 if command.compiles else 1):
      self._reset()
      status, self._duration = self._call()
      if status:
        raise RuntimeError(self._log.read_text()[-2000:])
    self._expected = output_comparison.read_outputs(self._directory)

  def run_round(self, rng: random.Random) -> None:
    """Kills the command `kills` times, then calls it until it ends."""
    self._reset()
    kills = 0
    while kills < self.command.kills:
      status, _ = self._call(rng.uniform(0, self._duration))
      if os.WIFSIGNALED(status):
        kills += 1
        self.counts.add(KILLS)
      else:  # the command ended before it was killed
        self._count_end(status)
        self._reset()
    self._count_end(self._call()[0])

  def _count_end(self, status: int) -> None:
    """Counts an end and whether its output is the expected output."""
    problem = self._unexpected_error() if status else ''
    problem = problem or output_comparison.describe_difference(
      output_comparison.read_outputs(self._directory), self._expected
    )
    problem = problem or output_comparison.verify_outputs(
      self._directory / 'out'
    )
    self.counts.add(DIFFERENT if problem else EQUAL, problem)

  def _reset(self) -> None:
    shutil.rmtree(self._directory, ignore_errors=True)
    self._log.write_text('')
    self._directory.mkdir()
    if self.command.start:
      shutil.copytree(self.command.start, self._directory / 'out')

  def _call(self, kill_after: float | None = None) -> tuple[int, float]:
    arguments = self.command.arguments(str(self._directory / 'out'))
    return self._server.run(self._log, arguments, kill_after)

  def _unexpected_error(self) -> str:
    """Returns the last call's output, or '' if the work was already done."""
    output = self._log.read_text()[-500:]
    return (
      ''
      if self.command.finished_message
      and self.command.finished_message in output
      else output
    )


def _clock_id(process: int) -> int:
  """Returns the Linux clock ID of a process's CPU time.

  It equals the result of clock_getcpuclockid(3).
  """
  return ~process << 3 | 2
