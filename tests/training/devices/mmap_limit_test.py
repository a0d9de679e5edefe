"""Tests of freeing programs before memory maps run out."""

import pathlib

import jax
import jax.numpy as jnp
import pytest

from xlflax.training.devices import mmap_limit


def _compile(count):
  return [jax.jit(lambda x, i=i: jnp.tanh(x @ x) + i) for i in range(count)]


@pytest.fixture
def limit(tmp_path, monkeypatch):
  """Sets the number of maps that a process may have."""

  def of(value):
    path = tmp_path / 'max_map_count'
    path.write_text(f'{value}\n')
    monkeypatch.setattr(mmap_limit, '_LIMIT', path)

  return of


@pytest.mark.slow
def test_programs_are_freed_if_memory_maps_are_scarce(limit, caplog):
  held = _compile(6)
  values = [f(jnp.eye(3)) for f in held]
  maps = mmap_limit.memory_maps()
  limit(maps * 100)
  mmap_limit.free_programs_if_scarce()
  assert all(f._cache_size() == 1 for f in held)
  limit(maps)
  caplog.set_level('INFO')
  mmap_limit.free_programs_if_scarce()
  assert not any(f._cache_size() for f in held)
  assert mmap_limit.memory_maps() < maps
  assert 'Freed compiled programs' in caplog.text
  for f, value in zip(
    held, values, strict=True
  ):  # freed programs are recompiled
    assert (f(jnp.eye(3)) == value).all()


def test_system_without_proc_has_no_limit(monkeypatch):
  monkeypatch.setattr(mmap_limit, '_LIMIT', pathlib.Path('no/such/file'))
  monkeypatch.setattr(mmap_limit, '_MAPS', pathlib.Path('no/such/file'))
  assert mmap_limit.memory_maps() == 0
  assert not mmap_limit.is_scarce()
