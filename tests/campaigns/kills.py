"""Random kills of real processes: each run ends as if nobody had touched it.

A parent imports the library and forks a process for each run, so that a run
costs its steps and little else. A case is a run that is killed (SIGKILL) at
random moments and started again until it ends; its parameters and its metrics
must then be those of the uninterrupted run, bit by bit, without leftovers.
"""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np

from tests.campaigns import counts as counts_lib
from tests.end_to_end import conftest as end_to_end

_SERVER = """
import os, sys
import xlflax.cli, xlflax.trainer, xlflax.evaluate
import xlflax.commands.train, xlflax.commands.evaluate
for line in sys.stdin:
  arguments = line.rstrip('\\n').split('\\x1f')
  child = os.fork()
  if not child:
    log = os.open(arguments[0], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os._exit(xlflax.cli.main(arguments[1:]))
  print(child, flush=True)
  print(os.waitpid(child, 0)[1], flush=True)
"""
_STEPS = 12
_KILLS = 6  # of a run, at most


class Server:
  """Runs `xlflax` commands in forked processes, one after the other."""

  def __init__(self, environment: dict[str, str]):
    self._process = subprocess.Popen(
      [sys.executable, '-c', _SERVER],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
      env=environment,
    )

  def run(
    self, log: pathlib.Path, *arguments: str, kill_after: float | None = None
  ) -> int:
    """The wait status of a command; it is killed after so many seconds."""
    assert self._process.stdin and self._process.stdout
    print('\x1f'.join([str(log), *arguments]), file=self._process.stdin)
    self._process.stdin.flush()
    child = int(self._process.stdout.readline())
    if kill_after is not None:
      time.sleep(kill_after)
      with contextlib.suppress(ProcessLookupError):  # it has ended
        os.kill(child, signal.SIGKILL)
    return int(self._process.stdout.readline())

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
  seconds: float = 1e9,
) -> counts_lib.Counts:
  """Kills runs of `xlflax train` at random moments.

  Args:
    space: text, vocabulary and cache.
    directory: to work in.
    kills: how many, at least.
    seed: of the moments.
    seconds: no case begins after so many.
  """
  rng, found = random.Random(seed), counts_lib.Counts()
  server = Server(space.environment())
  start = time.monotonic()
  try:
    whole = directory / 'whole'
    arguments = _arguments(space)
    for _ in range(2):  # the second one finds compiled programs
      shutil.rmtree(whole, ignore_errors=True)
      begin = time.monotonic()
      if server.run(directory / 'log', *arguments, f'--model_dir={whole}'):
        raise RuntimeError((directory / 'log').read_text()[-2000:])
      takes = time.monotonic() - begin
    while (
      found.outcomes['kills'] < kills and time.monotonic() - start < seconds
    ):
      run = directory / 'run'
      shutil.rmtree(run, ignore_errors=True)
      _case(server, run, arguments, rng, takes, found)
      found.add('ends', _difference(run, whole))
  finally:
    server.close()
  return found


def _case(server, run, arguments, rng, takes, found) -> None:
  """One run: some kills, then to its end."""
  log = run.with_name('log')
  for _ in range(_KILLS):
    moment = rng.uniform(0.05, 0.7) * takes
    status = server.run(
      log, *arguments, f'--model_dir={run}', kill_after=moment
    )
    if not os.WIFSIGNALED(status):
      return  # it had ended by itself
    found.add('kills')
  if server.run(log, *arguments, f'--model_dir={run}'):
    found.add('failed restarts', log.read_text()[-500:])


def _arguments(space: end_to_end.Workspace) -> list[str]:
  return [
    'train',
    *end_to_end.TINY,
    *space.inputs,
    space.cache,
    f'--gin.TRAIN_STEPS={_STEPS}',
    '--gin.checkpoints.CheckpointOptions.every_steps=2',
    '--gin.trainer.Trainer.log_every_steps=1',
  ]


def _difference(run: pathlib.Path, whole: pathlib.Path) -> str:
  """What a run that was killed differs in; '' for nothing."""
  try:
    ours = end_to_end.parameters(run, _STEPS)
    theirs = end_to_end.parameters(whole, _STEPS)
    if any(not np.array_equal(ours[name], theirs[name]) for name in theirs):
      return 'other parameters'
    if _lines(run) != _lines(whole):
      return f'metrics lines: {len(_lines(run))}, not {len(_lines(whole))}'
  except Exception as error:
    return f'{type(error).__name__}: {error}'[:300]
  left = sorted(_names(run) - _names(whole))
  return f'left behind: {left}' if left else ''


def _lines(run: pathlib.Path) -> list[tuple]:
  """Step and training metrics of every line."""
  rows = (run / 'metrics.jsonl').read_text().splitlines()
  return [(row['step'], row.get('train')) for row in map(json.loads, rows)]


def _names(run: pathlib.Path) -> set[str]:
  """Everything beside the data files, whose names are random."""
  return {
    path.relative_to(run).as_posix()
    for path in run.rglob('*')
    if path.parent.name != 'd' and 'tfevents' not in path.name
  }
