"""Tests of caches whose text has changed."""

import functools
import logging

import pytest

from tests.data.cache import reading, writing
from tests.errors import assert_mentions, raises_error
from xlflax.data.cache import cache_reader, cache_writer
from xlflax.data.cache import shard_plan as cache_parts
from xlflax.data.corpus import corpus_writer
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.plain_text.corpus_directory_tasks import CorpusTasks
from xlflax.utils import errors

_ADD = cache_writer.Changed.ADD
_REPLACE = cache_writer.Changed.REPLACE


def _write_text(directory, code, lines, **settings):
  corpus_writer.write_monolingual(directory, code, [lines], **settings)


@pytest.fixture
def make_plan(tmp_path, toy_vocabulary):
  """Function that makes a plan with an English corpus from settings."""
  _write_text(tmp_path / 'corpus', 'en', ['the cat', 'the dog'])

  def make(**settings):
    defaults = {
      'directory': tmp_path / 'cache',
      'mixtures': ['corpus.mono'],
      'vocabulary': toy_vocabulary,
      'open_tasks': functools.partial(CorpusTasks, str(tmp_path / 'corpus')),
    }
    return cache_writer.Plan(**defaults | settings)

  return make


def _use_library(patch, vocabulary, name):
  patch.setattr(type(vocabulary), 'library', name)


def test_added_files_create_a_new_generation(tmp_path, toy_vocabulary):
  """Earlier generations remain readable without changes."""
  corpus = writing.english(tmp_path / 'corpus', ['the cat', 'the dog'])
  cache = tmp_path / 'cache'
  writing.write(cache, corpus, toy_vocabulary)
  first = cache_reader.TokenCache(cache).digest('corpus.mono', 'train')
  [shard] = cache.rglob('*.safetensors')
  time = shard.stat().st_mtime_ns
  (tmp_path / 'corpus/mono/en.more.txt').write_text('a bird\n')
  add = {'changed': cache_writer.Changed.ADD}
  writing.write(cache, corpus, toy_vocabulary, **add)
  examples = [
    cache_reader.TokenCache(cache, generation=number)
    .open('corpus.mono', 'train')['corpus.mono.en']
    .meta.examples
    for number in (1, 2)
  ]
  assert examples == [2, 3] and shard.stat().st_mtime_ns == time
  assert cache_reader.TokenCache(cache).generation == 2
  old = cache_reader.TokenCache(cache, generation=1)
  assert old.digest('corpus.mono', 'train') == first
  old.verify('corpus.mono', 'train')
  assert old.rates('corpus.mono', 'train') != cache_reader.TokenCache(
    cache
  ).rates('corpus.mono', 'train')
  with raises_error(errors.CacheError, got=3, where='cache'):
    cache_reader.TokenCache(cache, generation=3)
  before = writing.files(cache)
  writing.write(cache, corpus, toy_vocabulary, **add)  # no new files
  assert writing.files(cache) == before
  (tmp_path / 'corpus/mono/en.txt').write_text('the fish\n')
  with raises_error(errors.CacheError, where='train'):
    writing.write(cache, corpus, toy_vocabulary, **add)


def test_changed_text_is_rejected_unless_replaced(tmp_path, toy_vocabulary):
  corpus = writing.english(tmp_path / 'corpus', ['the cat', 'the dog'])
  cache = tmp_path / 'cache'
  writing.write(cache, corpus, toy_vocabulary)
  before = writing.files(cache)
  writing.write(cache, corpus, toy_vocabulary)
  assert writing.files(cache) == before
  corpus = writing.english(
    tmp_path / 'corpus', ['the cat', 'the dog', 'a child']
  )
  with raises_error(
    errors.CacheError, where='train', mentions=('corpus.mono.en', '--overwrite')
  ):
    writing.write(cache, corpus, toy_vocabulary)
  assert writing.files(cache) == before
  [meta] = writing.write(
    cache, corpus, toy_vocabulary, changed=cache_writer.Changed.REPLACE
  )
  assert meta.examples == 3


def test_replace_rewrites_unchanged_shards(make_plan, tmp_path):
  """The cache cannot detect changes in the preprocessing of a task."""
  cache_writer.write_cache(make_plan())
  [shard] = (tmp_path / 'cache').rglob('*.safetensors')
  before = shard.read_bytes()
  # Simulates a shard that other preprocessing steps wrote.
  shard.write_bytes(bytes(len(before)))
  cache_writer.write_cache(make_plan())
  assert shard.read_bytes() != before
  cache_writer.write_cache(make_plan(changed=_REPLACE))
  [shard] = (tmp_path / 'cache').rglob('*.safetensors')
  assert shard.read_bytes() == before


def test_new_language_creates_a_new_generation(make_plan, tmp_path):
  """A run of the first generation continues to read the same data."""
  cache_writer.write_cache(make_plan())
  first = cache_reader.TokenCache(tmp_path / 'cache')
  task_split = 'corpus.mono', 'train'
  first.check_corpus(Corpus(tmp_path / 'corpus'), *task_split)
  header = (tmp_path / 'cache/cache.json').read_bytes()
  _write_text(tmp_path / 'corpus', 'de', ['die Katze'])
  first.check_corpus(Corpus(tmp_path / 'corpus'), *task_split, languages=['en'])
  with raises_error(
    errors.CacheError, got='de', where='corpus', mentions='--append'
  ):
    first.check_corpus(Corpus(tmp_path / 'corpus'), *task_split)
  with raises_error(
    errors.CacheError, mentions=('corpus.mono', 'corpus.mono.de', '--append')
  ):
    cache_writer.write_cache(make_plan())
  assert (tmp_path / 'cache/cache.json').read_bytes() == header
  cache_writer.write_partition(make_plan(changed=_ADD), (0, 1))
  cache_writer.finalize_cache(make_plan(changed=_ADD))
  old, new = (
    cache_reader.TokenCache(tmp_path / 'cache', generation=number)
    for number in (1, 2)
  )
  assert first.digest('corpus.mono', 'train') == old.digest(
    'corpus.mono', 'train'
  )
  assert set(old.open('corpus.mono', 'train')) == {'corpus.mono.en'}
  old.check_corpus(Corpus(tmp_path / 'corpus'), *task_split)
  assert set(new.open('corpus.mono', 'train')) == {
    'corpus.mono.en',
    'corpus.mono.de',
  }
  cache_writer.write_cache(make_plan(changed=_ADD))  # no new files
  assert cache_reader.TokenCache(tmp_path / 'cache').generation == 2


def test_earlier_generation_ignores_new_files(make_plan, tmp_path):
  """The newest generation requires all files, earlier ones only their own."""
  cache_writer.write_cache(make_plan())
  (tmp_path / 'corpus/mono/en.more.txt').write_text('a bird\n')
  corpus = Corpus(tmp_path / 'corpus')
  first = cache_reader.TokenCache(tmp_path / 'cache')
  with raises_error(
    errors.CacheError,
    where='corpus',
    mentions=('en.more.txt', '--append', 'mono/en.more.txt'),
  ):
    first.check_corpus(corpus, 'corpus.mono', 'train')
  cache_writer.write_cache(make_plan(changed=_ADD))
  first = cache_reader.TokenCache(tmp_path / 'cache', generation=1)
  first.check_corpus(corpus, 'corpus.mono', 'train')
  (tmp_path / 'corpus/mono/en.txt').write_text('the fish\n')
  with raises_error(
    errors.CacheError,
    where='corpus',
    mentions=('mono/en', 'mono/en.txt', 9, 16),
  ):
    first.check_corpus(corpus, 'corpus.mono', 'train')


def test_removed_language_requires_replacing(make_plan, tmp_path):
  _write_text(tmp_path / 'corpus', 'de', ['die Katze'])
  cache_writer.write_cache(make_plan())
  (tmp_path / 'corpus/mono/de.txt').unlink()
  for changed in (_ADD, cache_writer.Changed.ERROR):
    with raises_error(errors.CacheError, mentions='corpus.mono.de'):
      cache_writer.write_cache(make_plan(changed=changed))
  cache_writer.write_cache(make_plan(changed=_REPLACE))
  cache = cache_reader.TokenCache(tmp_path / 'cache')
  assert set(cache.open('corpus.mono', 'train')) == {'corpus.mono.en'}


def test_different_shard_size_is_rejected(make_plan, tmp_path):
  plan = make_plan(shard_size=4096)
  cache_writer.write_partition(plan, (0, 1))
  with raises_error(
    errors.CacheError,
    where='shards',
    mentions=('--shard_size=4096', '--shard_size'),
  ):
    cache_writer.finalize_cache(make_plan())
  cache_writer.finalize_cache(plan)
  with raises_error(
    errors.CacheError, where='train', mentions='--shard_size=4096'
  ):
    cache_writer.write_cache(make_plan())


def test_new_files_of_another_library_version_are_rejected(
  make_plan, tmp_path, toy_vocabulary, monkeypatch
):
  library = toy_vocabulary.library
  cache_writer.write_cache(make_plan())
  for name in ('more', 'most'):
    (tmp_path / f'corpus/mono/en.{name}.txt').write_text('a bird\n')
  with monkeypatch.context() as patch:
    _use_library(patch, toy_vocabulary, 'sentencepiece 0.1')
    with raises_error(
      errors.CacheError, where='shards', mentions=('0.1', library)
    ):
      cache_writer.write_cache(make_plan(changed=_ADD))
  assert cache_reader.TokenCache(tmp_path / 'cache').generation == 1


def test_missing_shard_of_another_library_version_is_rejected(
  make_plan, tmp_path, toy_vocabulary, monkeypatch
):
  """The other version encodes differently; the original restores the shard."""
  cache_writer.write_cache(make_plan())
  [shard] = (tmp_path / 'cache').rglob('*.safetensors')
  before = sorted((tmp_path / 'cache').rglob('*'))
  shard.unlink()
  encode = type(toy_vocabulary).encode_ragged
  with monkeypatch.context() as patch:
    _use_library(patch, toy_vocabulary, 'sentencepiece 0.1')
    patch.setattr(
      type(toy_vocabulary),
      'encode_ragged',
      lambda self, texts, **rest: encode(self, texts[::-1], **rest),
    )
    with raises_error(errors.CacheError, mentions='0.1'):
      cache_writer.write_cache(make_plan())
  shard.unlink()
  cache_writer.write_cache(make_plan())
  cache = cache_reader.TokenCache(tmp_path / 'cache')
  cache.verify('corpus.mono', 'train')
  assert sorted((tmp_path / 'cache').rglob('*')) == before


@pytest.mark.parametrize('count', [3, 4])
def test_resuming_after_a_kill_before_the_end_marker(
  make_plan, tmp_path, count
):
  """Only reading shows the number of shards of a compressed file."""
  (tmp_path / 'corpus/mono/en.txt').unlink()
  _write_text(tmp_path / 'corpus', 'en', ['the cat'] * count, compression='gz')
  assert cache_parts.examples_in_shard(512) == 2
  killed, complete = (
    make_plan(directory=tmp_path / name, shard_size=512)
    for name in ('killed', 'whole')
  )
  cache_writer.write_partition(killed, (0, 1))
  [end] = (tmp_path / 'killed').rglob('*.end')
  end.unlink()
  cache_writer.write_partition(killed, (0, 1))
  cache_writer.finalize_cache(killed)
  cache_writer.write_cache(complete)
  assert writing.files(tmp_path / 'killed') == writing.files(tmp_path / 'whole')


class _OverestimatingTasks(CorpusTasks):
  """Tasks that report more examples than their preprocessing keeps."""

  def files(self, task, split):
    return None

  def source_size(self, task, split):
    return 20


def test_source_size_may_exceed_the_number_of_examples(make_plan, tmp_path):
  """A single process and a partition report the same number of examples."""
  _write_text(tmp_path / 'corpus', 'en', ['the cat'] * 5)
  shared, complete = (
    make_plan(
      directory=tmp_path / name,
      shard_size=512,
      open_tasks=functools.partial(
        _OverestimatingTasks, str(tmp_path / 'corpus')
      ),
    )
    for name in ('shared', 'whole')
  )
  cache_writer.write_partition(shared, (0, 1))
  cache_writer.finalize_cache(shared)
  cache_writer.write_cache(complete)
  assert writing.files(tmp_path / 'shared') == writing.files(tmp_path / 'whole')
  cache = cache_reader.TokenCache(tmp_path / 'whole')
  [task] = cache.open('corpus.mono', 'train').values()
  assert len(task.meta.shards) == 3
  assert reading.lengths(task.sides[0]).size == 5


class _UserTasks(CorpusTasks):
  """Tasks that a user's module defines."""

  version = '1'

  def fingerprint(self, task, split):
    code = {'my_tasks': self.version, 'my_helpers': '1'}
    return super().fingerprint(task, split) | {'code': code}


@pytest.mark.parametrize('is_finalized', [True, False])
def test_changed_code_of_a_task_causes_a_warning(
  make_plan, tmp_path, monkeypatch, caplog, is_finalized
):
  opened = functools.partial(_UserTasks, str(tmp_path / 'corpus'))
  plan = make_plan(open_tasks=opened)
  write = functools.partial(cache_writer.write_cache, plan)
  if not is_finalized:
    write = functools.partial(cache_writer.write_partition, plan, (0, 1))
  write()
  write()
  assert 'my_tasks' not in caplog.text
  monkeypatch.setattr(_UserTasks, 'version', '2')
  write()
  [line] = [text for text in caplog.messages if 'my_tasks' in text]
  assert_mentions(line, 'corpus.mono.en', '--overwrite')
  assert 'my_helpers' not in line
  caplog.clear()
  cache_writer.write_cache(make_plan(open_tasks=opened, changed=_REPLACE))
  cache_writer.write_cache(plan)
  assert 'my_tasks' not in caplog.text


class _TasksWithoutFiles(CorpusTasks):
  """Tasks whose sources list no files."""

  def fingerprint(self, task, split):
    return super().fingerprint(task, split) | {'files': []}

  def files(self, task, split):
    return None


@pytest.mark.parametrize('has_files', [True, False])
def test_reused_text_that_cannot_be_compared_is_logged(
  make_plan, tmp_path, caplog, has_files
):
  caplog.set_level(logging.INFO)
  tasks = CorpusTasks if has_files else _TasksWithoutFiles
  opened = functools.partial(tasks, str(tmp_path / 'corpus'))
  plan = make_plan(open_tasks=opened)
  cache_writer.write_cache(plan)
  assert '--overwrite' not in caplog.text
  cache_writer.write_cache(plan)
  assert ('--overwrite' in caplog.text) != has_files
  assert ('corpus.mono.en (train)' in caplog.text) != has_files
  caplog.clear()
  cache_writer.write_cache(make_plan(open_tasks=opened, changed=_REPLACE))
  assert '--overwrite' not in caplog.text
