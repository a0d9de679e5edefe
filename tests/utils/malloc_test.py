"""Tests that the process keeps freed memory, measured by page faults."""

import os
import subprocess
import sys

import pytest

# Eight blocks of 24 MB are written and freed, four times, in another thread.
_PROGRAM = """
import ctypes, resource, threading
from xlflax.utils import malloc
print(malloc.keep_memory())
c = ctypes.CDLL(None)
c.malloc.restype = ctypes.c_void_p
c.malloc.argtypes = [ctypes.c_size_t]
c.free.argtypes = [ctypes.c_void_p]
c.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
def use():
  for _ in range(4):
    blocks = [c.malloc(24 << 20) for _ in range(8)]
    for block in blocks:
      c.memset(block, 1, 24 << 20)
    for block in blocks:
      c.free(block)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
thread = threading.Thread(target=use)
thread.start()
thread.join()
after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print((after - before) * resource.getpagesize() >> 20)
"""


def _run(**environment: str) -> tuple[str, int]:
  base_environment = {
    k: v for k, v in os.environ.items() if not k.startswith('MALLOC_')
  }
  done = subprocess.run(
    [sys.executable, '-c', _PROGRAM],
    capture_output=True,
    text=True,
    check=True,
    env=base_environment | environment,
  )
  was_set, faulted = done.stdout.split()
  return was_set, int(faulted)


@pytest.mark.skipif(sys.platform != 'linux', reason='the allocator of glibc')
def test_freed_memory_is_reused():
  was_set, faulted = _run(JAX_PLATFORMS='cpu')
  assert was_set == 'True'
  assert faulted < 2 * 8 * 24


@pytest.mark.skipif(sys.platform != 'linux', reason='the allocator of glibc')
def test_malloc_settings_of_the_environment_are_kept():
  was_set, faulted = _run(JAX_PLATFORMS='cpu', MALLOC_ARENA_MAX='2')
  assert was_set == 'False'
  assert faulted > 3 * 8 * 24
