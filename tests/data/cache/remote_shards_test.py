"""Tests of caches in buckets: ranged reads and staging to disk."""

import os

import numpy as np
import pytest

from tests import fake_bucket
from tests.data.cache import writing
from tests.errors import raises_error
from xlflax.data import dataset_config
from xlflax.data.cache import (
  cache_format,
  cache_reader,
  local_copy,
  remote_shards,
)
from xlflax.data.cache import cached_loader as cache_loader
from xlflax.storage import paths
from xlflax.utils import errors

_BUCKET_CACHE = 'gs://bucket/cache'


@pytest.fixture(scope='module')
def local(tmp_path_factory, toy_corpus, toy_vocabulary):
  directory = tmp_path_factory.mktemp('cache')
  writing.write(directory, toy_corpus, toy_vocabulary)
  return directory


@pytest.fixture
def bucket(local):
  pytest.importorskip('gcsfs')
  shared_bucket = fake_bucket.get_shared_bucket()
  shared_bucket.objects.clear()
  for path in local.rglob('*'):
    if path.is_file():
      name = f'cache/{path.relative_to(local).as_posix()}'
      shared_bucket.put(name, path.read_bytes())
  return shared_bucket


def _dataset(**settings):
  return dataset_config.DatasetConfig(
    name='s', mixture='corpus.mono', length=16, batch_size=8, **settings
  )


@pytest.mark.parametrize('layout', ['blocks', 'sentences', 'interleaved'])
def test_batches_of_remote_and_local_caches_are_equal(
  bucket, local, toy_vocabulary, layout
):
  loaders = [
    cache_loader.CachedLoader(
      _dataset(layout=layout, locality=dataset_config.Locality(block_rows=4)),
      vocabulary=toy_vocabulary,
      seed=3,
      cache_dir=directory,
      verified=None,
    )
    for directory in (local, _BUCKET_CACHE)
  ]
  for step in range(3):
    local_rows, remote_rows = (loader.rows(step, 0, 8) for loader in loaders)
    for key, value in local_rows.items():
      np.testing.assert_array_equal(value, remote_rows[key])
  assert loaders[0].identity == loaders[1].identity


def test_block_cache_reuses_and_evicts_blocks(bucket):
  bucket.put('x', bytes(range(200)))
  blocks = remote_shards.BlockCache(max_blocks=2, block_size=16)
  assert blocks.read('gs://bucket/x', 10, 40) == bytes(range(10, 40))
  assert blocks.requests == 3
  assert blocks.read('gs://bucket/x', 20, 47) == bytes(range(20, 47))
  assert blocks.requests == 3  # the last two blocks were cached
  assert blocks.read('gs://bucket/x', 190, 200) == bytes(range(190, 200))
  assert blocks.requests == 5  # bytes 176..191 and 192..199


def test_missing_shard_in_a_bucket_is_rejected(bucket):
  [name] = [n for n in bucket.objects if 'mono.en' in n and '-000001.' in n]
  del bucket.objects[name]
  cache = cache_reader.TokenCache(_BUCKET_CACHE)
  with raises_error(
    errors.CacheError, where='gs://bucket/cache/tasks/corpus.mono.en/train'
  ):
    cache.open('corpus.mono', 'train')


def test_staging_copies_only_missing_files(bucket, local, tmp_path):
  """Files with damaged content are rejected."""
  cache = cache_reader.TokenCache(_BUCKET_CACHE)
  tasks = [('corpus.mono.en', 'train'), ('corpus.mono.de', 'train')]
  staged = []
  first = local_copy.copy_tasks(
    cache, tmp_path, tasks[:1], report=staged.append
  )
  assert staged[-1] == first and first.done_bytes == first.total_bytes
  second = local_copy.copy_tasks(cache, tmp_path, tasks)
  assert 0 < second.copied_files
  copied = cache_reader.TokenCache(tmp_path)
  copied.open('corpus.mono.en', 'train')
  copied.verify('corpus.mono.de', 'train')
  [path] = tmp_path.rglob('en.txt*-000002.safetensors')
  time = os.stat(path).st_mtime_ns
  path.with_name(path.name.replace('-000002', '-000001')).unlink()
  third = local_copy.copy_tasks(cache, tmp_path, tasks)
  assert third.copied_files == 1 and os.stat(path).st_mtime_ns == time
  source = cache_format.task_directory(_BUCKET_CACHE, 'corpus.mono.ru', 'train')
  name = next(p for p in paths.list_directory(source / 'shards'))
  name.write_bytes(name.read_bytes()[:-1] + b'?')
  with raises_error(errors.CacheError, mentions='verify'):
    local_copy.copy_tasks(cache, tmp_path, [('corpus.mono.ru', 'train')])


def test_staging_replaces_metadata_of_another_cache(local, tmp_path):
  """Metadata files of the same size are copied again, unlike shards."""
  cache = cache_reader.TokenCache(local)
  tasks = [('corpus.mono.en', 'train')]
  local_copy.copy_tasks(cache, tmp_path, tasks)
  for name in ('digests.json', 'generation-1.json'):
    [path] = tmp_path.rglob(name)
    path.write_bytes(path.read_bytes().swapcase())
  assert local_copy.copy_tasks(cache, tmp_path, tasks).copied_files == 2
  cache_reader.TokenCache(tmp_path).verify('corpus.mono.en', 'train')


def test_staging_to_a_full_disk_is_rejected(local, tmp_path, monkeypatch):
  class Usage:
    free = 10

  monkeypatch.setattr(local_copy.shutil, 'disk_usage', lambda _: Usage)
  with raises_error(errors.CacheError, mentions=10):
    local_copy.copy_tasks(
      cache_reader.TokenCache(local), tmp_path, [('corpus.mono.en', 'train')]
    )
