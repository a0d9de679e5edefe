"""Tests of the registry of tasks and mixtures."""

import pytest
import seqio
import tensorflow as tf

from tests.errors import raises_error
from xlflax.data.seqio_tasks import corpus_tasks
from xlflax.utils import errors


def _source(number: int | None = 3):
  return seqio.FunctionDataSource(
    lambda split, shuffle_files: tf.data.Dataset.from_tensor_slices(
      {'text': ['a', 'b', 'c']}
    ),
    splits=['train'],
    num_input_examples=number and {'train': number},
  )


def test_rates_are_sizes_to_the_power_alpha(registry, toy_corpus):
  corpus_tasks.register_corpus(toy_corpus, prefix='t2', alpha=0.5)
  assert registry.expand_mixture('t2.mono') == pytest.approx(
    {'t2.mono.de': 60**0.5, 't2.mono.en': 200**0.5, 't2.mono.ru': 10.0}
  )
  assert registry.expand_mixture('t2.mono.de') == {'t2.mono.de': 1.0}


def test_nested_mixtures_divide_their_rate(registry):
  for name in ('t3.a', 't3.b', 't3.c'):
    registry.add_monolingual_task(name, _source(), language='en')
  registry.add_mixture('t3.inner', ['t3.a', 't3.b'])
  seqio.MixtureRegistry.add('t3.outer', [('t3.inner', 3.0), ('t3.c', 1.0)])
  assert registry.expand_mixture('t3.outer') == pytest.approx(
    {'t3.a': 1.5, 't3.b': 1.5, 't3.c': 1.0}
  )


def test_members_of_a_member_mixture_become_members(registry):
  for name in ('t9.a', 't9.b', 't9.c'):
    registry.add_monolingual_task(name, _source(), language='en')
  registry.add_mixture('t9.inner', ['t9.a', 't9.b'])
  registry.add_mixture('t9.outer', ['t9.inner', 't9.c', 't9.a'], alpha=0.5)
  rates = registry.expand_mixture('t9.outer')
  assert list(rates) == ['t9.a', 't9.b', 't9.c']
  assert len(set(rates.values())) == 1


def test_expand_omits_tasks_without_the_split(registry, toy_corpus):
  corpus_tasks.register_corpus(toy_corpus, prefix='t4')
  assert list(registry.expand_mixture('t4.mono', split='validation')) == [
    't4.mono.de',
    't4.mono.en',
    't4.mono.ru',
  ]
  with raises_error(errors.CorpusError, mentions='t4.mono'):
    registry.expand_mixture('t4.mono', split='test')


def test_unknown_names_suggest_similar_names(registry, toy_corpus, monkeypatch):
  monkeypatch.setattr(registry, '_module_tasks', {})
  corpus_tasks.register_corpus(toy_corpus, prefix='t7')
  for query in (registry.expand_mixture, registry.task_languages):
    with raises_error(
      errors.CorpusError, mentions=('t7.mono.de', '--task_module')
    ):
      query('t7.mono.dee')


def test_duplicate_names_are_rejected(registry):
  registry.add_monolingual_task('t8.a', _source(), language='en')
  with raises_error(errors.CorpusError, got='t8.a'):
    registry.add_monolingual_task('t8.a', _source(), language='en')
  registry.add_mixture('t8', ['t8.a'])
  with raises_error(errors.CorpusError, got='t8'):
    registry.add_mixture('t8', ['t8.a'])


def test_languages_of_plain_seqio_tasks_must_be_set(registry):
  seqio.TaskRegistry.add('t9', _source(), output_features={})
  with raises_error(errors.CorpusError, mentions='t9'):
    registry.task_languages('t9')
  registry.set_task_languages('t9', ['sw'])
  assert registry.task_languages('t9') == ('sw',)


def test_unknown_size_has_no_rate(registry):
  registry.add_monolingual_task('t10.a', _source(None), language='en')
  registry.add_mixture('t10', ['t10.a'])
  with raises_error(errors.CorpusError, mentions='t10.a'):
    registry.expand_mixture('t10')


def test_missing_split_is_rejected(registry, toy_corpus):
  corpus_tasks.register_corpus(toy_corpus, prefix='t11')
  with raises_error(errors.CorpusError, mentions=('test', 'train')):
    registry.num_examples('t11.mono.de', 'test')


def test_fingerprint_of_task_files(registry, toy_corpus):
  corpus_tasks.register_corpus(toy_corpus, prefix='t12')
  assert registry.fingerprint_task_files('t12.mono.de') == (
    toy_corpus.group_fingerprint('de')
  )
  registry.add_monolingual_task('t12.other', _source(), language='en')
  assert registry.fingerprint_task_files('t12.other') is None
