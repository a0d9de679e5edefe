"""Tests that all readers give the same text of code-switched SeqIO tasks."""

import dataclasses
import functools
import json

import numpy as np
import pytest
import seqio
import tensorflow as tf

from tests.data.cache import reading
from tests.errors import raises_error
from xlflax.data.cache import cache_reader, cache_writer
from xlflax.data.corpus import corpus_writer
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.dictionaries.bilingual_dictionary import Dictionary, Entry
from xlflax.data.dictionaries.code_switching import Switcher
from xlflax.data.dictionaries.code_switching_config import CodeSwitching
from xlflax.data.seqio_tasks import cache_adapter, corpus_tasks
from xlflax.data.seqio_tasks import seqio_examples as task_examples
from xlflax.data.seqio_tasks import seqio_reader as task_reader
from xlflax.data.seqio_tasks.code_switched_text import CodeSwitch
from xlflax.data.seqio_tasks.seqio_vocabulary import resolve_deferred
from xlflax.utils import errors

_ALWAYS = CodeSwitching(probability=1.0, max_replaced_ratio=1.0, group_lines=8)
_CATS = Dictionary(('en', 'de'), (Entry('cat', 'Katze', 1.0),))


@pytest.fixture(scope='module')
def dictionary(toy_sentences):
  """Dictionary from English words of the toy sentences to aligned German ones."""
  entries = [
    (a, b)
    for e, d in zip(toy_sentences['en'], toy_sentences['de'], strict=True)
    for a, b in zip(e.strip('.').split(), d.strip('.').split(), strict=False)
  ]
  return Dictionary(
    ('en', 'de'), tuple(Entry(a, b, 1.0) for a, b in dict.fromkeys(entries))
  )


def _texts(name, **options):
  return [row['targets'] for row in task_reader.read_texts(name, **options)]


def _source(texts, **options):
  return seqio.FunctionDataSource(
    lambda split, shuffle_files: tf.data.Dataset.from_tensor_slices(
      {'text': texts}
    ),
    splits=['train'],
    **options,
  )


def test_code_switch_example_in_docstring():
  dataset = tf.data.Dataset.from_tensors({'targets': 'the cat'})
  step = CodeSwitch('t', 'en', [_CATS], _ALWAYS)
  assert list(step(dataset).as_numpy_iterator()) == [{'targets': b'the Katze'}]


def test_corpus_is_switched_with_the_settings_of_the_paper(
  registry, toy_corpus
):
  corpus_tasks.register_corpus(toy_corpus, prefix='k1')
  assert list(registry.expand_mixture('k1.code_switched')) == [
    'k1.code_switched.de',
    'k1.code_switched.en',
  ]
  assert registry.task_languages('k1.code_switched.en') == ('en',)
  assert registry.num_examples('k1.code_switched.en') == 200
  dictionaries = [Dictionary.read(f.path) for f in toy_corpus.dictionaries]
  plain = _texts('k1.mono.en')
  assert (
    _texts('k1.code_switched.en')
    == Switcher('en', dictionaries, CodeSwitching())
    .switch(plain, name='k1.code_switched.en')
    .lines
  )
  assert _texts('k1.code_switched.en') != plain


def test_corpus_is_switched_with_custom_settings(registry, toy_corpus):
  corpus_tasks.register_corpus(toy_corpus, prefix='k2', code_switching=_ALWAYS)
  assert _texts('k2.code_switched.en') == [
    text.replace('cat', 'Katze').replace('dog', 'Hund')
    for text in _texts('k2.mono.en')
  ]
  assert 'dog' in ' '.join(_texts('k2.code_switched.de'))


@pytest.mark.parametrize('copies', [1, 3])
@pytest.mark.parametrize('preprocessors', [(), (lambda d: d,)])
def test_all_readers_give_the_same_text(
  registry, toy_corpus, toy_vocabulary, dictionary, copies, preprocessors
):
  """Covers the fast reader and tf.data, also with a start offset."""
  from xlflax.data.seqio_tasks import data_sources

  registry.add_code_switched_task(
    'k3',
    data_sources.monolingual_source(toy_corpus, 'en'),
    language='en',
    dictionaries=[dictionary],
    preprocessors=preprocessors,
    settings=CodeSwitching(group_lines=32, num_copies=copies),
  )
  plain = [line.text for line in toy_corpus.monolingual('en')] * copies
  expected = (
    Switcher('en', [dictionary], CodeSwitching(group_lines=32))
    .switch(plain, name='k3')
    .lines
  )
  assert _texts('k3') == expected
  assert registry.num_examples('k3') == 200 * copies
  task = resolve_deferred(registry.get_task('k3'), toy_vocabulary)
  ids = [toy_vocabulary.encode(text) for text in expected]
  assert [
    e['targets'].tolist()
    for e in task.get_dataset(split='train', shuffle=False).as_numpy_iterator()
  ] == ids
  for start in (0, 32, 45, 199):
    blocks = task_reader.read_blocks('k3', toy_vocabulary, size=50, start=start)
    assert [t.tolist() for b in blocks for t in b['targets'].texts()] == ids[
      start:
    ]


def test_copies_differ(registry, toy_corpus, dictionary):
  from xlflax.data.seqio_tasks import data_sources

  registry.add_code_switched_task(
    'k4',
    data_sources.monolingual_source(toy_corpus, 'en'),
    language='en',
    dictionaries=[dictionary],
    settings=CodeSwitching(num_copies=2),
  )
  texts = _texts('k4')
  assert len(texts) == 400
  different = sum(a != b for a, b in zip(texts[:200], texts[200:], strict=True))
  assert 50 < different


def test_copies_of_custom_sources(registry):
  registry.add_code_switched_task(
    'k5',
    _source(['the cat', 'a cat'], num_input_examples={'train': 2}),
    language='en',
    dictionaries=[_CATS],
    settings=dataclasses.replace(_ALWAYS, num_copies=2),
  )
  assert registry.num_examples('k5') == 4
  assert _texts('k5') == ['the Katze', 'a Katze'] * 2
  registry.add_code_switched_task(
    'k6',
    _source(['a cat']),
    language='en',
    dictionaries=[_CATS],
    settings=dataclasses.replace(_ALWAYS, num_copies=2),
  )
  assert task_examples.source_size('k6', 'train') is None


_TASK = 'corpus.k7.code_switched.en'


def _open_tasks(corpus):
  corpus_tasks.register_corpus(Corpus(corpus), prefix='corpus.k7')
  return cache_adapter.RegisteredTasks()


def _write(registry, corpus, vocabulary, directory, **options):
  [meta] = cache_writer.write_cache(
    cache_writer.Plan(
      directory=directory,
      mixtures=[_TASK],
      vocabulary=vocabulary,
      shard_size=40 * 256,
      open_tasks=functools.partial(_open_tasks, corpus),
      **options,
    )
  )
  return meta


def test_cache_contains_switched_text_and_rejects_another_dictionary(
  registry, tmp_path, toy_sentences, toy_vocabulary
):
  corpus, cache = tmp_path / 'corpus', tmp_path / 'cache'
  corpus_writer.write_monolingual(corpus, 'en', [toy_sentences['en'][:100]])
  corpus_writer.write_dictionary(corpus, ('en', 'de'), [('cat', 'Katze')])
  meta = _write(registry, corpus, toy_vocabulary, cache)
  name, arguments = meta.fingerprint['preprocessors'][2]
  assert name == 'code_switch'
  assert (
    arguments['probability'] == 0.3 and len(arguments['dictionaries']) == 64
  )
  [task] = cache_reader.TokenCache(cache).open(_TASK, 'train').values()
  cached = reading.tokens(task.sides[0])
  texts = _texts(_TASK)
  expected = np.concatenate(
    [
      [*toy_vocabulary.encode(text), toy_vocabulary.spec.eos_id]
      for text in texts
    ]
  )
  np.testing.assert_array_equal(cached, expected)
  assert any('Katze' in text for text in texts)

  reader = cache_reader.TokenCache(cache)
  reader.check_corpus(Corpus(corpus), _TASK, 'train')
  corpus_writer.write_dictionary(corpus, ('en', 'de'), [('cat', 'Kater')])
  with raises_error(errors.CacheError, where='corpus', mentions='en'):
    reader.check_corpus(Corpus(corpus), _TASK, 'train')
  with raises_error(errors.CacheError, where='train'):
    _write(registry, corpus, toy_vocabulary, cache)
  _write(
    registry,
    corpus,
    toy_vocabulary,
    cache,
    changed=cache_writer.Changed.REPLACE,
  )


def test_fingerprint_depends_on_the_settings(registry, toy_corpus):
  fingerprints = set()
  for number, settings in enumerate(
    (CodeSwitching(), CodeSwitching(seed=1), CodeSwitching(num_copies=2))
  ):
    corpus_tasks.register_corpus(
      toy_corpus, prefix=f'k8{number}', code_switching=settings
    )
    fingerprint = task_examples.task_fingerprint(
      f'k8{number}.code_switched.en', 'train'
    )
    fingerprints.add(json.dumps(fingerprint))
  assert len(fingerprints) == 3


def test_malformed_dictionary_is_reported_with_its_line(
  registry, tmp_path, toy_vocabulary
):
  corpus_writer.write_monolingual(tmp_path, 'en', [['the cat']])
  (tmp_path / 'dictionaries').mkdir()
  path = tmp_path / 'dictionaries' / 'en-de.tsv'
  path.write_text('cat\tKatze\ndog Hund\n')
  corpus_tasks.register_corpus(Corpus(tmp_path), prefix='k9')
  for read in (
    lambda: _texts('k9.code_switched.en'),
    lambda: list(
      task_reader.read_tokenized_examples('k9.code_switched.en', toy_vocabulary)
    ),
  ):
    with raises_error(errors.CorpusError, mentions=f'{path}:2'):
      read()
