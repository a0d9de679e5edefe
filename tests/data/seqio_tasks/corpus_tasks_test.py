"""Tests of registering tasks and mixtures of a corpus directory."""

from tests.errors import raises_error
from xlflax.data.corpus import corpus_writer
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.seqio_tasks import corpus_tasks
from xlflax.utils import errors


def test_register_corpus_adds_tasks_and_mixtures(registry, toy_corpus):
  assert corpus_tasks.register_corpus(toy_corpus, prefix='t1') == (
    't1.mono.de',
    't1.mono.en',
    't1.mono.ru',
    't1.parallel.de_en',
    't1.code_switched.de',
    't1.code_switched.en',
    't1.mono',
    't1.parallel',
    't1.code_switched',
  )
  assert registry.task_languages('t1.mono.ru') == ('ru',)
  assert registry.task_languages('t1.parallel.de_en') == ('de', 'en')
  assert registry.num_examples('t1.mono.en') == 200
  assert registry.num_examples('t1.parallel.de_en', 'test') == 20


def test_registering_again_replaces_tasks(registry, tmp_path, toy_corpus):
  corpus_tasks.register_corpus(toy_corpus, prefix='t5')
  corpus_writer.write_monolingual(tmp_path, 'en', [['one']])
  names = corpus_tasks.register_corpus(Corpus(tmp_path), prefix='t5')
  assert names == ('t5.mono.en', 't5.mono')
  assert registry.num_examples('t5.mono.en') == 1
  assert list(registry.expand_mixture('t5.mono')) == ['t5.mono.en']
  with raises_error(errors.CorpusError, got='t5.mono.ru'):
    registry.task_languages('t5.mono.ru')


def test_corpus_with_only_test_text_has_a_mixture(registry, tmp_path):
  corpus_writer.write_parallel(
    tmp_path, ('de', 'en'), [('a', 'b')], split='test'
  )
  corpus_tasks.register_corpus(Corpus(tmp_path), prefix='t6')
  assert registry.expand_mixture('t6.parallel', split='test') == {
    't6.parallel.de_en': 1.0
  }
