"""Tests of evaluating suites with fake training."""

import csv
import json
import pathlib
import shutil
import types

import jax
import pytest

from tests import read_only
from tests.errors import raises_error
from tests.finetuning import fakes
from xlflax import cli
from xlflax.evaluation import eval_task
from xlflax.evaluation.reports import report_files
from xlflax.suites import (
  evaluate_suite,
  suite_config,
  suite_export,
  suite_report,
  suite_result_store,
)
from xlflax.training.checkpointing import saved_run
from xlflax.utils import errors

pytest_plugins = ['tests.finetuning.fixtures']

_TESTS = """
from xlflax import evaluate
DATA = %gin.REQUIRED
evaluate.evaluate.tasks = [@fakes.Counted()]
evaluate.evaluate.model_dir = %DATA
fakes.Counted.name = '{name}'
"""


@pytest.fixture
def make_suite(tmp_path, training_gin, fake_training):
  """Returns a function that creates a suite with tuned, plain and broken tasks."""
  del fake_training
  initialization = """
from xlflax import evaluate
evaluate.evaluate.steps = (%INIT_FROM, %INIT_STEP)  # reads the macros
"""
  head = (
    'from __gin__ import dynamic_registration\n'
    'from tests.finetuning import fakes\n'
  )
  for name, text in {
    'tuned': f"include '{training_gin}'\n{initialization}",
    'also': f"include '{training_gin}'\n{initialization}",
    'plain': '',
    'broken': 'fakes.Counted.scores = @nothing()\n',
  }.items():
    (tmp_path / f'{name}.gin').write_text(
      head + text + _TESTS.format(name=name)
    )

  def make(*names):
    tasks = {
      'tuned': dict(
        trials='tuned',
        select='dev/accuracy/en',
        grid=('LEARNING_RATE=0.2,0.4', 'SEED=0,1'),
      ),
      'also': dict(trials='tuned'),
      'plain': {},
      'broken': {},
    }
    return suite_config.Suite(
      name='made',
      tasks=tuple(
        suite_config.SuiteTask(
          name=name,
          family='f',
          gin_file=str(tmp_path / f'{name}.gin'),
          **fields,
        )
        for name, fields in tasks.items()
        if not names or name in names
      ),
    )

  return make


@pytest.fixture
def runs(make_run, tmp_path):
  return [str(make_run(tmp_path / name, [10, 20])) for name in ('mlm', 'tlm')]


def _run(suite, runs, tmp_path, **fields):
  fakes.CALLS.clear()
  return evaluate_suite.evaluate_suite(
    suite=suite,
    model_dirs=runs,
    data='data',
    output=str(tmp_path / 'out'),
    **fields,
  )


@pytest.mark.slow
def test_results_of_all_tasks_are_reported(make_suite, runs, tmp_path):
  report = _run(make_suite(), runs[:1], tmp_path)
  results = report.results_by_task('mlm@20')
  assert results['tuned'].setting == 'LEARNING_RATE=0.4'
  assert results['tuned'].values['accuracy/fr'] == (0.5, 0.5)  # two seeds
  assert results['also'].values == results['tuned'].values
  assert results['plain'].values == {
    'accuracy/en': (0.8,),
    'accuracy/fr': (0.5,),
  }
  # Only the broken task has no result.
  assert {f.task for f in report.failures} == {'mlm@20: broken'}
  trials = [name for name in fakes.CALLS if 'SEED' in name]
  assert len(trials) == len(set(trials)) == 4  # Both tasks use the same grid.
  assert (tmp_path / 'out' / 'mlm@20' / 'tuned' / 'trials').is_dir()


@pytest.mark.slow
def test_bindings_replace_axes_of_the_grid(make_suite, runs, tmp_path, caplog):
  """Values of the command line are not overridden by those of the grid."""
  with caplog.at_level('INFO'):
    report = _run(
      make_suite('tuned', 'also'),
      runs[:1],
      tmp_path,
      bindings=['LEARNING_RATE=0.3'],
    )
  assert not report.failures
  trials = [name for name in fakes.CALLS if 'SEED' in name]
  assert sorted(trials) == ['SEED=0', 'SEED=1']
  (message,) = [text for text in caplog.messages if 'Bindings replace' in text]
  assert 'LEARNING_RATE=0.2,0.4' in message
  report = _run(
    make_suite('tuned'),
    runs[1:],
    tmp_path,
    bindings=['LEARNING_RATE=0.3', 'SEED=1'],
  )
  assert report.results_by_task('tlm@20')['tuned'].setting == 'single'


@pytest.mark.slow
def test_best_checkpoint_of_each_run_is_evaluated(make_suite, runs, tmp_path):
  """The best steps of the two runs differ. A lower perplexity is better."""
  for run, values in zip(runs, ((3.0, 5.0), (5.0, 3.0)), strict=True):
    (pathlib.Path(run) / 'metrics.jsonl').write_text(
      ''.join(
        json.dumps({'step': step, 'eval': {'perplexity/perplexity/en': value}})
        + '\n'
        for step, value in zip((10, 20), values, strict=True)
      )
    )
  report = _run(
    make_suite('plain'),
    runs,
    tmp_path,
    steps='best',
    metric_for_best_model='perplexity/perplexity/en',
  )
  assert {result.model for result in report.results} == {'mlm@10', 'tlm@20'}
  with raises_error(errors.ConfigError, got='bleu'):
    _run(
      make_suite('plain'),
      runs,
      tmp_path,
      steps='best',
      metric_for_best_model='bleu',
    )


@pytest.mark.slow
def test_results_are_written_outside_of_the_run(make_suite, runs, tmp_path):
  with read_only.only_read(pathlib.Path(runs[0])):
    _run(make_suite('tuned', 'plain'), runs[:1], tmp_path)
  out = tmp_path / 'out'
  assert (out / 'mlm@20' / 'eval' / 'plain').is_dir()
  board = tmp_path / 'board'
  with read_only.only_read(out):
    assert cli.main(['report', str(out), f'--output={board}']) == 0
  assert (board / 'leaderboard.html').exists()
  record = json.loads((out / 'suite.json').read_text())
  (model,) = record['models']
  assert model['tasks']['tuned']['score'] == pytest.approx(65)
  assert model['tasks']['tuned']['gap'] == pytest.approx(30)
  assert model['average'] == pytest.approx(65)
  rows = list(csv.DictReader((out / 'suite.csv').open()))
  assert {(r['task'], r['part'], r['mean'], r['seeds']) for r in rows} == {
    ('tuned', 'en', '0.8', '2'),
    ('tuned', 'fr', '0.5', '2'),
    ('plain', 'en', '0.8', '1'),
    ('plain', 'fr', '0.5', '1'),
  }
  assert '| mlm@20 | 65.0 |' in (out / 'report' / 'leaderboard.md').read_text()
  assert (out / 'report' / 'leaderboard.html').exists()


@pytest.mark.slow
def test_finished_results_are_not_recomputed(make_suite, runs, tmp_path):
  suite = make_suite('tuned', 'plain')
  first = _run(suite, runs[:1], tmp_path)
  again = _run(suite, runs[:1], tmp_path)
  assert fakes.CALLS == []
  assert again.to_json() == first.to_json()
  _run(suite, runs, tmp_path)
  assert len(fakes.CALLS) == 4 + 2 + 1  # all evaluations of the second model


@pytest.mark.slow
def test_results_of_several_calls_are_merged(make_suite, runs, tmp_path):
  """Separate jobs for the tasks give the same report."""
  suite = make_suite('plain', 'tuned')
  full_report = _run(suite, runs[:1], tmp_path)
  for folder in ('results', 'mlm@20'):
    shutil.rmtree(tmp_path / 'out' / folder)
  _run(suite, runs[:1], tmp_path, names=['plain'])
  report = _run(suite, runs[:1], tmp_path, names=['tuned'])
  assert report.to_json() == full_report.to_json()
  record = json.loads((tmp_path / 'out' / 'suite.json').read_text())
  assert list(record['models'][0]['tasks']) == ['tuned', 'plain']
  assert [result.is_earlier for result in report.results] == [False, True]
  plain = report.results_by_task('mlm@20')['plain']
  assert plain.evaluated[0].task == fakes.Counted(name='plain')


@pytest.mark.slow
def test_report_contains_failures_of_the_current_call(
  make_suite, runs, tmp_path
):
  suite = make_suite('plain', 'broken')
  assert _run(suite, runs[:1], tmp_path, names=['broken']).failures
  report = _run(suite, runs[:1], tmp_path, names=['plain'])
  assert not report.failures
  assert report.results_by_task('mlm@20')['broken'].failures
  output = tmp_path / 'out'
  has_result = suite_result_store.has_result
  assert has_result('plain', 'mlm@20', output)
  assert not has_result('broken', 'mlm@20', output)


@pytest.mark.slow
def test_costs_are_summed_over_calls(make_suite, runs, tmp_path):
  suite = make_suite('plain')
  costs = []
  for _ in range(2):
    _run(suite, runs[:1], tmp_path)
    (table,) = report_files.read_report(tmp_path / 'out' / 'report')
    costs.append(table.cost)
  run = saved_run.load_run(runs[0])
  body = run.restore_params(20)['model']
  config = run.model.config
  padding = config.table_size - config.vocab_size
  table, bias = body['embeddings']['token'], body['output_bias']
  assert len(table) == len(bias) == config.table_size
  assert costs[0].parameters == (
    sum(x.size for x in jax.tree.leaves(body)) - padding * (table.shape[1] + 1)
  )
  assert 0 < costs[0].cpu_seconds < costs[1].cpu_seconds
  assert (costs[0].device_seconds, costs[0].device) == (0, 'cpu')


def test_models_are_compared(make_suite, runs, tmp_path):
  report = _run(make_suite('plain'), runs, tmp_path)
  assert report.models == ['mlm@20', 'tlm@20']
  text = (tmp_path / 'out' / 'report' / 'leaderboard.md').read_text()
  assert '## Comparison with mlm@20' in text
  record = json.loads((tmp_path / 'out' / 'report' / 'scores.json').read_text())
  assert {c['difference'] for c in record['comparisons']} == {0.0}


@pytest.mark.slow
def test_selected_tasks_and_steps_are_evaluated(make_suite, runs, tmp_path):
  report = _run(
    make_suite(), runs[:1], tmp_path, names=['plain'], steps=[10, 20]
  )
  assert report.models == ['mlm@10', 'mlm@20']
  assert [r.task for r in report.results] == ['plain', 'plain']
  assert (tmp_path / 'out' / 'report' / 'plain.curves.png').exists()


@pytest.mark.slow
def test_watched_run_is_evaluated_until_it_is_finished(
  make_suite, runs, tmp_path
):
  saved_run.mark_finished(tmp_path / 'mlm', 20)
  report = _run(
    make_suite('plain'), runs[:1], tmp_path, watch=True, poll_seconds=0.01
  )
  assert report.models == ['mlm@10', 'mlm@20']
  assert (tmp_path / 'out' / 'report' / 'plain.curves.png').exists()


@pytest.mark.parametrize(
  'fields, values',
  [
    (dict(names=['nothing']), ('made', 'nothing')),
    (dict(steps=[15]), (15, 'mlm')),
    (dict(watch=True), '--continuous'),
  ],
)
def test_invalid_arguments_are_rejected(
  make_suite, runs, tmp_path, fields, values
):
  with raises_error(errors.XlflaxError, mentions=values):
    _run(make_suite('plain'), runs, tmp_path, **fields)


def test_task_with_an_unknown_grid_is_rejected():
  with raises_error(errors.ConfigError, got='b', mentions=('a', 's')):
    suite_config.Suite(
      name='s',
      tasks=(
        suite_config.SuiteTask(
          name='a', family='f', gin_file='a.gin', trials='b'
        ),
      ),
    )


def test_different_run_with_the_same_name_is_rejected(
  make_suite, make_run, tmp_path
):
  """The same run is accepted in another folder."""
  suite, folders = make_suite('plain'), [tmp_path / 'a', tmp_path / 'b']
  for folder in folders:
    folder.mkdir()
    make_run(folder / 'mlm', [10])
  first = _run(suite, [str(folders[0] / 'mlm')], tmp_path)
  with raises_error(errors.RunDirectoryError, mentions=('mlm@10', '--output')):
    _run(suite, [str(folders[1] / 'mlm')], tmp_path)
  shutil.rmtree(folders[1] / 'mlm')
  (folders[0] / 'mlm').rename(folders[1] / 'mlm')
  again = _run(suite, [str(folders[1] / 'mlm')], tmp_path)
  assert again.to_json() == first.to_json() and fakes.CALLS == []


def test_statistics_files_are_not_exported_as_predictions(tmp_path):
  path = tmp_path / eval_task.statistics_file('de')
  path.write_text('{}')
  for version, task in (('xtreme-r', 'mewslix'), ('xtreme', 'udpos')):
    assert suite_export._submission_files(version, task, path) == []
  (tmp_path / 'de.tsv').write_text('')
  result = suite_report.TaskResult(
    task=task,
    family='',
    label='m',
    step=1,
    evaluated=(suite_report.Evaluated(tmp_path, None),),
  )
  assert result._predictions('de') == str(tmp_path / 'de.tsv')


def test_predictions_of_all_test_tasks_are_found(tmp_path):
  """The predictions of the first seed are exported."""
  folders = [tmp_path / name for name in ('a0', 'b0', 'a1', 'b1')]
  for folder in folders:
    folder.mkdir()
    (folder / f'{folder.name[0]}.tsv').write_text('')
  result = suite_report.TaskResult(
    task='t',
    family='',
    label='m',
    step=1,
    evaluated=tuple(
      suite_report.Evaluated(folder, None, int(folder.name[1]))
      for folder in folders
    ),
  )
  assert result.first_seed_folders() == folders[:2]
  assert result._predictions('b') == str(folders[1] / 'b.tsv')


def test_results_of_test_tasks_are_merged():
  """Duplicate metrics are rejected, and failed parts do not remove others."""
  empty_result = suite_report.TaskResult(
    task='t', family='f', label='m', step=20
  )

  def report(**results):
    return types.SimpleNamespace(
      results=results, tasks=(), folders={}, failures=('lost',)
    )

  good, other = (eval_task.EvalResult(metrics={'f1/en': x}) for x in (0.8, 0.4))
  merged_result = empty_result.with_report(report(a={20: good}, b={}), 20)
  merged_result = merged_result.with_report(report(a={20: other}), 20)
  assert merged_result.values == {'f1/en': (0.8, 0.4)}
  assert merged_result.failures == ('lost', 'lost')
  with raises_error(errors.ConfigError, got='f1/en', where='t'):
    empty_result.with_report(report(a={20: good}, b={20: other}), 20)
