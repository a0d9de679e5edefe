"""Task families register themselves and declare what they report."""

import dataclasses

from tests.errors import raises_error
from xlflax.evaluation import base, families
from xlflax.evaluation.metrics import declaration
from xlflax.evaluation.metrics.declaration import Better, Metric, Unit
from xlflax.foundation import errors

_OPTIONS = {'corpus': 'c', 'mixture': 'm', 'tatoeba': 't'}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneFile(base.EvalTask):
  """A family of a user's own, without a source."""

  METRICS = (Metric('test_gap', Better.LOWER, title='gap'), declaration.F1)
  name: str = 'one_file'


def test_every_family_of_the_package_declares_its_metrics():
  assert set(families.task_names()) >= {
    'bitext_mining',
    'classification',
    'nearest_sentences',
    'parsing',
    'perplexity',
    'question_answering',
    'retrieval',
    'tagging',
    'tatoeba',
    'translation',
    'translation_perplexity',
    'word_alignment',
  }
  for name in families.task_names():
    cls = families.find_task_class(name)
    if cls.__module__.startswith('xlflax.'):
      task = cls(**families.task_arguments(name, _OPTIONS))
      declared = {metric.name for metric in cls.METRICS}
      assert {
        task.primary_metric,
        *task.score_metrics,
        *task.further_metrics,
      } <= declared, name
      assert (
        families.find_metric(task.primary_metric).better is not Better.NEITHER
      )


def test_text_of_a_family():
  made = families.task_arguments('tatoeba', _OPTIONS)
  assert (made['name'], made['source'].directory) == ('tatoeba', 't')
  assert (
    families.task_arguments('tagging', _OPTIONS)['source'].kind == 'tagging'
  )
  assert families.task_arguments('one_file', _OPTIONS) == {}
  with raises_error(errors.ConfigError, mentions='--mixture=NAME'):
    families.task_arguments('parsing', {'corpus': 'c'})


def test_text_options_are_what_the_source_of_a_task_reads():
  corpus = {'corpus', 'mixture', 'split', 'languages', 'max_examples'}
  assert set(families.text_options('retrieval')) == corpus
  assert set(families.text_options('tatoeba')) == {'tatoeba', 'languages'}
  assert set(families.text_options('parsing')) == corpus - {'corpus'}
  assert set(families.text_options('one_file')) == set()


def test_metrics():
  assert families.find_metric('test_gap').better is Better.LOWER
  assert families.find_metric('bleu').unit is Unit.POINTS
  assert families.find_metric('exact_match').title == 'exact match'
  assert families.find_metric('unheard_of') == Metric('unheard_of')
  assert families.better_of('any/argmax_aer/de-en') is Better.LOWER
  for unknown in ('any/unheard_of/de', 'accuracy', 'any/best_layer/de'):
    with raises_error(errors.ConfigError, mentions=unknown):
      families.better_of(unknown)


def test_names_and_metrics_are_declared_once():
  with raises_error(errors.ConfigError, mentions='one_file'):

    class Second(base.EvalTask):
      name: str = 'one_file'

    del Second
  with raises_error(
    errors.ConfigError,
    mentions=(
      'aer',
      'test_names_and_metrics_are_declared_once.<locals>.Third.METRICS',
    ),
  ):

    class Third(base.EvalTask):
      METRICS = (Metric('aer'),)
      name: str = 'third'

    del Third
  assert 'third' not in base.known_tasks()
  assert OneFile().score_metrics == ('test_gap',)


def test_a_task_without_metrics():
  with raises_error(errors.ConfigError, where='EvalTask'):
    _ = base.EvalTask(name='x').primary_metric
