"""Memory-allocator settings for training on CPUs.

Each step of a program allocates its arrays with glibc, which by default returns
large blocks to the kernel. The next step then causes a page fault for each of
their pages, which takes a fifth of the CPU time of a small model.
"""

import ctypes
import os

from xlflax.utils import accelerator_packages

# Parameters of `mallopt` (<malloc.h>) and their values: one arena that is never
# trimmed, and no blocks that are allocated with `mmap`.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_SETTINGS = ((_ARENA_MAX, 1), (_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1))


def keep_memory() -> bool:
  """Configures glibc to keep freed memory for the next training step.

  This function must be called before the first thread starts.

  Returns:
    Whether the settings were changed. They are not changed if the environment
    has its own settings (MALLOC_… or GLIBC_TUNABLES) or another allocator
    (LD_PRELOAD), if JAX can use an accelerator, or if the C library is not
    glibc.
  """
  tunables = os.environ.get('GLIBC_TUNABLES', '')
  has_own_allocator = (
    'LD_PRELOAD' in os.environ
    or any(name.startswith('MALLOC_') for name in os.environ)
    or any(name in tunables for name in ('arena_', 'mmap_', 'trim_'))
  )
  has_accelerator = os.environ.get('JAX_PLATFORMS') != 'cpu' and any(
    accelerator_packages.installed_packages(kind) for kind in ('gpu', 'tpu')
  )
  if has_own_allocator or has_accelerator:
    return False
  library = ctypes.CDLL(None)
  if not hasattr(library, 'gnu_get_libc_version'):
    return False
  return all([library.mallopt(*setting) == 1 for setting in _SETTINGS])
