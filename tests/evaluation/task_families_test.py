"""Tests of the registry of task families and metrics."""

import dataclasses
import re

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.config import config_files
from xlflax.evaluation import eval_task, task_families
from xlflax.evaluation.metrics import metric
from xlflax.evaluation.metrics.metric import Better, Metric, Unit
from xlflax.utils import errors

_OPTIONS = {'corpus': 'c', 'mixture': 'm', 'tatoeba': 't'}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneFile(eval_task.EvalTask):
  """User-defined task family without a source."""

  METRICS = (Metric('test_gap', Better.LOWER, title='gap'), metric.F1)
  name: str = 'one_file'


def test_all_shipped_families_declare_metrics():
  assert set(task_families.task_names()) >= {
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
  for name in task_families.task_names():
    cls = task_families.find_task_class(name)
    if cls.__module__.startswith('xlflax.'):
      task = cls(**task_families.task_arguments(name, _OPTIONS))
      declared = {metric.name for metric in cls.METRICS}
      assert {
        task.primary_metric,
        *task.score_metrics,
        *task.further_metrics,
      } <= declared, name
      assert (
        task_families.find_metric(task.primary_metric).better
        is not Better.NEITHER
      )


def test_task_arguments_contain_the_source():
  arguments = task_families.task_arguments('tatoeba', _OPTIONS)
  assert (arguments['name'], arguments['source'].directory) == ('tatoeba', 't')
  assert (
    task_families.task_arguments('tagging', _OPTIONS)['source'].kind
    == 'tagging'
  )
  assert task_families.task_arguments('one_file', _OPTIONS) == {}
  with raises_error(errors.ConfigError, mentions='--mixture=NAME'):
    task_families.task_arguments('parsing', {'corpus': 'c'})


def test_tasks_on_labeled_examples_have_gin_files():
  for name in task_families.task_names():
    mixture = task_families.text_options(name).get('mixture')
    is_required = mixture is not None and mixture.default is mixture.empty
    if not is_required or name == 'nearest_sentences':
      assert name not in task_families.GIN_FILES
      continue
    with raises_error(errors.ConfigError) as caught:
      task_families.task_arguments(name, {'corpus': 'c'})
    file = task_families.GIN_FILES[name]
    assert f'--gin_file={file} --gin.TEST_FILES="{{' in caught.value.fix
    text = (config_files.SHIPPED / file).read_text()
    cls = task_families.find_task_class(name)
    assert re.search(rf'evaluate\.tasks = \[@\w+\.{cls.__name__}\(\)\]', text)


@pytest.mark.parametrize(
  ('name', 'option'),
  [
    ('nearest_sentences', '--mixture=NAME'),
    ('ranking', '--corpus=DIR'),
    ('tatoeba', '--tatoeba=DIR'),
  ],
)
def test_missing_source_has_a_hint(name, option):
  with raises_error(errors.ConfigError) as caught:
    task_families.task_arguments(name, {})
  assert option in caught.value.fix
  assert '--gin_file' not in caught.value.fix


def test_text_options_equal_the_options_of_the_source():
  corpus = {'corpus', 'mixture', 'split', 'languages', 'max_examples'}
  assert set(task_families.text_options('retrieval')) == corpus
  assert set(task_families.text_options('tatoeba')) == {
    'tatoeba',
    'languages',
    'max_examples',
  }
  assert set(task_families.text_options('parsing')) == corpus - {'corpus'}
  assert set(task_families.text_options('one_file')) == set()
  for name in task_families.task_names():
    # Other tests register tasks whose sources have wrong parameters.
    if task_families.find_task_class(name).__module__.startswith('xlflax.'):
      task_families.check_text_options(name, [*corpus, 'tatoeba'])


def test_find_metric():
  assert task_families.find_metric('test_gap').better is Better.LOWER
  assert task_families.find_metric('bleu').unit is Unit.POINTS
  assert task_families.find_metric('exact_match').title == 'exact match'
  unknown = task_families.find_metric('unheard_of')
  assert unknown == Metric('unheard_of', Better.NEITHER)
  assert unknown.unit is Unit.UNBOUNDED and '0 to 1' not in unknown.explained
  assert task_families.better_of('any/argmax_aer/de-en') is Better.LOWER


@pytest.mark.parametrize(
  'recorded, fields',
  [
    ('accuracy', {'what': '<task>/<metric>/<part>', 'fix': 'None'}),
    ('any/unheard_of/de', {'what': "'any'", 'fix': '--task_module'}),
    ('any/best_layer/de', {'fix': 'Better.HIGHER', 'where': 'None'}),
    (
      'word_alignment/unheard_of/de',
      {'what': "'unheard_of'", 'expected': 'aer', 'fix': 'METRICS'},
    ),
  ],
)
def test_metric_of_unknown_direction_is_rejected_with_the_cause(
  recorded, fields
):
  with raises_error(errors.ConfigError, got=recorded) as caught:
    task_families.better_of(recorded)
  for field, text in fields.items():
    assert text in str(getattr(caught.value, field))


def test_duplicate_names_and_metrics_are_rejected():
  with raises_error(errors.ConfigError, mentions='one_file'):

    class Second(eval_task.EvalTask):
      name: str = 'one_file'

    del Second
  with raises_error(
    errors.ConfigError,
    mentions=(
      'aer',
      'test_duplicate_names_and_metrics_are_rejected.<locals>.Third.METRICS',
    ),
  ):

    class Third(eval_task.EvalTask):
      METRICS = (Metric('aer', Better.HIGHER),)
      name: str = 'third'

    del Third
  assert 'third' not in eval_task.known_tasks()
  assert OneFile().score_metrics == ('test_gap',)


def test_task_without_metrics_is_rejected():
  with raises_error(errors.ConfigError, where='EvalTask'):
    _ = eval_task.EvalTask(name='x').primary_metric


def test_a_class_without_a_default_name_is_reported():
  @dataclasses.dataclass(frozen=True, kw_only=True)
  class UnnamedTask(eval_task.EvalTask):
    METRICS = (metric.F1,)

  with pytest.raises(errors.ConfigError) as caught:
    task_families.find_task_class('unnamed_task')
  assert_mentions(caught.value.fix, 'UnnamedTask', "name: str = 'unnamed_task'")
  assert '--task_module' not in caught.value.fix
