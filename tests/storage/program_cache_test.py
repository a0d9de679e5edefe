"""Entries of the compilation cache that are damaged are removed, once."""

import logging

import pytest

from tests.errors import assert_mentions
from xlflax.storage import program_cache


class _Files:
  """As JAX's cache of files: what is there is not written again."""

  def __init__(self, directory):
    self._directory = directory
    self.max_size = 7

  def get(self, key):
    path = self._directory / f'{key}-cache'
    return path.read_bytes() if path.exists() else None

  def put(self, key, value):
    path = self._directory / f'{key}-cache'
    if not path.exists():
      path.write_bytes(value)


@pytest.fixture
def cache(tmp_path):
  made = program_cache.SealedCache(_Files(tmp_path), tmp_path)
  for key in ('jit_f-1', 'jit_g-2'):
    made.put(key, f'program of {key}'.encode())
  return made


def test_what_was_written_is_read(cache, tmp_path):
  assert cache.get('jit_f-1') == b'program of jit_f-1'
  assert cache.get('jit_h-3') is None and cache.max_size == 7
  assert [p.name for p in program_cache.entries(tmp_path)] == [
    'jit_f-1-sealed-cache',
    'jit_g-2-sealed-cache',
  ]
  assert all(map(program_cache.is_whole, program_cache.entries(tmp_path)))


@pytest.mark.parametrize('damage', ['cut', 'empty', 'flip', 'bare', 'other'])
def test_a_damaged_entry_is_removed_and_written_again(
  cache, tmp_path, damage, caplog
):
  path, other = program_cache.entries(tmp_path)
  content = bytearray(path.read_bytes())
  if damage == 'flip':
    content[-3] ^= 1
  path.write_bytes(
    {
      'cut': content[:-1],
      'empty': b'',
      'flip': content,
      'bare': b'program of jit_f-1',
      'other': other.read_bytes(),
    }[damage]
  )
  assert not program_cache.is_whole(path)
  with caplog.at_level(logging.WARNING):
    assert cache.get('jit_f-1') is None
  assert not path.exists()
  assert_mentions(caplog.text, path)
  cache.put('jit_f-1', b'new')
  assert cache.get('jit_f-1') == b'new'
