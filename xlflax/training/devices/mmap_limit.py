"""Release of compiled programs when a process has too many memory maps.

JAX keeps compiled programs, and XLA:CPU creates dozens to hundreds of memory
maps for each. Linux limits the maps of a process to
`/proc/sys/vm/max_map_count`, 65,530 by default, beyond which XLA ends the
process. Code that compiles many programs, one run after the other, therefore
frees programs before each run if maps are scarce.
"""

import ctypes
import gc
import logging
import pathlib

import jax

_LOG = logging.getLogger(__name__)
_MAPS = pathlib.Path('/proc/self/maps')
_LIMIT = pathlib.Path('/proc/sys/vm/max_map_count')
_SCARCE_FRACTION = 0.4  # Fraction of the limit above which programs are freed.


def memory_maps() -> int:
  """Counts this process's memory maps, or returns 0 if /proc is missing."""
  return _MAPS.read_bytes().count(b'\n') if _MAPS.exists() else 0


def is_scarce() -> bool:
  """Returns whether this process uses a large part of its memory map limit."""
  if not _LIMIT.exists():
    return False
  return memory_maps() > _SCARCE_FRACTION * int(_LIMIT.read_text())


def free_programs() -> None:
  """Frees the memory of compiled programs that are no longer referenced.

  If a jitted function is called again later, its program is compiled again or
  read from the persistent compilation cache.
  """
  jax.clear_caches()
  gc.collect()
  if hasattr(library := ctypes.CDLL(None), 'malloc_trim'):
    library.malloc_trim(0)


def free_programs_if_scarce() -> None:
  """Collects garbage, and frees compiled programs if memory maps are scarce."""
  gc.collect()
  if is_scarce():
    num_maps = memory_maps()
    free_programs()
    _LOG.info(
      'Freed compiled programs. Memory maps: %d -> %d.', num_maps, memory_maps()
    )
