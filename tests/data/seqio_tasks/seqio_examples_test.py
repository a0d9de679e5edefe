"""Tests of custom SeqIO tasks that are read, cached and loaded live."""

import functools

import numpy as np
import pytest
import seqio
import tensorflow as tf

from tests.errors import assert_mentions, raises_error
from xlflax.data import dataset_config
from xlflax.data.cache import cache_writer, cached_loader
from xlflax.data.seqio_tasks import (
  cache_adapter,
  corpus_tasks,
  live_loader,
  task_registry,
)
from xlflax.data.seqio_tasks import seqio_examples as task_examples
from xlflax.utils import errors


def _long(dataset):
  return dataset.filter(lambda example: tf.strings.length(example['text']) > 36)


@pytest.fixture
def unsized_task(toy_sentences):
  """Task with 50 sentences and no declared size that keeps long sentences."""

  def texts(split, shuffle_files, seed=None):
    del split, shuffle_files, seed
    return tf.data.Dataset.from_tensor_slices(
      {'text': toy_sentences['en'][:50]}
    )

  name = 'unsized.en'
  task_registry.add_monolingual_task(
    name,
    seqio.FunctionDataSource(texts, splits=('train',)),
    language='en',
    preprocessors=[_long],
  )
  yield name
  seqio.TaskRegistry.remove(name)


def test_examples_are_read_in_blocks(
  unsized_task, toy_vocabulary, toy_sentences
):
  expected = [
    toy_vocabulary.encode(text)
    for text in toy_sentences['en'][:50]
    if len(text) > 36
  ]
  assert 10 < len(expected) < 50
  for start in (0, 7):
    read = []
    for examples in task_examples.read_task_examples(
      unsized_task, toy_vocabulary, split='train', start=start, size=4
    ):
      assert len(examples) <= 4 and examples.starts_document.all()
      read += [text.tolist() for text in examples.sides[0].texts()]
    assert read == expected[start:]


def test_source_size(unsized_task, toy_corpus):
  corpus_tasks.register_corpus(toy_corpus)
  assert task_examples.source_size(unsized_task, 'train') is None
  assert task_examples.source_size('corpus.mono.en', 'train') == 200


@pytest.fixture
def add_declared_task(toy_sentences):
  """Function that registers a task of 50 sentences with a declared size."""

  def texts(split, shuffle_files, seed=None):
    del split, shuffle_files, seed
    return tf.data.Dataset.from_tensor_slices(
      {'text': toy_sentences['en'][:50]}
    )

  def add(declared):
    task_registry.add_monolingual_task(
      'declared.en',
      seqio.FunctionDataSource(
        texts, splits=('train',), num_input_examples={'train': declared}
      ),
      language='en',
      preprocessors=[_long],
    )

  yield add
  seqio.TaskRegistry.remove('declared.en')


def _size_warnings(caplog):
  return [
    record.getMessage()
    for record in caplog.records
    if 'num_input_examples' in record.getMessage()
  ]


@pytest.mark.parametrize('declared, is_logged', [(50, False), (60, True)])
def test_wrong_declared_size_is_logged_when_caching(
  add_declared_task, toy_vocabulary, tmp_path, caplog, declared, is_logged
):
  """Examples that a preprocessor drops do not count as missing."""
  add_declared_task(declared)
  cache_writer.write_cache(
    cache_writer.Plan(
      directory=tmp_path,
      mixtures=('declared.en',),
      vocabulary=toy_vocabulary,
      open_tasks=functools.partial(cache_adapter.open_tasks, None),
    )
  )
  messages = _size_warnings(caplog)
  assert len(messages) == is_logged
  for message in messages:
    assert_mentions(message, 'declared.en', 50, 60)


@pytest.mark.parametrize('declared, is_logged', [(50, False), (60, True)])
def test_wrong_declared_size_is_logged_once_by_the_live_loader(
  add_declared_task, toy_vocabulary, caplog, declared, is_logged
):
  add_declared_task(declared)
  loader = live_loader.LiveLoader(
    dataset_config.DatasetConfig(
      name='s',
      mixture='declared.en',
      layout='sentences',
      length=16,
      batch_size=4,
      shuffle=False,
    ),
    vocabulary=toy_vocabulary,
    seed=0,
  )
  loader.rows(0, 0, 4)
  assert not _size_warnings(caplog)
  for step in (*range(1, 40), 0, 39):  # Step 0 reads the task again.
    loader.rows(step, 0, 4)
  messages = _size_warnings(caplog)
  assert len(messages) == is_logged
  for message in messages:
    assert_mentions(message, 'declared.en', 50, 60)


def test_fingerprint_contains_source_files_and_preprocessors(
  unsized_task, toy_corpus
):
  corpus_tasks.register_corpus(toy_corpus)
  [file] = toy_corpus.group_fingerprint('en')
  assert task_examples.task_fingerprint('corpus.mono.en', 'train') == {
    'source': 'TextSource',
    'files': [['mono/en.txt', file.size, file.content]],
    'preprocessors': ['mark_documents', 'name_monolingual', 'tokenize'],
  }
  assert task_examples.task_fingerprint(unsized_task, 'train') == {
    'source': 'FunctionDataSource',
    'files': [['train']],
    'preprocessors': [
      '_long',
      'mark_documents',
      'name_monolingual',
      'tokenize',
    ],
  }


@pytest.mark.usefixtures('unsized_task')
def test_fingerprint_contains_preprocessor_arguments(registry):
  """Functions are represented by their names."""
  source = seqio.TaskRegistry.get('unsized.en').source

  def shortened(dataset, characters, by=len):
    del characters, by
    return dataset

  fingerprints = []
  for characters in (3, 4):
    name = f'shortened{characters}.en'
    step = functools.partial(shortened, characters=characters, by=_long)
    registry.add_monolingual_task(
      name, source, language='en', preprocessors=[step]
    )
    fingerprints.append(
      task_examples.task_fingerprint(name, 'train')['preprocessors'][0]
    )
  assert fingerprints == [
    ['shortened', [[], {'characters': n, 'by': '_long'}]] for n in (3, 4)
  ]


def test_cached_and_live_batches_of_an_unsized_task_are_equal(
  unsized_task, toy_vocabulary, tmp_path
):
  """The cache has more shards than expected for an unknown size."""
  [meta] = cache_writer.write_cache(
    cache_writer.Plan(
      directory=tmp_path,
      mixtures=[unsized_task],
      vocabulary=toy_vocabulary,
      shard_size=4 * 256,
      open_tasks=functools.partial(cache_adapter.open_tasks, None),
    )
  )
  assert meta.source_examples == meta.examples > 10
  settings = dict(
    name='s',
    mixture=unsized_task,
    layout='sentences',
    length=16,
    batch_size=4,
    shuffle=False,
  )
  dataset = dataset_config.DatasetConfig(**settings)
  cached = cached_loader.CachedLoader(
    dataset, vocabulary=toy_vocabulary, seed=0, cache_dir=tmp_path
  )
  live = live_loader.LiveLoader(dataset, vocabulary=toy_vocabulary, seed=0)
  for step in range(20):
    batch, other = cached.rows(step, 0, 4), live.rows(step, 0, 4)
    for key, value in batch.items():
      np.testing.assert_array_equal(value, other[key])
  with raises_error(errors.CorpusError, mentions='unsized.en'):
    live_loader.LiveLoader(
      dataset_config.DatasetConfig(**settings, alpha=0.7),
      vocabulary=toy_vocabulary,
      seed=0,
    )


def test_examples_with_a_missing_side_are_rejected(toy_vocabulary):
  name = 'sideless.en'
  task_registry.add_monolingual_task(
    name,
    seqio.FunctionDataSource(
      lambda split, shuffle_files, seed=None: (
        tf.data.Dataset.from_tensor_slices({'text': ['a']})
      ),
      splits=('train',),
    ),
    language='en',
  )
  task_registry.set_task_languages(name, ('de', 'en'))
  try:
    with raises_error(
      errors.CorpusError, mentions=('sideless.en', 'starts_document', 'inputs')
    ):
      next(
        task_examples.read_task_examples(name, toy_vocabulary, split='train')
      )
  finally:
    seqio.TaskRegistry.remove(name)
