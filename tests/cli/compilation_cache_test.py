"""The compilation cache: a damaged entry is compiled again, and only once."""

import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import cache_key, compilation_cache
from jax.experimental.compilation_cache import compilation_cache as public

from xlflax.cli import compilation_cache as command_cache
from xlflax.storage import program_cache

_SETTINGS = (
  'jax_enable_compilation_cache',
  'jax_compilation_cache_dir',
  'jax_persistent_cache_min_compile_time_secs',
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """Where JAX keeps programs now; afterwards as before."""
  before = {name: getattr(jax.config, name) for name in _SETTINGS}
  monkeypatch.setattr(
    compilation_cache, 'get_file_cache', compilation_cache.get_file_cache
  )
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
  """A result of a program, and whether it was read (1) or compiled (0)."""
  events: list[str] = []
  jax.clear_caches()
  public.reset_cache()

  def heard(name, **_):
    events.append(name)

  jax.monitoring.register_event_listener(heard)
  try:
    value = jax.jit(lambda x: jnp.sin(x) * 2 + x**3)(jnp.float32(0.5))
  finally:
    jax.monitoring.unregister_event_listener(heard)
  return float(value), events.count('/jax/compilation_cache/cache_hits')


@pytest.mark.parametrize('damage', ['cut', 'flip'])
def test_a_damaged_program_is_made_anew(folder, damage):
  """It once was an error, and compiled again, at every start."""
  value, _ = _compiled()
  entries = program_cache.entries(folder)
  assert entries and not list(folder.glob('*[!d]-cache'))
  assert _compiled() == (value, len(entries))
  for entry in entries:
    content = bytearray(entry.read_bytes())
    if damage == 'flip':
      content[len(content) // 2] ^= 4
    entry.write_bytes(content[: 100 if damage == 'cut' else None])
  assert _compiled() == (value, 0)
  assert _compiled() == (value, len(entries))
  assert all(map(program_cache.is_whole, program_cache.entries(folder)))


def test_it_is_sealed_once(folder):
  sealed = compilation_cache.get_file_cache
  command_cache.enable(str(folder))
  assert compilation_cache.get_file_cache is sealed


def test_a_jax_that_is_not_known(folder, monkeypatch, caplog):
  monkeypatch.delattr(compilation_cache, 'get_file_cache')
  command_cache.enable(str(folder))
  assert 'without digests' in caplog.text


class _Device:
  platform = 'cpu'

  def __init__(self, process_index: int):
    self.process_index = process_index


def test_the_key_is_the_same_for_all_processes_of_a_job(folder):
  """JAX's own fingerprint of CPUs differs from process to process."""
  keys = []
  for devices in ((0, 1), (0, 1), (0, 1, 2)):
    found = hashlib.sha256()
    cache_key._hash_accelerator_config(
      found, np.array([_Device(i) for i in devices])
    )
    keys.append(found.digest())
  assert keys[0] == keys[1] != keys[2]
  assert command_cache._processor().strip()
