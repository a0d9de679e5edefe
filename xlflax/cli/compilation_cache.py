"""Persistent compilation cache for commands that compile JAX programs."""

import functools
import pathlib
import platform

from xlflax.storage import paths


def enable(directory: str) -> None:
  """Enables JAX's persistent compilation cache.

  Args:
    directory: Directory of the cache. If empty, the cache stays disabled.
  """
  if not directory:
    return
  import jax

  path = paths.to_local_path(
    directory, where='--compilation_cache'
  ).expanduser()
  jax.config.update('jax_compilation_cache_dir', str(path))
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.5)
  _share_among_processes()


def _share_among_processes() -> None:
  """Shares cache entries among the processes of a job on CPUs.

  JAX writes cache entries only in process 0, and its cache key for CPUs differs
  between processes. All other processes would therefore compile at every start.
  This function replaces the key with one that contains the hosts' processor
  model.
  """
  try:
    from jax._src import cache_key

    plain = cache_key._hash_accelerator_config
  except (ImportError, AttributeError):
    return
  if getattr(plain, 'is_shared', False):
    return

  def hash_accelerators(hash_object, accelerators):
    if len({device.process_index for device in accelerators.flat}) < 2:
      return plain(hash_object, accelerators)
    if accelerators.flat[0].platform != 'cpu':
      return plain(hash_object, accelerators)
    return hash_object.update(f'{accelerators.shape} {_processor()}'.encode())

  hash_accelerators.is_shared = True  # type: ignore[attr-defined]
  cache_key._hash_accelerator_config = hash_accelerators


@functools.cache
def _processor() -> str:
  """Returns the model and the features of this host's processor."""
  path = pathlib.Path('/proc/cpuinfo')
  lines = path.read_text().splitlines() if path.exists() else []
  prefixes = ('flags', 'Features', 'model name', 'CPU part')
  return '\n'.join(
    [platform.machine(), *sorted({x for x in lines if x.startswith(prefixes)})]
  )
