"""Timing a step in this process, and running variants in their own ones."""

import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent


def time_calls(call: Callable[[], Any], *, calls: int) -> dict[str, Any]:
  """Wall and processor seconds of each of `calls` calls, and peak memory.

  The first call, which compiles or allocates, is reported apart.
  """

  def one():
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu

  first = one()
  timed = [one() for _ in range(calls)]
  return {
    'first_seconds': first[0],
    'seconds': [t[0] for t in timed],
    'cpu_seconds': [t[1] for t in timed],
    'peak_bytes': peak_resident_bytes(),
  }


def peak_resident_bytes() -> int:
  """The most memory that this process has had resident.

  `ru_maxrss` starts from the parent's figure on Linux, the process's own high
  water mark does not; so the latter is taken where there is one.
  """
  status = pathlib.Path('/proc/self/status')
  if status.exists():
    for line in status.read_text().splitlines():
      if line.startswith('VmHWM:'):
        return int(line.split()[1]) * 1024
  unit = 1 if sys.platform == 'darwin' else 1024
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def run_module(
  module: str,
  *arguments: str,
  cores: int | None = None,
  huge_pages: bool = False,
) -> dict[str, Any]:
  """Runs `python -m module arguments` and parses the last line it prints.

  Args:
    module: its last line of output is a JSON object.
    *arguments: for the module.
    cores: processor cores that it may use, Linux only; None for all.
    huge_pages: whether glibc asks the kernel for huge pages, which spares
      most page faults of large arrays.

  Raises:
    RuntimeError: it failed; the end of its output is in the message.
  """
  env = {'TF_CPP_MIN_LOG_LEVEL': '3', **os.environ}
  command = [sys.executable, '-m', module, *arguments]
  if cores is not None:
    allowed = sorted(os.sched_getaffinity(0))[-cores:]
    command = ['taskset', '-c', ','.join(map(str, allowed)), *command]
    env['OMP_NUM_THREADS'] = str(cores)
  if huge_pages:
    env['GLIBC_TUNABLES'] = 'glibc.malloc.hugetlb=1'
  done = subprocess.run(
    command, cwd=ROOT, text=True, capture_output=True, env=env, check=False
  )
  if done.returncode:
    raise RuntimeError(
      f'{module} {" ".join(arguments)} failed:\n'
      + (done.stderr or done.stdout)[-2000:]
    )
  return json.loads(done.stdout.strip().splitlines()[-1])


def run_interleaved(
  variants: Sequence[str], run: Callable[[str], dict[str, Any]], *, rounds: int
) -> dict[str, dict[str, Any]]:
  """Runs every variant once a round, every second round backwards.

  Args:
    variants: names.
    run: measures one variant in a process of its own.
    rounds: how often each is run.

  Returns:
    variant -> its figures over all rounds, as `time_calls` gives them.
  """
  results = {name: [] for name in variants}
  for i in range(rounds):
    for name in variants if i % 2 == 0 else reversed(variants):
      print(f'round {i + 1} of {rounds}: {name}', file=sys.stderr, flush=True)
      results[name].append(run(name))
  return {name: _pool_runs(runs) for name, runs in results.items()}


def _pool_runs(runs) -> dict[str, Any]:
  pooled = {
    key: [x for run in runs for x in run[key]]
    for key in ('seconds', 'cpu_seconds')
  }
  return pooled | {
    'first_seconds': statistics.median(r['first_seconds'] for r in runs),
    'peak_bytes': max(r['peak_bytes'] for r in runs),
  }
