"""Caches with valid digests and invalid values."""

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
def cache(written, tmp_path):
  shutil.copytree(written[0], tmp_path / 'cache')
  return tmp_path / 'cache'


def _read(cache):
  """All of a task, as training reads it."""
  token_cache = cache_reader.TokenCache(cache)
  token_cache.digest(_TASK, 'train')
  (task,) = token_cache.open(_TASK, 'train').values()
  task.shards.starts_document()
  for side in task.sides:
    count = sum(len(lengths) for lengths in side.lengths())
    starts, stops = side.bounds(np.arange(min(count, 3)))
    side.slices(starts, stops)
  return task


def _places(value, place=()):
  if place:
    yield place
  if isinstance(value, dict):
    for key in value:
      yield from _places(value[key], (*place, key))
  elif isinstance(value, list) and value:
    yield from _places(value[0], (*place, 0))


def _put(value, place, new):
  value = folder = copy.deepcopy(value)
  for key in place[:-1]:
    folder = folder[key]
  folder[place[-1]] = new
  return value


def _write(cache, path, content):
  """Writes JSON with all digests that lead to it, as a forger would."""
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
def test_every_value(cache, name):
  """Each is read, or refused in one message; nothing else is raised."""
  directory = cache_format.task_directory(cache, _TASK, 'train')
  header = cache / cache_format.CACHE_FILE
  path = header if name == 'header' else directory / 'generation-1.json'
  original_bytes = {
    p: p.read_bytes() for p in (header, path, directory / checksums.FILE)
  }
  before = json.loads(path.read_text())
  del before[checksums.OWN]
  pairs = list(itertools.product(_places(before), _VALUES))[::7]  # of each
  refused = 0
  for key_path, value in pairs:
    _write(cache, path, _put(before, key_path, value))
    try:
      _read(cache)
    except errors.CacheError as error:
      refused += 1
      assert len(str(error)) < 2_000
    for file, content in original_bytes.items():
      file.write_bytes(content)
  assert refused > len(pairs) / 2 > 10
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
def test_numbers_that_are_not_those_of_the_shard(cache, field, change):
  directory = cache_format.task_directory(cache, _TASK, 'train')
  path = directory / 'generation-1.json'
  before = json.loads(path.read_text())
  shard = before['shards'][0]
  new = change if isinstance(change, list) else shard[field] + change
  _write(cache, path, _put(before, ('shards', 0, field), new))
  with raises_error(errors.CacheError, mentions=(8, 188)):
    _read(cache)


def test_shards_outside_of_the_cache(cache):
  directory = cache_format.task_directory(cache, _TASK, 'train')
  path = directory / 'generation-1.json'
  before = json.loads(path.read_text())
  for name in ('../../../x', '/etc/passwd', 'a/b', ''):
    _write(cache, path, _put(before, ('shards', 0, 'name'), name))
    with raises_error(errors.CacheError, where='name'):
      _read(cache)


def test_files_outside_of_the_cache(cache):
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
def test_headers_of_shards(cache, change):
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
