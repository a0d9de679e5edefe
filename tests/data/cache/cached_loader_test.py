"""Tests of the batches of the cached loader and of rejected settings."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy

from tests.data.cache import loading
from tests.errors import raises_error
from xlflax.data import loader_factory
from xlflax.data.cache import cache_reader
from xlflax.utils import errors


def test_blocks_contain_the_text_of_the_corpus(
  open_cached, toy_corpus, toy_vocabulary
):
  loader = open_cached(mixture='corpus.mono.ru', length=66, shuffle=False)
  [statistics] = loader.statistics()
  lines = [line.text for line in toy_corpus.monolingual('ru')]
  eos = toy_vocabulary.spec.eos_id
  tokens = []
  for line in lines:
    tokens += [*toy_vocabulary.encode(line), eos]
  expected, row = tokens[:-1], 0
  while expected:
    batch = loader.rows(row // 8, row % 8, row % 8 + 1)
    chunk, expected = expected[:64], expected[64:]
    assert batch['token_ids'][0, : len(chunk) + 2].tolist() == [
      toy_vocabulary.spec.bos_id,
      *chunk,
      eos,
    ]
    assert batch['segment_ids'].sum() == len(chunk) + 2
    row += 1
  assert row == statistics.rows


@pytest.mark.parametrize('layout', ['blocks', 'pairs'])
def test_consecutive_batches_equal_single_batches(open_cached, layout):
  mixture = 'corpus.mono' if layout == 'blocks' else 'corpus.parallel'
  loader = open_cached(mixture=mixture, layout=layout)
  joined = loader.consecutive_batches(3, 9)
  batches = [loader.rows(step, 0, 8) for step in range(3, 9)]
  for key, values in joined.items():
    np.testing.assert_array_equal(
      values, np.concatenate([batch[key] for batch in batches])
    )


def test_reversed_order_exchanges_the_sides(open_cached):
  unchanged, other = (
    open_cached(layout='dual', order=order).rows(3, 0, 8)
    for order in ('unchanged', 'reversed')
  )
  for key in ('token_ids', 'segment_ids', 'positions', 'language_ids'):
    np.testing.assert_array_equal(unchanged[key], other[f'paired_{key}'])
    np.testing.assert_array_equal(unchanged[f'paired_{key}'], other[key])


def test_random_order_exchanges_half_of_the_pairs(open_cached):
  loader = open_cached(layout='dual', order='random', length=64)
  plain = open_cached(layout='dual', length=64)
  swapped = 0
  for step in range(25):
    batch, original = loader.rows(step, 0, 8), plain.rows(step, 0, 8)
    languages = batch['language_ids'][:, 0]
    np.testing.assert_array_equal(
      languages, 1 - batch['paired_language_ids'][:, 0]
    )
    rows = np.where(
      (languages == 0)[:, None], batch['token_ids'], batch['paired_token_ids']
    )
    np.testing.assert_array_equal(rows, original['token_ids'])
    swapped += languages.sum()
  # The bounds are four standard deviations from 100 of 200 rows.
  assert 70 < swapped < 130


def test_dual_and_pairs_layouts_have_the_same_pairs(open_both):
  """PPA trains two objectives on the same pairs in the same random order."""
  settings = dict(order='random', min_tokens=6, max_tokens=40, length=48)
  for sides, pairs in zip(
    open_both(name='sides', layout='dual', **settings),
    open_both(name='pairs', layout='pairs', separator='bert', **settings),
    strict=True,
  ):
    for step in (0, 3):
      apart, joined = (loader.rows(step, 0, 8) for loader in (sides, pairs))
      for first, second, row in zip(
        apart['token_ids'],
        apart['paired_token_ids'],
        joined['token_ids'],
        strict=True,
      ):
        expected_ids = [*first[first > 0], *second[second > 0][1:]]
        np.testing.assert_array_equal(row[row > 0], expected_ids)
    languages = apart['language_ids'][:, 1]
    assert len(set(languages.tolist())) == 2


@pytest.mark.parametrize(
  'settings, values',
  [
    (
      {'mixture': 'corpus.parallel', 'layout': 'blocks'},
      ('corpus', 'ExampleLayout.BLOCKS', 'corpus.parallel.de_en', 'de-en'),
    ),
    (
      {'mixture': 'corpus.mono', 'layout': 'dual'},
      ('corpus', 'ExampleLayout.DUAL', 'corpus.mono.de', 'de'),
    ),
  ],
)
def test_incompatible_layout_and_task_are_rejected(open_both, settings, values):
  with raises_error(errors.ConfigError, mentions=values):
    open_both(**settings)


def test_dataset_is_restricted_to_its_languages(open_both):
  for loader in open_both(languages=['ru', 'en'], alpha=None):
    assert [s.task for s in loader.statistics()] == [
      'corpus.mono.en',
      'corpus.mono.ru',
    ]
    assert sum(s.rate for s in loader.statistics()) == pytest.approx(1)
    total_rate = sum(s.mixture_rate for s in loader.statistics())
    for s in loader.statistics():
      assert s.rate == pytest.approx(s.mixture_rate / total_rate)
  for loader in open_both(layout='pairs', languages=('de', 'en')):
    assert [s.task for s in loader.statistics()] == ['corpus.parallel.de_en']


@pytest.mark.parametrize('languages, got', [(('en', 'xx'), 'xx'), ((), 'en')])
def test_languages_without_text_are_rejected(open_both, languages, got):
  with raises_error(errors.ConfigError, mentions=(got, 'de', 'en', 'ru')):
    open_both(languages=languages)


def test_filters_that_drop_all_pairs_are_an_error(open_cached):
  with raises_error(
    errors.CorpusError, mentions=('s', 'corpus.parallel.de_en', 50)
  ):
    open_cached(layout='pairs', min_tokens=1000)


def test_rows_out_of_range_are_rejected(open_cached):
  with raises_error(ValueError, mentions=8):
    open_cached().rows(0, 4, 9)


def test_token_ids_beyond_the_vocabulary_are_rejected(
  complete_cache, toy_vocabulary, tmp_path, monkeypatch
):
  """Token IDs are validated per batch, even if digests are not verified."""
  monkeypatch.setattr(cache_reader, '_MAX_VERIFIED_SIZE', 0)
  copy = tmp_path / 'cache'
  shutil.copytree(complete_cache[0], copy)
  for path in (copy / 'tasks/corpus.mono.en/train/shards').iterdir():
    arrays = safetensors.numpy.load_file(path)
    arrays['targets'][::2] = 60000
    safetensors.numpy.save_file(arrays, path)
  arguments = {'vocabulary': toy_vocabulary, 'seed': 0, 'cache_dir': copy}
  dataset = loading.dataset(mixture='corpus.mono.en')
  with raises_error(errors.CacheError, where='cache'):
    loader_factory.open_loader(dataset, **arguments)
  loader = loader_factory.open_loader(dataset, **arguments, verified=None)
  with raises_error(errors.CacheError, where='cache', mentions=(0, 60000, 1)):
    loader.rows(0, 0, dataset.batch_size)


def test_reading_a_cache_does_not_import_tensorflow(complete_cache):
  program = f"""
import sys
from xlflax.data.cache import cache_reader as cache_reader
from xlflax.data.cache import cached_loader as cached_loader
from xlflax.data import loader_base as loader_lib
from xlflax.data import loader_factory
from xlflax.data import prefetch
from xlflax.data import dataset_config
from xlflax.data.tokenizers import vocabulary_spec as vocabulary_spec
from xlflax.data.tokenizers import base_vocabulary
import jax

class Vocabulary(base_vocabulary.Vocabulary):
  hash = cache_reader.TokenCache({str(complete_cache[0])!r})._header.vocabulary['hash']
  spec = vocabulary_spec.VocabularySpec(
      180, 0, 1, 2, 3, 4, tuple(range(8)), ('de', 'en', 'ru'))
  def language_id(self, code):
    return self.spec.languages.index(code)

opened = loader_factory.open_loader(
    dataset_config.DatasetConfig(name='s', mixture='corpus.mono', layout='blocks',
                  length=16, batch_size=8),
    vocabulary=Vocabulary(), seed=0, cache_dir={str(complete_cache[0])!r})
sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
with prefetch.Prefetcher(opened, sharding=sharding) as feed:
  print(feed.next()['token_ids'].shape)
print([m for m in sys.modules
       if m.split('.')[0] in ('tensorflow', 'seqio', 'tensorflow_datasets')])
"""
  process = subprocess.run(
    [sys.executable, '-c', program], text=True, capture_output=True, check=False
  )
  assert process.returncode == 0, process.stderr
  assert process.stdout.split('\n')[:2] == ['(8, 16)', '[]']
