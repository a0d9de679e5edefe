import pytest
import seqio
import tensorflow as tf

from tests.data.shifted_pairs import shifted_pairs
from tests.errors import assert_mentions, raises_error
from xlflax.data.corpus import corpus_directory, corpus_writer
from xlflax.data.seqio_tasks import corpus_tasks, task_registry
from xlflax.evaluation import during_training, task_sources, text_sources
from xlflax.evaluation.tasks import perplexity
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']


@pytest.fixture(scope='module', autouse=True)
def registered(corpus):
  names = corpus_tasks.register_corpus(
    corpus_directory.Corpus(corpus), prefix='evaluated'
  )
  yield
  for name in names:
    seqio.TaskRegistry.remove(name)
    seqio.MixtureRegistry.remove(name)


def test_text_of_a_mixture_equals_the_corpus(corpus):
  by_task = task_sources.TaskText(mixture='evaluated.mono')
  by_corpus = text_sources.CorpusText(directory=corpus)
  assert by_task.languages_found() == ('de', 'en', 'ja')
  assert by_task.load('ja') == by_corpus.load('ja')
  assert by_task.fingerprint() == by_corpus.fingerprint()


def test_pairs_of_a_mixture_equal_the_corpus(corpus):
  by_task = task_sources.SeqioPairs(mixture='evaluated.parallel', max_pairs=4)
  by_corpus = text_sources.ParallelCorpus(directory=corpus, max_pairs=4)
  assert by_task.pairs() == by_corpus.pairs()
  assert by_task.load(('de', 'en')) == by_corpus.load(('de', 'en'))


def test_shifted_pairs_of_a_task_cause_a_warning(tmp_path, caplog):
  corpus_writer.write_parallel(
    tmp_path, ('en', 'de'), shifted_pairs(lines=1), split='test'
  )
  names = corpus_tasks.register_corpus(
    corpus_directory.Corpus(tmp_path), prefix='shifted'
  )
  source = task_sources.SeqioPairs(mixture='shifted.parallel')
  source.load(source.pairs()[0])
  assert [
    record for record in caplog.records if 'shifted.parallel' in record.message
  ]
  for name in names:
    seqio.TaskRegistry.remove(name)
    seqio.MixtureRegistry.remove(name)


def test_single_task_and_selected_languages():
  source = task_sources.TaskText(mixture='evaluated.mono.de', max_lines=2)
  assert source.languages_found() == ('de',)
  assert len(source.load('de')) == 2
  chosen = task_sources.SeqioPairs(
    mixture='evaluated.parallel', languages=('ja',)
  )
  assert chosen.pairs() == (('en', 'ja'),)


@pytest.mark.parametrize(
  'settings, values',
  [
    (dict(mixture='evaluated.mno'), ('evaluated.mono', 'evaluated.mno')),
    (dict(mixture='evaluated.parallel'), 'evaluated.parallel'),
    (
      dict(mixture='evaluated.mono', languages=('tr',)),
      ('evaluated.mono', 'tr'),
    ),
    (dict(mixture='evaluated.mono', split='validation'), 'evaluated.mono'),
  ],
)
def test_unknown_names_are_rejected(settings, values):
  with raises_error(errors.CorpusError, mentions=values):
    task_sources.TaskText(**settings).languages_found()


def test_perplexity_of_task_and_corpus_are_equal(corpus, eval_model):
  numbers = [
    perplexity.Perplexity(source=source, length=16, batch_size=8)
    .evaluate(eval_model)
    .metrics['perplexity/de']
    for source in (
      task_sources.TaskText(mixture='evaluated.mono.de'),
      text_sources.CorpusText(directory=corpus, languages=('de',)),
    )
  ]
  assert numbers[0] == numbers[1]


@pytest.fixture
def equal_splits():
  """Task whose source returns the same sentences for both splits."""

  def read(split, shuffle_files, seed=None):
    del split, shuffle_files, seed
    texts = [f'the text {n}' for n in range(8)]
    return tf.data.Dataset.from_tensor_slices({'text': texts})

  name = 'equal.en'
  task_registry.add_monolingual_task(
    name,
    seqio.FunctionDataSource(read, splits=('train', 'validation')),
    language='en',
  )
  yield name
  seqio.TaskRegistry.remove(name)


def test_evaluation_on_training_text_causes_a_warning(equal_splits, caplog):
  source = task_sources.TaskText(mixture=equal_splits, split='validation')
  evaluation = during_training.Evaluation(
    tasks=(perplexity.Perplexity(source=source, length=16),),
    eval_interval_steps=1,
  )
  evaluation.check_inputs({})
  [record] = caplog.records
  assert record.levelname == 'WARNING'
  assert_mentions(record.getMessage(), equal_splits, 'train', 'validation')


def test_only_sources_with_training_examples_cause_a_warning(
  equal_splits, corpus, caplog
):
  task_sources.warn_of_split_problems(
    [
      None,
      text_sources.CorpusText(directory=corpus),
      task_sources.TaskText(mixture='missing'),
      task_sources.TaskText(mixture=equal_splits, split='train'),
    ]
  )
  assert not caplog.records


def test_names_of_the_tasks_of_the_selected_languages():
  assert task_sources.TaskText(
    mixture='evaluated.mono', languages=('ja', 'de')
  ).task_names() == ('evaluated.mono.ja', 'evaluated.mono.de')
  assert task_sources.SeqioPairs(
    mixture='evaluated.parallel', languages=('ja',)
  ).task_names() == ('evaluated.parallel.en_ja',)
