"""Tests of caches, loaders and run directories with a union vocabulary."""

import functools

import numpy as np
import pytest

from tests.data.cache import reading
from tests.errors import raises_error
from xlflax.data import dataset_config, loader_factory
from xlflax.data.cache import cache_reader, cache_writer
from xlflax.data.plain_text.corpus_directory_tasks import CorpusTasks
from xlflax.data.tokenizers.base_vocabulary import Vocabulary
from xlflax.data.tokenizers.union_vocabulary import UnionVocabulary
from xlflax.data.tokenizers.vocabulary_config import Anchors
from xlflax.data.tokenizers.vocabulary_training import train_vocabulary
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors


@pytest.fixture(scope='module')
def union_dir(tmp_path_factory, toy_corpus):
  directory = tmp_path_factory.mktemp('union') / 'vocabulary'
  train_vocabulary(toy_corpus, directory, size=60, anchors='none')
  return directory


@pytest.fixture(scope='module')
def union(union_dir):
  return Vocabulary.load(union_dir)


@pytest.fixture(scope='module')
def cache(tmp_path_factory, toy_corpus, union):
  directory = tmp_path_factory.mktemp('cache')
  cache_writer.write_cache(
    cache_writer.Plan(
      directory=directory,
      mixtures=['corpus.mono', 'corpus.parallel'],
      vocabulary=union,
      shard_size=4096,
      open_tasks=functools.partial(CorpusTasks, str(toy_corpus.directory)),
    ),
    num_processes=1,
  )
  return directory


def _open(vocabulary, **options):
  layout = options.pop('layout')
  mixture = 'corpus.parallel' if layout == 'pairs' else 'corpus.mono'
  return loader_factory.open_loader(
    dataset_config.DatasetConfig(
      name='s',
      mixture=mixture,
      layout=layout,
      length=48,
      batch_size=8,
      shuffle=False,
    ),
    vocabulary=vocabulary,
    seed=0,
    **options,
  )


@pytest.mark.parametrize('layout', ['blocks', 'pairs'])
def test_tokens_belong_to_the_language_of_their_text(
  cache, union, toy_corpus, layout
):
  """The batches of the cached and the live loader are also equal."""
  cached = _open(union, layout=layout, cache_dir=cache)
  live = _open(union, layout=layout, corpus=toy_corpus)
  seen_languages = set()
  for step in range(12):
    batch, other = cached.rows(step, 0, 8), live.rows(step, 0, 8)
    for key, value in batch.items():
      np.testing.assert_array_equal(value, other[key], err_msg=key)
    ids, languages = batch['token_ids'], batch['language_ids']
    is_word = ~np.isin(ids, union.spec.special_ids)
    for index, ((start, stop),) in enumerate(union.spec.language_words):
      of_language = (ids >= start) & (ids < stop)
      np.testing.assert_array_equal(of_language, is_word & (languages == index))
      seen_languages |= {index} if of_language.any() else set()
  assert seen_languages == ({0, 1} if layout == 'pairs' else {0, 1, 2})


def test_cached_text_can_be_decoded(cache, union, toy_corpus):
  task = cache_reader.TokenCache(cache).open('corpus.parallel', 'train')[
    'corpus.parallel.de_en'
  ]
  for side, code in zip(task.sides, ('de', 'en'), strict=True):
    first = reading.tokens(side)[: reading.lengths(side)[0]].tolist()
    text = next(iter(toy_corpus.parallel('de', 'en')))[code == 'en']
    assert union.decode(first) == text
    assert {union.piece(i).partition(':')[0] for i in first} == {code}


def test_cache_of_another_union_is_rejected(cache, union):
  models = {code: member.model for code, member in union.members.items()}
  other = UnionVocabulary(models, anchors=Anchors.SHARED)
  with raises_error(errors.CacheError, mentions=cache):
    _open(other, layout='blocks', cache_dir=cache)


def test_copy_vocabulary_copies_all_models(union_dir, tmp_path, union):
  run_directory.copy_vocabulary(union_dir, tmp_path)
  assert Vocabulary.load(tmp_path / run_directory.VOCABULARY) == union
  run_directory.check_vocabulary(union_dir, tmp_path)
  copy = tmp_path / run_directory.VOCABULARY / 'sentencepiece.ru.model'
  copy.write_bytes(b'another')
  with raises_error(
    errors.RunDirectoryError, mentions='sentencepiece.ru.model'
  ):
    run_directory.check_vocabulary(union_dir, tmp_path)
