"""Tests of JAX's persistent compilation cache (`--compilation_cache`)."""

import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import cache_key
from jax.experimental.compilation_cache import compilation_cache as public

from xlflax.cli import compilation_cache as command_cache

_SETTINGS = (
  'jax_enable_compilation_cache',
  'jax_compilation_cache_dir',
  'jax_persistent_cache_min_compile_time_secs',
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """Directory of JAX's cache; the setting is restored after the test."""
  before = {name: getattr(jax.config, name) for name in _SETTINGS}
  monkeypatch.setattr(
    cache_key, '_hash_accelerator_config', cache_key._hash_accelerator_config
  )
  public.reset_cache()
  command_cache.enable(str(tmp_path))
  jax.config.update('jax_enable_compilation_cache', True)
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
  yield tmp_path
  for name, value in before.items():
    jax.config.update(name, value)
  public.reset_cache()


def _compiled() -> tuple[float, int]:
  """Returns the result of a program and whether the cache contained it."""
  events: list[str] = []
  jax.clear_caches()
  public.reset_cache()

  def record_event(name, **_):
    events.append(name)

  jax.monitoring.register_event_listener(record_event)
  try:
    value = jax.jit(lambda x: jnp.sin(x) * 2 + x**3)(jnp.float32(0.5))
  finally:
    jax.monitoring.unregister_event_listener(record_event)
  return float(value), events.count('/jax/compilation_cache/cache_hits')


def test_truncated_program_is_compiled_again(folder):
  value, _ = _compiled()
  entries = list(folder.glob('*-cache'))
  assert entries
  assert _compiled() == (value, len(entries))
  for entry in entries:
    entry.write_bytes(entry.read_bytes()[:100])
  with pytest.warns(UserWarning, match='persistent compilation cache'):
    assert _compiled() == (value, 0)


class _Device:
  platform = 'cpu'

  def __init__(self, process_index: int):
    self.process_index = process_index


def test_cache_key_is_the_same_for_all_processes_of_a_job(folder):
  """JAX's own fingerprint of CPUs differs between processes."""
  keys = []
  for devices in ((0, 1), (0, 1), (0, 1, 2)):
    hasher = hashlib.sha256()
    cache_key._hash_accelerator_config(
      hasher, np.array([_Device(i) for i in devices])
    )
    keys.append(hasher.digest())
  assert keys[0] == keys[1] != keys[2]
  assert command_cache._processor().strip()
