"""Metrics of user-defined hooks whose names training also uses."""

import dataclasses
import json

import pytest

from tests.errors import assert_mentions, raises_error
from tests.training import fake_run
from xlflax import training
from xlflax.training import train_loop
from xlflax.utils import errors


@dataclasses.dataclass(kw_only=True)
class _Log(training.Hook):
  """Hook that writes metrics every few steps."""

  group: str = 'train'
  name: str = 'loss'
  every_steps: int = 4

  def after_step(self, run, step, output):
    if step % self.every_steps == 0:
      run.write_metrics(step, **{self.group: {self.name: 1.25}})


class _LogBeforeTraining(training.Hook):
  def before_training(self, run):
    run.write_metrics(0, train={'grad_norm': 0.0, 'accuracy': 0.0})


class _LogInHelper(training.Hook):
  def after_step(self, run, step, output):
    _write_metrics(run, 'loss')
    _write_metrics(run, 'learning_rate')


def _write_metrics(run, name):
  run.write_metrics(run.step, train={name: 2.0})


class _Evaluation:
  """An evaluation with one metric, after each 8 steps."""

  def is_due(self, step, last_step):
    return step % 8 == 0

  def run(self, setup, state):
    return {'retrieval/accuracy': 0.5}


@pytest.fixture
def warnings_of(tmp_path, monkeypatch, caplog):
  """Trains for 16 steps with hooks, with a report every 2 steps."""

  def run(*hooks, **options):
    caplog.clear()
    train_loop.run_steps(
      fake_run.make_run(
        monkeypatch, tmp_path, [1.0] * 24, hooks=hooks, **options
      )
    )
    return [r.getMessage() for r in caplog.records if r.levelname != 'INFO']

  return run


@pytest.mark.parametrize('every_steps', [1, 4, 16])
def test_metric_that_training_also_writes_causes_one_warning(
  warnings_of, tmp_path, every_steps
):
  [message] = warnings_of(_Log(every_steps=every_steps))
  assert_mentions(message, '_Log', 'train/loss', 'run.write_metrics')
  lines = (tmp_path / 'metrics.jsonl').read_text().splitlines()
  assert {'step': 16, 'train': {'loss': 1.25}} in map(json.loads, lines)


def test_each_hook_causes_one_warning_with_all_names(warnings_of):
  first, second = warnings_of(_LogBeforeTraining(), _LogInHelper())
  assert_mentions(first, '_LogBeforeTraining', 'train/grad_norm')
  assert 'accuracy' not in first
  assert_mentions(second, '_LogInHelper', 'train/learning_rate', 'train/loss')


def test_evaluation_metric_is_compared(warnings_of):
  [message] = warnings_of(
    _Log(group='eval', name='retrieval/accuracy'), evaluation=_Evaluation()
  )
  assert_mentions(message, '_Log', 'eval/retrieval/accuracy')


@pytest.mark.parametrize(
  ('group', 'name'),
  [('train', 'norm'), ('eval', 'f1'), ('norms', 'loss'), ('my/train', 'loss')],
)
def test_other_names_cause_no_warning(warnings_of, group, name):
  hooks = _Log(group=group, name=name), _Log(group=group, name=name)
  assert not warnings_of(*hooks, evaluation=_Evaluation())


@pytest.mark.parametrize('group', ['environment', 'restart'])
def test_groups_that_a_resumed_run_reads_are_rejected(warnings_of, group):
  with raises_error(
    errors.ConfigError,
    got=group,
    status=errors.ExitStatus.MISTAKE,
    mentions=('duplicate_metrics_test.py', 'run.write_metrics'),
  ):
    warnings_of(_Log(group=group))


def test_a_hook_that_writes_to_the_group_train_keeps_the_last_loss(
  monkeypatch, tmp_path
):
  saved = fake_run.Checkpoints()
  for last_step in 8, 9:
    run = fake_run.make_run(
      monkeypatch,
      tmp_path,
      [3.0] * 24,
      hooks=[_Log(name='norm')],
      saved=saved,
      last_step=last_step,
      log_metrics_every=4,
    )
    assert train_loop.run_steps(run)['loss'] == 3.0
