"""Room for compiled programs in one process.

JAX keeps what it has compiled, and XLA:CPU gives each program some dozens to
hundreds of memory maps, of which Linux allows a process
`/proc/sys/vm/max_map_count`, 65,530 where nobody changed it. Beyond that XLA
ends the process. So what makes many programs, one run after the other, asks
for room before each of them.
"""

import ctypes
import gc
import logging
import pathlib

import jax

_LOG = logging.getLogger(__name__)
_MAPS = pathlib.Path('/proc/self/maps')
_LIMIT = pathlib.Path('/proc/sys/vm/max_map_count')
_SHARE = 0.4  # of the limit, after which programs are freed


def memory_maps() -> int:
  """Number of this process's memory maps; 0 where the system has no /proc."""
  return _MAPS.read_bytes().count(b'\n') if _MAPS.exists() else 0


def is_scarce() -> bool:
  """Whether the process has a large share of the maps that it may have."""
  if not _LIMIT.exists():
    return False
  return memory_maps() > _SHARE * int(_LIMIT.read_text())


def free_programs() -> None:
  """Frees the compiled programs that nobody holds, and their memory.

  What is called again is compiled again, or read from the persistent cache.
  """
  jax.clear_caches()
  gc.collect()
  if hasattr(library := ctypes.CDLL(None), 'malloc_trim'):
    library.malloc_trim(0)


def make_room() -> None:
  """Frees compiled programs if memory maps are scarce, and cycles always."""
  gc.collect()
  if is_scarce():
    before = memory_maps()
    free_programs()
    _LOG.info('Compiled programs: %d -> %d memory maps', before, memory_maps())
