"""Limits a worker's memory, and fails a session that exceeds the limits.

The tests start hundreds of threads. By default, glibc gives up to eight threads
per core an arena of their own, whose free memory other threads cannot use.

JAX's caches hold thousands of compiled programs of any size. Each takes several
memory maps, of which Linux allows a process 65,530. Beyond that, XLA's compiler
fails with a segmentation fault.
"""

import ctypes
import os
import pathlib

import pytest

from xlflax.training.devices import mmap_limit

# Compiled programs are freed after a module that exceeds one of these limits.
_MANY_MAPS = 4_000
_MUCH_MEMORY = 2_200  # megabytes
_MOST_MAPS = 20_000
_MOST_MEMORY = 3_500  # megabytes

_ARENA_MAX = -8  # Parameter M_ARENA_MAX of glibc's mallopt.

if hasattr(library := ctypes.CDLL(None), 'mallopt'):
  library.mallopt(_ARENA_MAX, 2)

_most_maps = 0
_workers: dict[str, tuple[int, int]] = {}


def _memory(field: str) -> int:
  """Returns a field of /proc/self/status in megabytes; 0 if unknown.

  Args:
    field: VmRSS for the current memory, or VmHWM for the peak memory.
  """
  path = pathlib.Path('/proc/self/status')
  lines = path.read_text().splitlines() if path.exists() else []
  kilobytes = [int(x.split()[1]) for x in lines if x.startswith(f'{field}:')]
  return kilobytes[0] // 1000 if kilobytes else 0


@pytest.fixture(autouse=True, scope='module')
def programs_freed():
  """Frees compiled programs if there are many, or if they take much memory."""
  global _most_maps
  yield
  maps = mmap_limit.memory_maps()
  _most_maps = max(_most_maps, maps)
  if maps > _MANY_MAPS or _memory('VmRSS') > _MUCH_MEMORY:
    mmap_limit.free_programs()


def pytest_sessionfinish(session):
  """Reports a worker's peaks; fails a session that exceeded the limits."""
  peaks = _memory('VmHWM'), _most_maps
  if hasattr(session.config, 'workeroutput'):
    session.config.workeroutput['peaks'] = peaks
    return
  if not session.config.getoption('numprocesses', None):
    _workers[f'process {os.getpid()}'] = peaks
  if not session.config.getoption('--slow') and any(map(_is_over, _workers)):
    session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
  """Collects the peaks of a worker that ended."""
  if peaks := getattr(node, 'workeroutput', {}).get('peaks'):
    _workers[node.gateway.id] = tuple(peaks)


def pytest_terminal_summary(terminalreporter):
  """Prints a line per worker."""
  for name, (memory, maps) in sorted(_workers.items()):
    terminalreporter.write_line(
      f'{name}: at most {memory:,} MB and {maps:,} memory maps'
      + (' (TOO MUCH)' if _is_over(name) else '')
      + f'; allowed are {_MOST_MEMORY:,} MB and {_MOST_MAPS:,}'
    )


def _is_over(worker: str) -> bool:
  memory, maps = _workers[worker]
  return memory > _MOST_MEMORY or maps > _MOST_MAPS
