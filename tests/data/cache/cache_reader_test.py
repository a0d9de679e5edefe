"""Tests of reading token caches and of rejecting invalid ones."""

import json
import os
import shutil

import numpy as np
import pytest
import safetensors.numpy

from tests.data.cache import writing
from tests.errors import raises_error
from xlflax.data.cache import cache_reader
from xlflax.data.corpus import corpus_directory
from xlflax.utils import errors


def test_single_task_can_be_read_as_a_mixture(complete_cache):
  cache = cache_reader.TokenCache(complete_cache[0])
  assert list(cache.open('corpus.mono.ru', 'train')) == ['corpus.mono.ru']


@pytest.fixture
def copy(complete_cache, tmp_path):
  shutil.copytree(complete_cache[0], tmp_path / 'copy')
  return tmp_path / 'copy'


def test_missing_cache_is_an_error(tmp_path):
  with raises_error(errors.CacheError, mentions='--mixture'):
    cache_reader.TokenCache(tmp_path / 'nothing')


def test_corpus_directory_is_rejected_as_a_cache(tmp_path):
  (tmp_path / 'corpus/mono').mkdir(parents=True)
  with raises_error(
    errors.CacheError, mentions=(tmp_path / 'corpus', '--corpus', '--cache')
  ):
    cache_reader.TokenCache(tmp_path / 'corpus')


def test_incomplete_cache_is_rejected(copy):
  shutil.rmtree(copy / 'tasks/corpus.mono.en')
  with raises_error(
    errors.CacheError,
    where='copy',
    mentions=(2, 3, 'corpus.mono', 'corpus.mono.en'),
  ):
    cache_reader.TokenCache(copy).open('corpus.mono', 'train')


def test_unknown_mixture_is_rejected_with_the_cached_mixtures(copy):
  with raises_error(
    errors.CacheError,
    got='c',
    where='copy',
    mentions=('corpus.mono', 'corpus.parallel'),
  ):
    cache_reader.TokenCache(copy).rates('c', 'train')


def test_tasks_of_cached_mixtures_are_suggested(copy):
  cache = cache_reader.TokenCache(copy)
  tasks = [*cache.open('corpus.mono', 'train')]
  with raises_error(
    errors.CacheError,
    got='corpus.mono.enn',
    mentions=('corpus.parallel', *tasks, 'Did you mean corpus.mono.en or'),
  ):
    cache.rates('corpus.mono.enn', 'train')


def test_different_vocabulary_is_rejected(copy, toy_vocabulary):
  cache = cache_reader.TokenCache(copy)
  cache.check_vocabulary(toy_vocabulary)
  with raises_error(errors.CacheError, where='copy', mentions=180):
    cache.check_vocabulary(writing.OtherVocabulary(toy_vocabulary))


def test_unsupported_or_malformed_header_is_rejected(copy):
  path = copy / 'cache.json'
  path.write_text(json.dumps(json.loads(path.read_text()) | {'format': 99}))
  with raises_error(errors.CacheError, got=99, where='cache.json', mentions=4):
    cache_reader.TokenCache(copy)
  path.write_text('{"format": 4, ')
  with raises_error(
    errors.CacheError, where='cache.json', mentions=(1, 15, 14)
  ):
    cache_reader.TokenCache(copy)


def _task(cache, name='corpus.mono.en'):
  return cache / 'tasks' / name / 'train'


def _flip(path, position, bit):
  content = bytearray(path.read_bytes())
  content[position] ^= 1 << bit
  path.write_bytes(content)


def _shards(cache):
  return sorted((_task(cache) / 'shards').iterdir())


def test_truncated_shard_is_rejected(copy):
  path = _shards(copy)[2]
  path.write_bytes(path.read_bytes()[:-9])
  with raises_error(errors.CacheError, where='train', mentions=path.name):
    cache_reader.TokenCache(copy).open('corpus.mono', 'train')


def test_shard_truncated_after_opening_is_rejected(copy):
  [*_, task] = (
    cache_reader.TokenCache(copy).open('corpus.mono', 'train').values()
  )
  [side] = task.sides
  starts, stops = side.bounds(np.arange(2))
  assert side.slices(starts, stops)[0].size
  shard = task.shards.entries[0].name
  [path] = copy.rglob(f'{shard}.safetensors')
  path.write_bytes(path.read_bytes()[:200])
  with raises_error(errors.CacheError, mentions=252):
    side.slices(starts, stops)


def test_missing_shard_is_named_and_restored(
  copy, toy_corpus, toy_vocabulary, complete_cache
):
  """Writing the cache again restores the shard and keeps the other shards."""
  path, other = _shards(copy)[:2]
  path.unlink()
  time = other.stat().st_mtime_ns
  with raises_error(errors.CacheError, where='train', mentions=path.name):
    cache_reader.TokenCache(copy).open('corpus.mono', 'train')
  writing.write(copy, toy_corpus, toy_vocabulary, mixtures=['corpus.mono'])
  cache_reader.TokenCache(copy).verify('corpus.mono', 'train')
  assert other.stat().st_mtime_ns == time
  same = cache_reader.TokenCache(complete_cache[0])
  assert same.digest('corpus.mono', 'train') == cache_reader.TokenCache(
    copy
  ).digest('corpus.mono', 'train')


@pytest.mark.parametrize('position', [-1, 40, -600])
def test_verify_detects_a_flipped_bit(copy, position):
  path = _shards(copy)[1]
  _flip(path, position, 0)
  with raises_error(
    errors.CacheError,
    mentions=(
      'corpus.mono.en',
      f'shards/{path.name}',
      '--mixture',
      'corpus.mono',
    ),
  ):
    cache_reader.TokenCache(copy).verify('corpus.mono', 'train')


@pytest.mark.parametrize('name', ['generation-1.json', 'digests.json'])
def test_small_files_are_always_verified(copy, name):
  _flip(_task(copy) / name, 20, 0)
  with raises_error(errors.CacheError, where='train', mentions=name):
    cache_reader.TokenCache(copy).open('corpus.mono', 'train')


def test_changed_header_is_rejected(copy):
  text = (copy / 'cache.json').read_text()
  (copy / 'cache.json').write_text(text.replace('"size": 180', '"size": 181'))
  with raises_error(errors.CacheError, where='cache.json'):
    cache_reader.TokenCache(copy)


def test_decreasing_offsets_are_rejected(copy, monkeypatch):
  """Offsets are validated even if the digests are not verified."""
  monkeypatch.setattr(cache_reader, '_MAX_VERIFIED_SIZE', 0)
  path = _shards(copy)[0]
  arrays = safetensors.numpy.load_file(path)
  arrays['targets.offsets'][5] = 10**9
  safetensors.numpy.save_file(arrays, path)
  [side] = (
    cache_reader.TokenCache(copy)
    .open('corpus.mono', 'train')['corpus.mono.en']
    .sides
  )
  with raises_error(errors.CacheError, mentions=1186):
    side.bounds(np.arange(3))


def test_task_of_another_cache_is_rejected(copy, tmp_path, toy_vocabulary):
  """The task itself is valid but does not match the header of the cache."""
  corpus = writing.english(tmp_path / 'corpus', ['the cat', 'the dog'])
  other = tmp_path / 'other'
  writing.write(other, corpus, toy_vocabulary, mixtures=['corpus.mono'])
  shutil.rmtree(_task(copy))
  shutil.copytree(_task(other), _task(copy))
  with raises_error(errors.CacheError, where='train'):
    cache_reader.TokenCache(copy).open('corpus.mono', 'train')


def test_digests_and_signatures_differ_between_contents(
  complete_cache, copy, tmp_path, toy_vocabulary
):
  cache = cache_reader.TokenCache(complete_cache[0])
  same = cache_reader.TokenCache(copy)
  assert same.digest('corpus.mono', 'train') == cache.digest(
    'corpus.mono', 'train'
  )
  assert cache.digest('corpus.mono', 'train') != cache.digest(
    'corpus.parallel', 'train'
  )
  before = same.signature('corpus.mono', 'train')
  shard = _shards(copy)[0]
  os.utime(shard)
  assert same.signature('corpus.mono', 'train') != before
  time = shard.stat().st_mtime_ns
  before = same.signature('corpus.mono', 'train')
  shard.write_bytes(bytes(shard.stat().st_size))
  os.utime(shard, ns=(time, time))  # The same size and time.
  assert same.signature('corpus.mono', 'train') != before


def test_changed_corpus_is_rejected(tmp_path, toy_vocabulary):
  corpus = writing.english(tmp_path / 'corpus', ['the cat', 'the dog'])
  writing.write(
    tmp_path / 'cache', corpus, toy_vocabulary, mixtures=['corpus.mono']
  )
  cache = cache_reader.TokenCache(tmp_path / 'cache')
  cache.check_corpus(corpus, 'corpus.mono', 'train')
  path = tmp_path / 'corpus/mono/en.txt'
  os.utime(path, ns=(1, 1))
  cache.check_corpus(corpus, 'corpus.mono', 'train')
  path.write_text(path.read_text().replace('dog', 'fox'))
  os.utime(path, ns=(1, 1))  # Different content of the same size and time.
  with raises_error(
    errors.CacheError,
    where='corpus',
    mentions=('corpus.mono.en', 'mono/en', 'mono/en.txt', '--overwrite'),
  ):
    cache.check_corpus(corpus, 'corpus.mono', 'train')
  path.write_text('the cat\n')
  (tmp_path / 'corpus/mono/en.more.txt').write_text('the dog\n')
  with raises_error(
    errors.CacheError,
    where='corpus',
    mentions=('mono/en', 'mono/en.more.txt', 'mono/en.txt', 8),
  ):
    cache.check_corpus(
      corpus_directory.Corpus(tmp_path / 'corpus'), 'corpus.mono', 'train'
    )
