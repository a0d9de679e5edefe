import dataclasses
import enum
import json
import math
import types
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.evaluation import eval_task, text_sources
from xlflax.evaluation.metrics import metric
from xlflax.evaluation.tasks import retrieval_task
from xlflax.storage import content_hash
from xlflax.utils import class_registry, errors


class _Kind(enum.Enum):
  ONE = 'one'
  TWO = 'two'


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Text:
  directory: str
  text: str

  def fingerprint(self):
    return self.text


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Task(eval_task.EvalTask):
  METRICS = (metric.ACCURACY,)
  name: str = 'task'
  source: _Text = _Text(directory='a', text='x')
  kind: _Kind = _Kind.ONE
  error: type[Exception] | None = None

  def evaluate(self, eval_model):
    if self.error:
      raise self.error('the reason')
    return eval_task.EvalResult(metrics={'m/x': 1.0})


def test_result_round_trips_through_json():
  result = eval_task.EvalResult(
    metrics={'m/de': 0.5},
    tables={'t': [{'layer': 1, 'value': 0.25}]},
    notes=('n',),
    failures=(eval_task.Failure(task='t', part='en', message='m'),),
    layers=(1, 12),
    num_layers=12,
    declarations=(
      metric.Metric('m', metric.Better.LOWER, metric.Unit.POINTS, 'M', 'Text.'),
    ),
    test_data='corpus',
    max_examples=20,
  )
  value = json.loads(json.dumps(result.to_json()))
  assert eval_task.EvalResult.from_json(value) == result


@pytest.mark.parametrize(
  'layers',
  [{'layers': 3}, {'layers': ['1']}, {'layers': [1]}, {'layers': None}],
)
def test_invalid_layers_are_rejected(layers):
  value = eval_task.EvalResult(metrics={}).to_json() | layers
  with pytest.raises(ValueError):
    eval_task.EvalResult.from_json(value)


def test_test_data_is_the_directory_or_mixture():
  mixture = types.SimpleNamespace(directory=None, mixture='flores')
  for source, expected in (
    (_Text(directory='corpus', text='x'), 'corpus'),
    (mixture, 'flores'),
    (types.SimpleNamespace(files={}), ''),
    (None, ''),
  ):
    assert (
      _Task.test_data.fget(types.SimpleNamespace(source=source)) == expected
    )
  # A result that was stored without test data can be read.
  value = eval_task.EvalResult(metrics={}).to_json()
  del value['test_data']
  assert eval_task.EvalResult.from_json(value).test_data == ''


@pytest.mark.parametrize(
  ('limit', 'expected'),
  [
    ({'max_examples': 3}, 3),
    ({'max_lines': 4}, 4),
    ({'max_pairs': 5}, 5),
    ({'max_pairs': None}, None),
    ({}, None),
  ],
)
def test_results_record_the_maximum_number_of_examples(limit, expected):
  @dataclasses.dataclass(frozen=True, kw_only=True)
  class _Limited(_Task):
    source: Any = dataclasses.field(
      default_factory=lambda: types.SimpleNamespace(directory='a', **limit)
    )

  result = eval_task.evaluate_task(_Limited(name='limited'), None)
  assert not result.failures
  assert result.max_examples == expected
  # A result that was stored without a limit can be read.
  value = result.to_json()
  del value['max_examples']
  assert eval_task.EvalResult.from_json(value).max_examples is None
  with pytest.raises(ValueError):
    eval_task.EvalResult.from_json(value | {'max_examples': 'all'})


def test_non_finite_numbers_are_stored_as_null():
  result = eval_task.EvalResult(
    metrics={'m': math.inf}, tables={'t': [{'v': math.nan}]}
  )
  value = result.to_json()
  assert value['metrics'] == {'m': None}
  assert value['tables'] == {'t': [{'v': None}]}
  assert math.isnan(eval_task.EvalResult.from_json(value).metrics['m'])


def test_failure_names_the_task():
  result = eval_task.evaluate_task(_Task(error=errors.CorpusError), None)
  assert result.metrics == {}
  (failure,) = result.failures
  assert str(failure) == 'task: the reason.'


def test_exception_of_a_user_task_is_reported_with_its_line(caplog):
  result = eval_task.evaluate_task(_Task(error=ZeroDivisionError), None)
  (failure,) = result.failures
  assert failure.status == errors.ExitStatus.MISTAKE
  assert_mentions(
    failure,
    '`_Task.evaluate`',
    'ZeroDivisionError: the reason',
    'raise self.error',
    'tests/evaluation/eval_task_test.py',
  )
  assert not caplog.text


def test_unexpected_exception_is_logged_with_traceback(caplog):
  failures = eval_task.Failures('task')
  with failures.guard('de'):
    raise ZeroDivisionError('the reason')
  (failure,) = failures.collected()
  assert str(failure) == 'task: de: ZeroDivisionError: the reason'
  assert failure.status == errors.ExitStatus.BUG
  assert any(record.exc_info for record in caplog.records)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Returning(eval_task.EvalTask):
  METRICS = (metric.ACCURACY, metric.SPEARMAN)
  name: str = 'returning'
  value: Any

  def evaluate(self, eval_model):
    return self.value


@pytest.mark.parametrize(
  'value, mentions',
  [
    ({'accuracy/en': 0.5}, ('_Returning', 'dict', 'EvalResult')),
    (None, ('NoneType', 'EvalResult')),
    (
      eval_task.EvalResult(metrics={'accuracy/en': np.ones(3)}),
      ("'accuracy/en'", 'shape [3]'),
    ),
    (
      eval_task.EvalResult(metrics={'accuracy/en': '0.5'}),
      ("'accuracy/en'", "'0.5'"),
    ),
    (eval_task.EvalResult(metrics={'accuracy/en': None}), ("'accuracy/en'",)),
    (eval_task.EvalResult(metrics={1: 0.5}), ('1', 'accuracy/en')),
    (eval_task.EvalResult(metrics=[0.5]), ('metrics', '[0.5]')),
    (eval_task.EvalResult(metrics={}, notes='text'), ('notes', "'text'")),
    (eval_task.EvalResult(metrics={}, failures=None), ('failures',)),
  ],
)
def test_an_invalid_result_is_reported(caplog, value, mentions):
  result = eval_task.evaluate_task(_Returning(value=value), None)
  (failure,) = result.failures
  assert failure.status == errors.ExitStatus.MISTAKE
  assert_mentions(failure, *mentions)
  assert not caplog.text


def test_metrics_are_converted_to_numbers():
  metrics = {
    'accuracy/en': np.float32(0.5),
    'accuracy/fr': jnp.ones([]),
    'accuracy/de': np.int64(1),
  }
  value = eval_task.EvalResult(metrics=metrics)
  result = eval_task.evaluate_task(_Returning(value=value), None)
  assert json.loads(json.dumps(result.to_json()))['metrics'] == {
    'accuracy/en': 0.5,
    'accuracy/fr': 1.0,
    'accuracy/de': 1.0,
    'accuracy/mean': 2.5 / 3,
  }


@pytest.mark.parametrize(
  'metrics, mean',
  [
    ({'accuracy/en': 0.5, 'accuracy/fr': 0.25}, 0.375),
    ({'accuracy/en': 0.5, 'accuracy/mean': 0.1}, 0.1),
    ({'accuracy': 0.5}, 0.5),
    ({'accuracy': 0.9, 'accuracy/en': 0.5, 'accuracy/fr': 0.25}, 0.375),
    ({'accuracy/en': 0.5, 'accuracy/fr': math.nan}, None),
    ({}, None),
  ],
)
def test_a_missing_mean_is_computed(metrics, mean):
  value = eval_task.EvalResult(metrics=metrics)
  result = eval_task.evaluate_task(_Returning(value=value), None)
  assert result.metrics.get('accuracy/mean') == mean
  assert 'spearman/mean' not in result.metrics


def test_missing_means_follow_the_kind_of_the_metric():
  @dataclasses.dataclass(frozen=True, kw_only=True)
  class _Perplexities(eval_task.EvalTask):
    METRICS = (
      metric.Metric('my_perplexity', metric.Better.LOWER),
      metric.Metric('my_tokens', metric.Better.NEITHER),
    )

  metrics = {
    'my_perplexity/en': 2.0,
    'my_perplexity/fr': 8.0,
    'my_tokens/en': 5.0,
    'my_tokens/fr': 7.0,
  }
  means = eval_task.missing_means(_Perplexities(name='p'), metrics)
  assert means == pytest.approx({'my_perplexity/mean': 4.0})


@pytest.mark.parametrize(
  'metrics, mentions',
  [
    ({'acc/en': 0.5}, ('acc/en', 'accuracy', 'spearman')),
    ({'accuracy/en': 0.5, 'accuracy/fr': 50.0}, ('accuracy/fr', 50, '0 to 1')),
    ({'accuracy/en': 1.0, 'spearman/en': -0.2}, None),
    (
      {'accuracy/en': 0.5, 'accuracy/fr': math.nan},
      ('_Returning', 'accuracy/fr', 'NaN'),
    ),
    ({'spearman/en': math.nan, 'spearman/fr': 0.5}, ('spearman/en', 'NaN')),
  ],
)
def test_unexpected_metrics_cause_a_warning(caplog, metrics, mentions):
  value = eval_task.EvalResult(metrics=metrics)
  result = eval_task.evaluate_task(_Returning(value=value), None)
  assert not result.failures
  returned = {name for name in result.metrics if not name.endswith('/mean')}
  assert returned == metrics.keys()
  messages = [record.getMessage() for record in caplog.records]
  if mentions is None:
    assert not messages
  else:
    (message,) = messages
    assert_mentions(message, *mentions)


def test_scores_of_shipped_tasks_may_be_undefined(caplog):
  """The tasks of xlflax return NaN for scores that are not defined."""
  task = retrieval_task.Retrieval.__new__(retrieval_task.Retrieval)
  eval_task.warn_of_unexpected_metrics(task, {'accuracy/en': math.nan})
  assert not caplog.text


def test_a_task_without_evaluate_is_reported(caplog):
  @dataclasses.dataclass(frozen=True, kw_only=True)
  class _Misspelled(eval_task.EvalTask):
    METRICS = (metric.ACCURACY,)
    name: str = 'misspelled'

    def eval(self, eval_model):
      raise AssertionError

  result = eval_task.evaluate_task(_Misspelled(), None)
  (failure,) = result.failures
  assert failure.status == errors.ExitStatus.MISTAKE
  assert_mentions(failure, '_Misspelled', '`evaluate`', 'EvalTask')
  assert not caplog.text


def test_keyboard_interrupt_is_not_a_task_failure():
  with pytest.raises(KeyboardInterrupt):
    eval_task.evaluate_task(_Task(error=KeyboardInterrupt), None)


def test_settings_depend_on_text_but_not_on_its_path():
  first = eval_task.task_settings(_Task())
  moved = eval_task.task_settings(_Task(source=_Text(directory='b', text='x')))
  other = eval_task.task_settings(_Task(source=_Text(directory='a', text='y')))
  assert first == moved
  assert eval_task.settings_hash(first) == eval_task.settings_hash(moved)
  assert eval_task.settings_hash(first) != eval_task.settings_hash(other)
  assert first['kind'] == 'one'


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Words:
  """Source without a fingerprint."""

  folder: str = 'words'

  @classmethod
  def from_options(cls, corpus):
    return cls(folder=corpus)


class _Loader:
  def load(self, language):
    return [language]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Scaling:
  factor: float = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class _DataTask(eval_task.EvalTask):
  name: str = 'data_task'
  source: object = None
  scaling: _Scaling = dataclasses.field(default_factory=_Scaling)
  words: object = None
  hashed: object = class_registry.path_field(
    content_hash.hash_paths, default=None
  )


def test_data_without_a_fingerprint_are_found(tmp_path):
  path = tmp_path / 'words.txt'
  path.write_text('a')
  find = eval_task.find_unidentified_data
  for task in (
    _DataTask(),
    _DataTask(source=_Task.source),
    _DataTask(source=[_Task.source], words='missing.txt', hashed=str(path)),
    retrieval_task.Retrieval(
      source=text_sources.ParallelCorpus(directory=str(tmp_path))
    ),
  ):
    assert find(task) is None
  assert find(_DataTask(source=_Words())) == 'source (_Words)'
  assert find(_DataTask(source=(_Task.source, _Loader()))) == 'source (_Loader)'
  assert find(_DataTask(words=str(path))) == f'words ({path})'
  assert find(_DataTask(words=[path])) == f'words ({path})'
  for source in (_Words(), _Loader(), path):
    eval_task.settings_hash(eval_task.task_settings(_DataTask(source=source)))


def test_settings_hash_depends_on_all_settings():
  hashes = {
    eval_task.settings_hash(eval_task.task_settings(task))
    for task in (_Task(), _Task(kind=_Kind.TWO), _Task(name='other'))
  }
  assert len(hashes) == 3


def test_batch_size_must_be_positive():
  with raises_error(errors.ConfigError, got=0, where='EvalModel.batch_size'):
    eval_task.EvalModel(model=None, params=None, vocabulary=None, batch_size=0)


def test_result_repr_html():
  failure = eval_task.Failure(task='t', part='<de>', message='no text')
  result = eval_task.EvalResult(
    metrics={'accuracy/en': 0.5}, failures=(failure,)
  )
  text = result._repr_html_()
  assert '<th>accuracy/en</th><td>0.5</td>' in text
  assert '&lt;de&gt;' in text and '<de>' not in text


def test_fields_are_validated_without_a_decorator():
  """`_Task` is a plain dataclass like the tasks of users."""
  with raises_error(errors.ConfigError, where='_Task.source', mentions='_Text'):
    _Task(source='a folder')
  with raises_error(errors.ConfigError, where='_Task.kind'):
    _Task(kind='three')
  assert _Task(kind='two').kind is _Kind.TWO


def test_unresolvable_annotations_are_accepted():
  @dataclasses.dataclass(frozen=True, kw_only=True)
  class _Unresolved(eval_task.EvalTask):
    METRICS = (metric.ACCURACY,)
    name: str = 'unresolved'
    source: 'NoSuchName' = None  # type: ignore[name-defined]  # noqa: F821

  assert _Unresolved(source=3).source == 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ReturnInLoop(_Task):
  def evaluate(self, eval_model):
    metrics = {}
    for language in ('de', 'en'):
      metrics[f'accuracy/{language}'] = 0.5
      return eval_task.EvalResult(metrics=metrics)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ReturnAfterLoop(_Task):
  def evaluate(self, eval_model):
    metrics = {}
    for language in ('de', 'en'):
      if metrics:
        return eval_task.EvalResult(metrics=metrics)
      metrics[f'accuracy/{language}'] = 0.5
    for language in metrics:
      return eval_task.EvalResult(metrics={language: 0.5})


@pytest.mark.parametrize(
  ('task', 'num_warnings'), [(_ReturnInLoop(), 1), (_ReturnAfterLoop(), 0)]
)
def test_return_in_a_loop_causes_a_warning(task, num_warnings, caplog):
  eval_task.evaluate_task(task, None)
  assert len(caplog.records) == num_warnings
  if num_warnings:
    assert_mentions(
      caplog.text, 'task', '_ReturnInLoop.evaluate', 'eval_task_test.py'
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Pairs:
  names: tuple[tuple[str, str], ...]

  def pairs(self):
    return self.names

  def fingerprint(self):
    return ''


@dataclasses.dataclass(frozen=True, kw_only=True)
class _PairTask(eval_task.EvalTask):
  METRICS = (metric.ACCURACY,)
  name: str = 'pair_task'
  source: _Pairs
  form: str

  def evaluate(self, eval_model):
    return eval_task.EvalResult(
      metrics={
        f'accuracy/{self.form.format(*pair)}': 0.5
        for pair in self.source.pairs()
      }
    )


@pytest.mark.parametrize(
  ('form', 'second', 'num_warnings'),
  [
    ('{0}', ('en', 'fr'), 1),
    ('{1}', ('fr', 'de'), 1),
    ('{0}-{1}', ('en', 'fr'), 0),
    ('{1}', ('en', 'fr'), 0),
    ('{0}', ('fr', 'de'), 0),
  ],
)
def test_pairs_with_the_same_metric_name_cause_a_warning(
  form, second, num_warnings, caplog
):
  source = _Pairs(names=(('en', 'de'), second))
  eval_task.evaluate_task(_PairTask(source=source, form=form), None)
  assert len(caplog.records) == num_warnings
  if num_warnings:
    pair = '-'.join(second)
    assert_mentions(caplog.text, 'pair_task', 'accuracy/en-de', pair)
