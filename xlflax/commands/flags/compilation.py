"""The flag of the persistent compilation cache, for commands that compile."""

import functools
import logging
import os
import pathlib
import platform

from xlflax.storage import paths, program_cache

FLAG = f"""
--compilation_cache DIR (default
  {os.environ.get('XLFLAX_COMPILATION_CACHE', '~/.cache/xlflax/compilation')}):
  folder of compiled programs, reused by later runs; "" for none
"""


def use(directory: str) -> None:
  """Turns the cache on, if a folder is given."""
  if not directory:
    return
  import jax

  path = paths.local(directory, where='--compilation_cache').expanduser()
  jax.config.update('jax_compilation_cache_dir', str(path))
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.5)
  _seal_entries()
  _share_among_processes()


def _seal_entries() -> None:
  """Has JAX read and write entries with digests (see `program_cache`)."""
  try:
    from jax._src import compilation_cache

    plain = compilation_cache.get_file_cache
  except (ImportError, AttributeError):
    logging.warning(
      'Compiled programs are kept without digests: this JAX is not known.'
    )
    return
  if getattr(plain, 'is_sealed', False):
    return

  def get_file_cache(directory: str):
    found = plain(directory)
    if found is None:
      return None
    base, where = found
    return program_cache.SealedCache(base, pathlib.Path(where)), where

  get_file_cache.is_sealed = True  # type: ignore[attr-defined]
  compilation_cache.get_file_cache = get_file_cache  # type: ignore[assignment]


def _share_among_processes() -> None:
  """Has the processes of a job on CPUs find each other's programs.

  JAX writes those of process 0 only, and its key for CPUs differs from process
  to process: the others would compile at every start. The key has the hosts'
  kind of processor instead.
  """
  try:
    from jax._src import cache_key

    plain = cache_key._hash_accelerator_config
  except (ImportError, AttributeError):
    return  # said above
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
  """The kind of this host's processor, with what it can do."""
  path = pathlib.Path('/proc/cpuinfo')
  lines = path.read_text().splitlines() if path.exists() else []
  kinds = ('flags', 'Features', 'model name', 'CPU part')
  return '\n'.join(
    [platform.machine(), *sorted({x for x in lines if x.startswith(kinds)})]
  )
