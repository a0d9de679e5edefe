"""Functions that time calls and run benchmarks in subprocesses."""

import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

# Flags in /proc/cpuinfo and the names of their instructions, widest first.
_INSTRUCTIONS = {'amx_tile': 'AMX', 'avx512f': 'AVX-512', 'avx2': 'AVX2'}
ROOT = pathlib.Path(__file__).resolve().parent.parent


def time_calls(call: Callable[[], Any], *, calls: int) -> dict[str, Any]:
  """Measures the time of each call to a function, and the peak memory use.

  The first call, which compiles or allocates, is reported separately.

  Args:
    call: Function to time.
    calls: Number of timed calls, after a first call that is not timed.

  Returns:
    'first_seconds', the lists 'seconds' and 'cpu_seconds' of the timed calls,
    and 'peak_bytes' of the process.
  """

  def time_call():
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu

  first_call = time_call()
  timings = [time_call() for _ in range(calls)]
  return {
    'first_seconds': first_call[0],
    'seconds': [timing[0] for timing in timings],
    'cpu_seconds': [timing[1] for timing in timings],
    'peak_bytes': peak_resident_bytes(),
  }


def describe_processor(
  cpu_info: pathlib.Path = pathlib.Path('/proc/cpuinfo'),
) -> str:
  """Returns the CPU model and its most advanced vector or matrix instructions.

  The ratio between two libraries depends on both. An example is 'AMD EPYC
  (AVX2)'.

  Args:
    cpu_info: File in which Linux describes the processor. On other systems, the
      file does not exist, and the result is the architecture.
  """
  if not cpu_info.exists():
    return platform.processor() or platform.machine()
  fields: dict[str, str] = {}
  for line in cpu_info.read_text().splitlines():
    name, _, value = line.partition(':')
    fields.setdefault(name.strip(), value.strip())
  flags = fields.get('flags', '').split()
  model = fields.get('model name') or platform.machine()
  for flag, instructions in _INSTRUCTIONS.items():
    if flag in flags:
      return f'{model} ({instructions})'
  return model


def peak_resident_bytes() -> int:
  """Returns this process's peak resident memory in bytes.

  On Linux, `ru_maxrss` starts from the parent's value, whereas `VmHWM` counts
  this process alone. `VmHWM` is therefore used where it is available.
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
  """Runs `python -m module arguments` and parses the last line of its output.

  Args:
    module: Module whose last line of output is a JSON object.
    *arguments: Command-line arguments of the module.
    cores: Number of CPU cores that the process may use (Linux only). If None,
      it may use all cores.
    huge_pages: Whether glibc requests huge pages from the kernel, which avoids
      most of the page faults that large arrays cause.

  Returns:
    The parsed JSON object.

  Raises:
    RuntimeError: If the process fails. The message contains the end of its
      output.
  """
  env = {'TF_CPP_MIN_LOG_LEVEL': '3', **os.environ}
  command = [sys.executable, '-m', module, *arguments]
  if cores is not None:
    cpu_ids = sorted(os.sched_getaffinity(0))[-cores:]
    command = ['taskset', '-c', ','.join(map(str, cpu_ids)), *command]
    env['OMP_NUM_THREADS'] = str(cores)
  if huge_pages:
    env['GLIBC_TUNABLES'] = 'glibc.malloc.hugetlb=1'
  process = subprocess.run(
    command, cwd=ROOT, text=True, capture_output=True, env=env, check=False
  )
  if process.returncode:
    raise RuntimeError(
      f'`python -m {module} {" ".join(arguments)}` failed:\n'
      + (process.stderr or process.stdout)[-2000:]
    )
  return json.loads(process.stdout.strip().splitlines()[-1])


def run_interleaved(
  variants: Sequence[str], run: Callable[[str], dict[str, Any]], *, rounds: int
) -> dict[str, dict[str, Any]]:
  """Runs all variants in each round, and reverses the order for the next round.

  Args:
    variants: Names of the variants to measure.
    run: Function that measures one variant in a subprocess.
    rounds: Number of times that each variant is run.

  Returns:
    Map from variant to its measurements over all rounds, in the format of
    `time_calls`.
  """
  results = {name: [] for name in variants}
  for i in range(rounds):
    for name in variants if i % 2 == 0 else reversed(variants):
      print(f'round {i + 1} of {rounds}: {name}', file=sys.stderr, flush=True)
      results[name].append(run(name))
  return {name: _pool_runs(runs) for name, runs in results.items()}


def _pool_runs(runs) -> dict[str, Any]:
  """Merges the measurements from several runs of one variant."""
  timings = {
    key: [value for run in runs for value in run[key]]
    for key in ('seconds', 'cpu_seconds')
  }
  return timings | {
    'first_seconds': statistics.median(run['first_seconds'] for run in runs),
    'peak_bytes': max(run['peak_bytes'] for run in runs),
  }
