"""Tests of evaluation during training."""

import dataclasses
import json
import types

import jax.numpy as jnp
import pytest

from tests.errors import assert_mentions, raises_error
from tests.training import tiny
from xlflax.evaluation import during_training, eval_task, text_sources
from xlflax.evaluation.metrics import metric
from xlflax.evaluation.tasks import perplexity
from xlflax.training.optimization import optimizers
from xlflax.utils import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Bias(eval_task.EvalTask):
  """Returns the parameter 'bias' as a metric, or fails."""

  fails: bool = False

  @property
  def primary_metric(self):
    return 'bias'

  def evaluate(self, eval_model):
    if self.fails:
      raise ValueError('no text')
    return eval_task.EvalResult(
      metrics={
        'bias': float(eval_model.params['model']['bias']),
        'seed': float(eval_model.seed),
        'nan': float('nan'),
      }
    )


def _setup(directory, ema_decay=None):
  return types.SimpleNamespace(
    model=tiny.make_model(),
    vocabulary=types.SimpleNamespace(hash='v'),
    model_dir=directory,
    settings=types.SimpleNamespace(
      ema_decay=ema_decay,
      partitioner=None,
      datasets=(),
      objectives=types.SimpleNamespace(objectives=(), entries=()),
    ),
  )


def _state(step):
  state = tiny.regression_state(optimizers.Adam(learning_rate=0.1), ema=True)
  return state.replace(
    step=jnp.int32(step), ema={'model': {'bias': jnp.float32(9.0)}}
  )


def test_evaluation_is_due_at_intervals_and_the_last_step():
  evaluation = during_training.Evaluation(tasks=(), eval_interval_steps=10)
  assert [s for s in range(1, 26) if evaluation.is_due(s, 25)] == [10, 20, 25]


@pytest.mark.parametrize(
  ('number', 'last_step', 'steps'),
  [
    (2, 10, [5, 10]),
    # Three epochs of 25 examples in batches of 10 are 8 steps.
    (3, 8, [3, 6, 8]),
    (1, 7, [7]),
    (9, 3, [1, 2, 3]),
  ],
)
def test_number_of_evaluations(number, last_step, steps):
  evaluation = during_training.Evaluation(
    tasks=(), eval_interval_steps=1, num_evaluations=number
  )
  due = [
    step
    for step in range(1, last_step + 1)
    if evaluation.is_due(step, last_step)
  ]
  assert due == steps


def test_interval_must_be_positive():
  with pytest.raises(errors.ConfigError) as error:
    during_training.Evaluation(tasks=(), eval_interval_steps=0)
  assert error.value.where == 'Evaluation.eval_interval_steps'


@pytest.mark.parametrize(
  ('metric', 'is_computed'),
  [
    ('perplexity/perplexity/de', True),
    ('perplexity/loss/mean', True),
    ('perplexity/perplexity/en', False),
    ('perplexity/perplexity', False),
    ('perplexity/bleu/de', False),
    ('bias/bias', True),
    ('retrieval/accuracy/de', False),
  ],
)
def test_metrics_that_no_task_computes_are_rejected(
  tmp_path, metric, is_computed
):
  """The text has no English, and the languages of `_Bias` are unknown."""
  file = tmp_path / 'de.txt'
  file.write_text('Ein Satz.\n')
  source = text_sources.FileText(files={'de': str(file)})
  evaluation = during_training.Evaluation(
    tasks=(perplexity.Perplexity(source=source), _Bias(name='bias')),
    eval_interval_steps=5,
  )
  if is_computed:
    evaluation.check_metric(metric)
  else:
    with raises_error(errors.ConfigError, got=metric):
      evaluation.check_metric(metric)


def test_results_are_returned_and_recorded(tmp_path):
  evaluation = during_training.Evaluation(
    tasks=[_Bias(name='a')], eval_interval_steps=1, seed=4
  )
  metrics = evaluation.run(_setup(tmp_path), _state(7))
  assert (metrics['a/bias'], metrics['a/seed']) == (0.5, 4.0)
  (file,) = tmp_path.glob('eval/a/all-*/7.json')
  record = json.loads(file.read_text())
  assert record['settings']['seed'] == 4
  assert record['step'] == 7
  assert record['is_development'] is True
  assert record['metrics'] == {'bias': 0.5, 'seed': 4.0, 'nan': None}


@pytest.mark.parametrize(
  ('ema_decay', 'use_ema', 'bias'),
  [(0.9, True, 9.0), (0.9, False, 0.5), (None, True, 0.5)],
)
def test_ema_parameters_are_evaluated_if_enabled(
  tmp_path, ema_decay, use_ema, bias
):
  evaluation = during_training.Evaluation(
    tasks=(_Bias(name='a'),), eval_interval_steps=1, use_ema=use_ema
  )
  metrics = evaluation.run(_setup(tmp_path, ema_decay), _state(1))
  assert metrics['a/bias'] == bias


def test_primary_metrics_are_logged(tmp_path, caplog):
  caplog.set_level('INFO')
  evaluation = during_training.Evaluation(
    tasks=(_Bias(name='a'),), eval_interval_steps=1
  )
  evaluation.run(_setup(tmp_path), _state(3))
  assert_mentions(caplog.text, 'step 3 | a bias 0.500')


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Languages(eval_task.EvalTask):
  """Returns a score for each of two languages, and no mean."""

  METRICS = (metric.ACCURACY,)

  def evaluate(self, eval_model):
    return eval_task.EvalResult(
      metrics={'accuracy/de': 0.25, 'accuracy/fr': 0.75}
    )


def test_the_mean_of_a_task_without_a_mean_selects_and_is_logged(
  tmp_path, caplog
):
  caplog.set_level('INFO')
  evaluation = during_training.Evaluation(
    tasks=(_Languages(name='a'), _Bias(name='b', fails=True)),
    eval_interval_steps=1,
  )
  evaluation.check_metric('a/accuracy/mean')
  metrics = evaluation.run(_setup(tmp_path), _state(3))
  assert metrics['a/accuracy/mean'] == 0.5
  assert_mentions(caplog.text, 'a accuracy 0.500', 'b bias failed')


def test_failed_task_is_omitted(tmp_path, caplog):
  evaluation = during_training.Evaluation(
    tasks=(_Bias(name='bad', fails=True), _Bias(name='good')),
    eval_interval_steps=1,
  )
  metrics = evaluation.run(_setup(tmp_path), _state(3))
  assert {name.split('/')[0] for name in metrics} == {'good'}
  assert_mentions(caplog.text, 3, 'ValueError')
  (file,) = tmp_path.glob('eval/bad/all-*/3.json')
  record = json.loads(file.read_text())
  assert_mentions(record['failures'][0]['message'], 'ValueError: no text')
