"""Tests of the live loader.

cached_loader_test.py compares its batches with those of the cached loader.
"""

import logging
import os
import shutil

import numpy as np
import pytest
import seqio
import tensorflow as tf

from tests.errors import assert_mentions, raises_error
from xlflax.data import dataset_config, loader_factory
from xlflax.data.corpus import corpus_directory
from xlflax.data.sampling import hashing
from xlflax.data.seqio_tasks import live_loader
from xlflax.utils import errors


def _open(corpus, vocabulary, **settings):
  pairs = {k: settings.pop(k) for k in ('min_tokens',) if k in settings}
  return loader_factory.open_loader(
    dataset_config.DatasetConfig(
      **{
        'name': 's',
        'mixture': 'corpus.mono',
        'layout': 'sentences',
        'length': 32,
        'batch_size': 8,
        'alpha': 0.5,
        'pairs': dataset_config.PairOptions(**pairs),
      }
      | settings
    ),
    vocabulary=vocabulary,
    seed=3,
    corpus=str(corpus.directory),
  )


def test_progress_of_skipping_steps_is_logged(
  toy_corpus, toy_vocabulary, monkeypatch, caplog
):
  monkeypatch.setattr(live_loader, '_LOG_INTERVAL_SECONDS', 0)
  caplog.set_level(logging.INFO)
  loader = _open(toy_corpus, toy_vocabulary)
  at_ten = loader.rows(10, 0, 8)
  assert_mentions(caplog.text, 10, 50)
  loader.rows(3, 0, 8)
  assert_mentions(caplog.text, 3)
  np.testing.assert_array_equal(
    loader.rows(10, 0, 8)['token_ids'], at_ten['token_ids']
  )


def _copied(corpus, folder, edit=None):
  """Returns a copy of a corpus with other times.

  `edit` changes one English line.
  """
  shutil.copytree(corpus.directory, folder)
  path = folder / 'mono' / 'en.txt'
  os.utime(path, (1, 1))
  if edit:
    path.write_bytes(edit(path.read_bytes()))
  return corpus_directory.Corpus(folder)


def test_identity_depends_only_on_the_text(
  toy_corpus, toy_vocabulary, tmp_path
):
  """Paths and times have no effect, but a single changed byte has."""

  def identity(corpus, **settings):
    return _open(corpus, toy_vocabulary, **settings).identity

  def edit(content):
    middle = content.index(b' ', len(content) // 2)
    return content[: middle - 1] + b'q' + content[middle:]

  text_identity = identity(toy_corpus)
  assert identity(_copied(toy_corpus, tmp_path / 'same')) == text_identity
  changed = _copied(toy_corpus, tmp_path / 'other', edit)
  assert identity(changed) != text_identity
  pairs = dict(mixture='corpus.parallel', layout='pairs')
  assert identity(changed, **pairs) == identity(toy_corpus, **pairs)


def test_filters_that_drop_all_pairs_are_an_error(toy_corpus, toy_vocabulary):
  loader = _open(
    toy_corpus,
    toy_vocabulary,
    mixture='corpus.parallel',
    layout='pairs',
    min_tokens=1000,
  )
  with raises_error(
    errors.CorpusError, mentions=('s', 'corpus.parallel.de_en', 50)
  ):
    loader.rows(0, 0, 8)


@pytest.mark.parametrize('texts', [['a', 'b'], ['a', '']])
def test_tasks_without_text_are_an_error(registry, toy_vocabulary, texts):
  registry.add_monolingual_task(
    'filtered.en',
    seqio.FunctionDataSource(
      lambda split, shuffle_files: tf.data.Dataset.from_tensor_slices(
        {'text': texts}
      ),
      splits=['train'],
    ),
    language='en',
    preprocessors=[
      lambda dataset: dataset.filter(
        lambda example: tf.equal(example['text'], '')
      )
    ],
  )
  loader = live_loader.LiveLoader(
    dataset_config.DatasetConfig(
      name='s',
      mixture='filtered.en',
      layout='sentences',
      length=16,
      batch_size=4,
    ),
    vocabulary=toy_vocabulary,
    seed=0,
  )
  with raises_error(
    errors.CorpusError,
    where='task filtered.en',
    mentions=('filtered.en', "'train'", 'preprocessors'),
  ):
    loader.rows(0, 0, 4)


def test_many_unknown_tokens_of_a_corpus_are_reported(tmp_path, toy_vocabulary):
  (tmp_path / 'mono').mkdir()
  for language, text in {'de': 'ab ab', 'ru': '\u4e2d \u4e2d ab'}.items():
    (tmp_path / 'mono' / f'{language}.txt').write_text(f'{text}\n' * 200)
  corpus = corpus_directory.Corpus(tmp_path)
  loader = _open(corpus, toy_vocabulary)
  messages = [x for x in loader.find_text_anomalies() if 'unknown' in x]
  assert len(messages) == 1
  assert_mentions(messages[0], 'ru', 'corpus.mono.ru', '--byte_fallback')


def test_few_unknown_tokens_are_not_reported(toy_corpus, toy_vocabulary):
  for mixture, layout in {
    'corpus.mono': 'sentences',
    'corpus.parallel': 'dual',
  }.items():
    loader = _open(toy_corpus, toy_vocabulary, mixture=mixture, layout=layout)
    assert not any('unknown' in x for x in loader.find_text_anomalies())


def test_unknown_tokens_of_a_seqio_task_are_reported(registry, toy_vocabulary):
  texts = ['ab ab'] * 90 + ['\u4e2d \u4e2d'] * 20
  registry.add_monolingual_task(
    'own.en',
    seqio.FunctionDataSource(
      lambda split, shuffle_files: tf.data.Dataset.from_tensor_slices(
        {'text': texts}
      ),
      splits=['train'],
      num_input_examples={'train': len(texts)},
    ),
    language='en',
  )
  dataset = dataset_config.DatasetConfig(
    name='s', mixture='own.en', layout='sentences', length=16, batch_size=4
  )
  loader = live_loader.LiveLoader(dataset, vocabulary=toy_vocabulary, seed=0)
  messages = [x for x in loader.find_text_anomalies() if 'are unknown' in x]
  unknown = toy_vocabulary.spec.unk_id
  ids = [toy_vocabulary.encode(text) for text in texts[:100]]
  rate = np.mean(np.concatenate(ids) == unknown)
  assert rate > 0.01
  assert len(messages) == 1
  assert_mentions(messages[0], 'own.en', f'{100 * rate:.1f} %')


@pytest.mark.parametrize('alpha', [None, 0.5])
def test_statistics_count_examples_read_so_far(
  toy_corpus, toy_vocabulary, alpha
):
  loader = _open(
    toy_corpus,
    toy_vocabulary,
    mixture='corpus.parallel',
    layout='dual',
    min_tokens=9,
    length=12,
    shuffle=False,
    alpha=alpha,
  )
  first_statistics = loader.statistics()
  assert [s.examples_read for s in first_statistics] == [
    0 if alpha is None else 50
  ]
  loader.rows(0, 0, 8)
  [statistics] = loader.statistics()
  lengths = np.array(
    [
      [len(toy_vocabulary.encode(side)) for side in pair]
      for pair in toy_corpus.parallel('de', 'en')
    ]
  )
  is_long_enough = lengths.min(-1) >= 9
  assert statistics.dropped == (~is_long_enough).sum()
  assert statistics.truncated == (lengths[is_long_enough] > 10).any(-1).sum()
  assert statistics.rows is None and statistics.examples == 50
  assert statistics.examples_read == 50
  # With alpha, the rates require the number of pairs that pass the filters.
  dropped = 0 if alpha is None else statistics.dropped
  assert [s.dropped for s in first_statistics] == [dropped]


def test_shuffle_window_permutes_within_the_window():
  for size in (0, 3, 10, 3000):
    shuffled = list(
      live_loader.shuffle_window(
        iter(range(size)), window=10, key=hashing.make_key(size)
      )
    )
    assert sorted(shuffled) == list(range(size))
    if size >= 10:
      assert shuffled != list(range(size))
      # A row cannot be returned before it enters the window.
      assert all(item < position + 11 for position, item in enumerate(shuffled))


def test_a_task_without_a_number_of_examples(registry, toy_vocabulary):
  registry.add_monolingual_task(
    'unsized.en',
    seqio.FunctionDataSource(
      lambda split, shuffle_files: tf.data.Dataset.from_tensor_slices(
        {'text': ['a', 'b', 'c']}
      ),
      splits=['train'],
    ),
    language='en',
  )
  with raises_error(
    errors.CorpusError,
    mentions=("num_input_examples={'train': N}", 'xlflax cache', 'None'),
  ):
    live_loader.LiveLoader(
      dataset_config.DatasetConfig(
        name='s',
        mixture='unsized.en',
        layout='sentences',
        length=16,
        batch_size=4,
        alpha=0.5,
      ),
      vocabulary=toy_vocabulary,
      seed=0,
    )


def test_unknown_mixture_is_rejected(toy_corpus, toy_vocabulary):
  with raises_error(errors.CorpusError, got='corpus.momo'):
    _open(toy_corpus, toy_vocabulary, mixture='corpus.momo')
