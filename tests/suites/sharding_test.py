"""Tests of assigning tasks to shards and of merging their reports."""

import shutil

import pytest

from tests.finetuning import fakes
from xlflax.storage import manifests
from xlflax.suites import evaluate_suite, suite_config, suite_runner

pytest_plugins = ['tests.finetuning.fixtures']


def _task(name, trials=None):
  return suite_config.SuiteTask(
    name=name, family='f', gin_file=f'{name}.gin', trials=trials
  )


def test_tasks_are_assigned_round_robin_without_splitting_grids():
  tasks = [
    _task('xnli', 'xnli'),
    _task('xquad', 'xquad'),
    _task('mlqa', 'xquad'),
    _task('tatoeba'),
    _task('bucc'),
  ]
  suite = suite_config.Suite(name='s', tasks=tasks)
  models = [suite_runner.Model('m', 'runs/m', 1)]
  shards = [suite_runner.shard(suite, models, None, i, 2) for i in range(2)]
  assert [{task for _, task in shard} for shard in shards] == [
    {'xnli', 'tatoeba'},
    {'xquad', 'mlqa', 'bucc'},
  ]
  shards = [suite_runner.shard(suite, models, ['xnli'], i, 7) for i in range(7)]
  assert shards[0] == {('m@1', 'xnli')} and not set().union(*shards[1:])


@pytest.mark.slow
def test_shards_write_a_common_report(tmp_path, make_run):
  """The last of two machines writes the report of a single machine."""
  for name in 'ab':
    (tmp_path / f'{name}.gin').write_text(
      'from __gin__ import dynamic_registration\n'
      'from tests.finetuning import fakes\nfrom xlflax import evaluate\n'
      'DATA = %gin.REQUIRED\nevaluate.evaluate.model_dir = %DATA\n'
      f"evaluate.evaluate.tasks = [@fakes.Counted()]\nfakes.Counted.name = '{name}'"
    )
  tasks = [
    suite_config.SuiteTask(
      name=n, family='f', gin_file=str(tmp_path / f'{n}.gin')
    )
    for n in 'ab'
  ]
  run, out = make_run(tmp_path / 'mlm', [10]), tmp_path / 'out'

  def call(only=None):
    fakes.CALLS.clear()
    return evaluate_suite.evaluate_suite(
      suite=suite_config.Suite(name='s', tasks=tasks),
      model_dirs=[str(run)],
      data='data',
      output=str(out),
      only=only,
    )

  expected = call().to_json()
  shutil.rmtree(out)
  call({('mlm@10', 'b')})
  assert fakes.CALLS == ['b'] and not (out / 'suite.json').exists()
  assert call({('mlm@10', 'a')}).to_json() == expected
  assert fakes.CALLS == ['a'] and (out / 'report/leaderboard.html').exists()
  assert not manifests.find_problems(out)
  assert 'results/mlm@10/b.json' in manifests.read_manifest(out).files
