"""Memory of a process that computes on the CPU, kept between steps.

Each step of a program gets its arrays from glibc's allocator, which by default
gives large ones back to the kernel, and the next step faults every page in anew:
a fifth of a small model's processor time.
"""

import ctypes
import os

from xlflax.utils import accelerator_packages

# `mallopt`'s parameters of <malloc.h>, and what is set: one arena, whose end
# is never trimmed, and no block with a mapping of its own.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_SETTINGS = ((_ARENA_MAX, 1), (_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1))


def keep_memory() -> bool:
  """Keeps what is freed for the next step; must run before the first thread.

  Returns:
    Whether it was set: not where the environment has its own settings
    (MALLOC_… or GLIBC_TUNABLES), another allocator (LD_PRELOAD), or where JAX
    has an accelerator; nor where the C library is not glibc.
  """
  tunables = os.environ.get('GLIBC_TUNABLES', '')
  has_own_allocator = (
    'LD_PRELOAD' in os.environ
    or any(name.startswith('MALLOC_') for name in os.environ)
    or any(name in tunables for name in ('arena_', 'mmap_', 'trim_'))
  )
  elsewhere = os.environ.get('JAX_PLATFORMS') != 'cpu' and any(
    accelerator_packages.installed_packages(kind) for kind in ('gpu', 'tpu')
  )
  if has_own_allocator or elsewhere:
    return False
  library = ctypes.CDLL(None)
  if not hasattr(library, 'gnu_get_libc_version'):
    return False
  return all([library.mallopt(*setting) == 1 for setting in _SETTINGS])
