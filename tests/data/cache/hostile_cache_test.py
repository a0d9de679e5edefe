"""Tests of caches with valid digests and invalid values."""

import copy
import itertools
import json
import shutil

import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.data.cache import cache_format, cache_reader
from xlflax.storage import checksums
from xlflax.utils import errors

_VALUES = (None, True, -1, 10**25, 1.5, float('nan'), 'x', '../../x', [], {})
_TASK = 'corpus.mono.ru'


@pytest.fixture
def cache(complete_cache, tmp_path):
  shutil.copytree(complete_cache[0], tmp_path / 'cache')
  return tmp_path / 'cache'


def _read(cache):
  """Reads all parts of a task, as training does."""
  token_cache = cache_reader.TokenCache(cache)
  token_cache.digest(_TASK, 'train')
  (task,) = token_cache.open(_TASK, 'train').values()
  task.shards.starts_document()
  for side in task.sides:
    count = sum(len(lengths) for lengths in side.lengths())
    starts, stops = side.bounds(np.arange(min(count, 3)))
    side.slices(starts, stops)
  return task


def _iterate_key_paths(value, key_path=()):
  if key_path:
    yield key_path
  if isinstance(value, dict):
    for key in value:
      yield from _iterate_key_paths(value[key], (*key_path, key))
  elif isinstance(value, list) and value:
    yield from _iterate_key_paths(value[0], (*key_path, 0))


def _replace_value(value, key_path, new):
  value = folder = copy.deepcopy(value)
  for key in key_path[:-1]:
    folder = folder[key]
  folder[key_path[-1]] = new
  return value


def _write(cache, path, content):
  """Writes JSON and updates all digests that depend on it."""
  cache_format.write_json(path, content)
  if path.name == cache_format.CACHE_FILE:
    return
  directory = path.parent
  seal = json.loads((directory / checksums.FILE).read_text())
  seal['files'][path.name] = checksums.digest_file(path)
  checksums.write_seal(directory, seal['files'], seal['about'])
  header = cache / cache_format.CACHE_FILE
  header_values = json.loads(header.read_text())
  key = cache_format.task_key(_TASK, 'train')
  header_values['generations'][-1]['tasks'][key]['digest'] = seal['files'][
    path.name
  ]
  cache_format.write_json(header, header_values)


@pytest.mark.parametrize('name', ['header', 'task'])
def test_invalid_values_are_read_or_rejected(cache, name):
  """No value may raise an error other than a short CacheError."""
  directory = cache_format.task_directory(cache, _TASK, 'train')
  header = cache / cache_format.CACHE_FILE
  path = header if name == 'header' else directory / 'generation-1.json'
  original_bytes = {
    p: p.read_bytes() for p in (header, path, directory / checksums.FILE)
  }
  before = json.loads(path.read_text())
  del before[checksums.OWN]
  pairs = list(itertools.product(_iterate_key_paths(before), _VALUES))[::7]
  num_rejected = 0
  for key_path, value in pairs:
    _write(cache, path, _replace_value(before, key_path, value))
    try:
      _read(cache)
    except errors.CacheError as error:
      num_rejected += 1
      assert len(str(error)) < 2_000
    for file, content in original_bytes.items():
      file.write_bytes(content)
  assert num_rejected > len(pairs) / 2 > 10
  _read(cache)


@pytest.mark.parametrize(
  ('field', 'change'),
  [
    ('examples', 1),
    ('examples', 10**11),
    ('tokens', [10**11]),
    ('tokens', [1]),
  ],
)
def test_wrong_counts_of_a_shard_are_rejected(cache, field, change):
  directory = cache_format.task_directory(cache, _TASK, 'train')
  path = directory / 'generation-1.json'
  before = json.loads(path.read_text())
  shard = before['shards'][0]
  new = change if isinstance(change, list) else shard[field] + change
  _write(cache, path, _replace_value(before, ('shards', 0, field), new))
  with raises_error(errors.CacheError, mentions=(8, 188)):
    _read(cache)


def test_shard_names_outside_of_the_cache_are_rejected(cache):
  directory = cache_format.task_directory(cache, _TASK, 'train')
  path = directory / 'generation-1.json'
  before = json.loads(path.read_text())
  for name in ('../../../x', '/etc/passwd', 'a/b', ''):
    _write(cache, path, _replace_value(before, ('shards', 0, 'name'), name))
    with raises_error(errors.CacheError, where='name'):
      _read(cache)


def test_file_names_outside_of_the_cache_are_rejected(cache):
  directory = cache_format.task_directory(cache, _TASK, 'train')
  seal = json.loads((directory / checksums.FILE).read_text())
  for name in ('../x', '/dev/zero', ''):
    checksums.write_seal(
      directory, seal['files'] | {name: '0-crc32c:AAAAAA=='}, seal['about']
    )
    with raises_error(errors.CacheError, where='train'):
      _read(cache)


@pytest.mark.parametrize(
  'change',
  [{'data_offsets': [0, 1 << 40], 'shape': [1 << 39]}, {'dtype': 'F8'}],
)
def test_invalid_shard_headers_are_rejected(cache, change):
  """The header keeps its length and declares invalid arrays."""
  directory = cache_format.task_directory(cache, _TASK, 'train')
  path = next((directory / 'shards').glob('*.safetensors'))
  content = path.read_bytes()
  length = int.from_bytes(content[:8], 'little')
  header = json.loads(content[8 : 8 + length])
  header['inputs' if 'inputs' in header else 'targets'] |= change
  text = json.dumps(header, separators=(',', ':')).encode()
  path.write_bytes(
    len(text).to_bytes(8, 'little') + text + content[8 + length :]
  )
  seal = json.loads((directory / checksums.FILE).read_text())
  name = f'shards/{path.name}'
  seal['files'][name] = checksums.digest_file(path)
  checksums.write_seal(directory, seal['files'], seal['about'])
  with pytest.raises(errors.CacheError):
    _read(cache)
