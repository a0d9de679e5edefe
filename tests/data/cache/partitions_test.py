"""Tests of cache partitions that are written by several machines."""

import fcntl

import pytest

from tests.data.cache import writing
from tests.errors import raises_error
from xlflax.data.cache import cache_reader, cache_writer
from xlflax.utils import errors


def test_partitions_in_any_order_give_the_same_files(
  complete_cache, tmp_path, toy_corpus, toy_vocabulary
):
  """One partition is written twice."""
  plan = writing.plan(
    tmp_path, toy_corpus, toy_vocabulary, mixtures=writing.BOTH
  )
  cache_writer.write_partition(plan, (2, 3))
  with raises_error(errors.CacheError, where=tmp_path, mentions='finalize'):
    cache_reader.TokenCache(tmp_path)
  with raises_error(
    errors.CacheError,
    where='shards',
    mentions=('corpus.mono', '--shard_index=I'),
  ):
    cache_writer.finalize_cache(plan)
  for index in (0, 2, 1):
    cache_writer.write_partition(plan, (index, 3))
  (tmp_path / '.creating-host-1').mkdir()  # left by a killed process
  (tmp_path / '.creating-host-1' / 'cache.json').touch()
  metas = cache_writer.finalize_cache(plan)
  assert [m.examples for m in metas] == [60, 200, 100, 50]
  assert writing.files(tmp_path) == writing.files(complete_cache[0])
  assert not list(tmp_path.glob('.lock-*'))


def test_partitions_are_disjoint_and_complete(
  tmp_path, toy_corpus, toy_vocabulary
):
  plan = writing.plan(
    tmp_path, toy_corpus, toy_vocabulary, mixtures=writing.BOTH
  )
  jobs = plan.jobs(plan.open_tasks())
  units = [cache_writer.select_partition(jobs, (i, 5)) for i in range(5)]
  names = [
    unit.part.name(number)
    for partition in units
    for unit in partition
    for number in range(unit.first, unit.last or unit.first + 1)
  ]
  assert len(names) == len(set(names))
  assert set(names) == {
    part.name(number)
    for job in jobs
    for part in job.parts
    for number in range(part.shards or 1)
  }


def test_partitions_of_two_library_versions_are_rejected(
  tmp_path, toy_corpus, toy_vocabulary, monkeypatch
):
  plan = writing.plan(tmp_path, toy_corpus, toy_vocabulary)
  cache_writer.write_partition(plan, (0, 2))
  kind = type(toy_vocabulary)
  with monkeypatch.context() as other:
    other.setattr(kind, 'library', 'sentencepiece 0.1')
    cache_writer.write_partition(plan, (1, 2))
  with raises_error(errors.CacheError, where='shards', mentions=('0.1', 2)):
    cache_writer.finalize_cache(plan)


def test_concurrent_writers_of_a_partition_are_rejected(
  tmp_path, toy_corpus, toy_vocabulary
):
  plan = writing.plan(tmp_path, toy_corpus, toy_vocabulary)
  with open(tmp_path / '.lock-1-of-4', 'w') as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    with pytest.raises(errors.CacheError):
      cache_writer.write_partition(plan, (1, 4))


def test_partition_with_another_vocabulary_is_rejected(
  tmp_path, toy_corpus, toy_vocabulary
):
  cache_writer.write_partition(
    writing.plan(tmp_path, toy_corpus, toy_vocabulary), (0, 9)
  )
  with raises_error(errors.CacheError, mentions=('--output', '--overwrite')):
    cache_writer.write_partition(
      writing.plan(
        tmp_path, toy_corpus, writing.OtherVocabulary(toy_vocabulary)
      ),
      (1, 9),
    )


def test_text_changed_between_partitions_is_rejected(tmp_path, toy_vocabulary):
  corpus = writing.english(tmp_path / 'corpus', ['the cat', 'the dog'])
  plan = writing.plan(
    tmp_path / 'cache', corpus, toy_vocabulary, mixtures=['corpus.mono']
  )
  cache_writer.write_partition(plan, (0, 1))
  writing.english(tmp_path / 'corpus', ['a bird'])
  with raises_error(
    errors.CacheError,
    where='train',
    mentions=('corpus.mono.en', 'mono/en.txt', 16),
  ):
    cache_writer.finalize_cache(plan)
  cache_writer.write_partition(plan, (0, 1))
  [meta] = cache_writer.finalize_cache(plan)
  assert meta.examples == 1
  assert len(list((tmp_path / 'cache').rglob('*.safetensors'))) == 1
