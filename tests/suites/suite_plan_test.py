"""Tests of the dry run of a suite, which reads all files and writes none."""

import dataclasses
import io

import pytest
import rich.console

from tests.errors import raises_error
from tests.finetuning import fakes
from xlflax import cli
from xlflax.suites import (
  evaluate_suite,
  paper_table,
  suite_config,
  suite_plan,
  table_export,
)
from xlflax.utils import errors

pytest_plugins = ['tests.finetuning.fixtures']

_LABELED = 'a dog\tthe cat\tneutral\nthe cat\ta dog\tentailment\n'
_BLIND = 'a dog\tthe cat\n'


@pytest.fixture
def data(tmp_path):
  """XTREME folder with three test languages of XNLI, one without labels."""
  folder = tmp_path / 'data' / 'xnli'
  folder.mkdir(parents=True)
  for name, text in {
    'train-en': _LABELED,
    'dev-en': _LABELED,
    'test-en': _LABELED,
    'test-de': _LABELED,
    'test-fr': _BLIND,
  }.items():
    (folder / f'{name}.tsv').write_text(text)
  return folder.parent


@pytest.fixture
def run(data, make_run, tmp_path, capsys):
  """Returns a function that runs `xlflax evaluate --suite=xtreme --dry_run`."""
  model = make_run(tmp_path / 'mlm', [10])

  def run(*options):
    status = cli.parse(
      'evaluate',
      [
        '--suite=xtreme',
        f'--data={data}',
        f'--output={tmp_path / "out"}',
        f'--model_dir={model}',
        '--compilation_cache=',
        '--gin.LENGTH=16',
        '--dry_run',
        *options,
      ],
    )()
    assert not (tmp_path / 'out').exists()
    return status, capsys.readouterr()

  return run


def test_plan_of_a_shipped_suite_lists_missing_labels_and_languages(run):
  status, printed = run('--tasks=xnli')
  assert status == 0 and 'failed:' not in printed.err
  for text in ('mlm@10', '3 of 15', '2 of 3', 'ar, bg, el', 'xnli (fr)'):
    assert text in printed.out


def test_missing_files_change_the_exit_status(run, data):
  (data / 'xnli' / 'dev-en.tsv').unlink()
  status, printed = run('--tasks=xnli,pawsx')
  assert status == errors.ExitStatus.MISTAKE
  assert 'xnli/dev-' in printed.err and 'pawsx/test-' in printed.err


def test_development_files_without_gold_labels_are_reported(run, data):
  (data / 'xnli' / 'dev-en.tsv').write_text(_BLIND)
  status, printed = run('--tasks=xnli')
  assert status == errors.ExitStatus.MISTAKE
  assert printed.err.count('failed:') == 1 and 'xnli' in printed.err


@pytest.mark.parametrize(
  'options', [['--tasks=perplexity'], ['--suite=xtreme', '--continuous']]
)
def test_options_incompatible_with_a_dry_run_are_rejected(options, tmp_path):
  with raises_error(errors.ConfigError, mentions=('--dry_run',)):
    cli.parse('evaluate', [f'--model_dir={tmp_path}', '--dry_run', *options])


_GIN = """
from __gin__ import dynamic_registration
from tests.finetuning import fakes
from xlflax import evaluate
include '{training}'
DATA = %gin.REQUIRED
INIT_STEP = None
evaluate.evaluate.steps = (%INIT_FROM, %INIT_STEP)
evaluate.evaluate.tasks = [@fakes.Counted()]
evaluate.evaluate.model_dir = %DATA
fakes.Counted.name = '{name}'
"""


@pytest.fixture
def suite(tmp_path, training_gin, fake_training):
  """A suite of a fine-tuned task and a task that evaluates its models."""
  del fake_training
  for name in ('tuned', 'also'):
    (tmp_path / f'{name}.gin').write_text(
      _GIN.format(training=training_gin, name=name)
    )
  return suite_config.Suite(
    name='made',
    tasks=tuple(
      suite_config.SuiteTask(
        name=name,
        family='f',
        gin_file=str(tmp_path / f'{name}.gin'),
        trials='tuned',
        select='dev/accuracy/en',
        grid=grid,
      )
      for name, grid in (
        ('tuned', ('LEARNING_RATE=0.2,0.4', 'SEED=0,1')),
        ('also', ()),
      )
    ),
  )


def _arguments(suite, runs, tmp_path):
  return {
    'suite': suite,
    'model_dirs': runs,
    'data': 'data',
    'output': str(tmp_path / 'out'),
  }


@pytest.mark.slow
def test_plan_counts_runs_and_finished_results(suite, make_run, tmp_path):
  runs = [str(make_run(tmp_path / name, [10])) for name in ('mlm', 'tlm')]
  fakes.CALLS.clear()
  plan = evaluate_suite.plan_suite(**_arguments(suite, runs, tmp_path))
  assert fakes.CALLS == [] and not (tmp_path / 'out').exists()
  assert plan.models == ('mlm@10', 'tlm@10')
  assert plan.grids == {
    'tuned': suite_plan.GridPlan(
      trials=tuple(
        f'LEARNING_RATE={rate},SEED={seed}'
        for rate in (0.2, 0.4)
        for seed in (0, 1)
      ),
      num_runs=8,
      num_finished=0,
    )
  }
  evaluate_suite.evaluate_suite(
    **_arguments(suite, runs[:1], tmp_path), names=['tuned']
  )
  plan = evaluate_suite.plan_suite(**_arguments(suite, runs, tmp_path))
  assert plan.grids['tuned'].num_finished == 4
  assert [task.num_stored for task in plan.tasks] == [1, 0]
  stream = io.StringIO()
  suite_plan.print_plan(plan, rich.console.Console(file=stream, width=120))
  assert '8 (4 finished)' in stream.getvalue()


def test_bindings_replace_axes_of_the_grid(suite, make_run, tmp_path):
  runs = [str(make_run(tmp_path / 'mlm', [10]))]
  plan = evaluate_suite.plan_suite(
    **_arguments(suite, runs, tmp_path), bindings=['LEARNING_RATE=0.3']
  )
  assert plan.grids['tuned'].trials == ('SEED=0', 'SEED=1')


def test_plan_of_a_shard_contains_its_tasks(suite, make_run, tmp_path):
  runs = [str(make_run(tmp_path / name, [10])) for name in ('mlm', 'tlm')]
  plan = evaluate_suite.plan_suite(
    **_arguments(suite, runs, tmp_path), only={('tlm@10', 'tuned')}
  )
  (task,) = plan.tasks
  assert (task.task, task.models) == ('tuned', ('tlm@10',))
  assert plan.grids['tuned'].num_runs == 4


def test_plan_contains_paper_tables(suite, make_run, tmp_path):
  published = tmp_path / 'table.csv'
  published.write_text(
    'row,section,name,run,setting,reference,x\n'
    'r,,R,mlm,s,,70\nq,,Q,tlm,s,r,71\n'
  )
  table = paper_table.PaperTable(
    source='table 1',
    published=str(published),
    scores={'s': {'x': ('tuned', 'accuracy/en')}},
  )
  suite = dataclasses.replace(suite, table=table)
  (tmp_path / 'runs').mkdir()
  make_run(tmp_path / 'runs' / 'mlm', [10])
  plan = evaluate_suite.plan_suite(
    **_arguments(suite, [str(tmp_path / 'runs')], tmp_path)
  )
  assert [task.task for task in plan.tasks] == ['tuned']
  assert plan.tables == table_export.table_titles(table)
  assert len(plan.tables) == 2


@pytest.mark.slow
def test_results_of_another_run_are_rejected(suite, make_run, tmp_path):
  folders = [tmp_path / 'a', tmp_path / 'b']
  runs = []
  for folder in folders:
    folder.mkdir()
    runs.append(str(make_run(folder / 'mlm', [10])))
  evaluate_suite.evaluate_suite(**_arguments(suite, runs[:1], tmp_path))
  with raises_error(errors.RunDirectoryError, mentions=('mlm@10',)):
    evaluate_suite.plan_suite(**_arguments(suite, runs[1:], tmp_path))


def test_grid_of_a_task_without_fine_tuning_is_rejected():
  task = dict(name='tatoeba', family='retrieval', gin_file='tatoeba.gin')
  with raises_error(errors.ConfigError, got='SEED=0,1') as raised:
    suite_config.SuiteTask(**task, grid=('SEED=0,1',))
  assert raised.value.where.endswith('SuiteTask.grid')
