"""Tests of paper tables."""

import csv
import io
import json
import math
import pathlib

import numpy as np
import pytest
import rich.console

from tests import gin_files
from tests.errors import raises_error
from tests.finetuning import fakes
from xlflax.config import flag_validation, gin_config
from xlflax.data.supervised import labeled_examples
from xlflax.evaluation import eval_task
from xlflax.evaluation.tasks import head_task
from xlflax.suites import (
  evaluate_suite,
  paper_table,
  suite_config,
  suite_report,
  suite_runner,
  table_export,
)
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors

pytest_plugins = ['tests.finetuning.fixtures']

_COLUMNS = ('a', 'b', 'f1', 'em', 'avg')
_HEAD = 'row,section,name,run,setting,reference,'
# Published averages that differ from the mean of their columns.
_PRINTED_AVERAGES = {
  ('papers/metaxlm/table2', 'dict', 'Avg'),
  ('papers/veco/table2', 'veco_out', 'Avg'),
  ('papers/veco/table2', 'filter', 'Avg'),
}
# Runs that are imported instead of trained with a gin file of their name.
_IMPORTED = ('mbert', 'xlmr_large')


def _write(path, lines, columns=_COLUMNS) -> str:
  path.write_text('\n'.join([_HEAD + ','.join(columns), *lines]) + '\n')
  return str(path)


def _table(published, **fields):
  arguments = {
    'source': 'table 1',
    'published': published,
    'scores': {
      's': {
        'a': ('task', 'accuracy/en'),
        'b': ('task', 'accuracy/fr', '{run}_fr'),
        'f1': ('qa', 'f1/mean'),
        'em': ('qa', 'exact_match/mean'),
      }
    },
    'means': {'avg': ('a', 'b', ('f1', 'em'))},
  }
  return paper_table.PaperTable(**(arguments | fields))


@pytest.fixture
def table(tmp_path):
  lines = [
    'base,,Base,base,s,,70,60,50,40,58.3',
    'more,Section,More,more,s,base,72,66,55,,61',
    'quoted,Section,Quoted,,,,80,,,,',
  ]
  return _table(_write(tmp_path / 'table.csv', lines))


def test_means_and_differences_equal_numpy(table):
  rng = np.random.default_rng(0)
  values = rng.uniform(20, 90, size=(2, 4))
  measured = {}
  for run, (a, b, f1, em) in zip(('base', 'more'), values, strict=True):
    measured[run, 'task', 'accuracy/en'] = a
    measured[run + '_fr', 'task', 'accuracy/fr'] = b
    measured[run, 'qa', 'f1/mean'] = f1
    measured[run, 'qa', 'exact_match/mean'] = em
  comparison = table.compare(measured)
  means = (values[:, 0] + values[:, 1] + values[:, 2:].mean(axis=1)) / 3
  expected = np.column_stack([values, means])
  published = np.array(
    [[70, 60, 50, 40, 58.3], [72, 66, 55, np.nan, 61]], dtype=float
  )

  def array(scores):
    return np.array(
      [
        [scores.get((row, column), np.nan) for column in _COLUMNS]
        for row in ('base', 'more')
      ]
    )

  np.testing.assert_allclose(array(comparison.measured), expected)
  np.testing.assert_allclose(
    array(comparison.differences), expected - published
  )
  np.testing.assert_allclose(
    array(comparison.measured_changes)[1], expected[1] - expected[0]
  )
  np.testing.assert_allclose(
    array(comparison.published_changes)[1], published[1] - published[0]
  )
  assert np.isnan(array(comparison.measured_changes)[0]).all()
  assert not any(row == 'quoted' for row, _ in comparison.measured)


def test_mean_requires_all_columns(table):
  comparison = table.compare({('base', 'task', 'accuracy/en'): 50.0})
  assert comparison.measured == {('base', 'a'): 50.0}


def test_tasks_are_selected_by_run(table):
  assert table.tasks_by_run == {
    'base': {'task', 'qa'},
    'base_fr': {'task'},
    'more': {'task', 'qa'},
    'more_fr': {'task'},
  }


@pytest.mark.parametrize(
  ('fields', 'got'),
  [
    ({'scores': {'s': {'c': ('task', 'accuracy/en')}}}, 'c'),
    ({'scores': {'s': {'a': ('other', 'accuracy/en')}}}, 'other'),
    ({'scores': {'t': {'a': ('task', 'accuracy/en')}}}, 's'),
    ({'scores': {'s': {'a': ('task',)}}}, ('task',)),
    ({'means': {'avg': ('a', 'd')}}, 'd'),
    ({'summary': ('e',)}, 'e'),
  ],
)
def test_unknown_names_are_rejected(tmp_path, fields, got):
  published = _write(
    tmp_path / 'table.csv', ['base,,Base,base,s,,70,60,50,40,58.3']
  )
  with raises_error(errors.ConfigError, got=got):
    _table(published, **fields).check(['task', 'qa'])


@pytest.mark.parametrize(
  ('lines', 'got'),
  [
    (['x,,X,x,s,,1,2,3,4,5', 'x,,X,x,s,,1,2,3,4,5'], 'x'),
    (['x,,X,x,s,y,1,2,3,4,5'], 'y'),
    (['x,,X,x,s,,one,2,3,4,5'], 'one'),
  ],
)
def test_invalid_rows_are_rejected(tmp_path, lines, got):
  table = _table(_write(tmp_path / 'table.csv', lines))
  with raises_error(errors.ConfigError, got=got):
    table.check(['task', 'qa'])


def test_missing_and_malformed_files_are_rejected(tmp_path):
  with raises_error(errors.ConfigError, got='none.csv'):
    _table('none.csv').check(['task', 'qa'])
  (tmp_path / 'table.csv').write_text('name,a\nx,1\n')
  with raises_error(errors.ConfigError, got='name,a'):
    _table(str(tmp_path / 'table.csv')).check(['task', 'qa'])


def test_runs_without_a_selected_task_are_reported(table, tmp_path, caplog):
  for name in ('base', 'more_fr'):
    (tmp_path / 'runs' / name).mkdir(parents=True)
    (tmp_path / 'runs' / name / run_directory.MODEL).write_text('{}')
  tasks = [
    suite_config.SuiteTask(
      name=name, family='f', gin_file='evaluate/tagging.gin'
    )
    for name in ('task', 'qa', 'other')
  ]
  suite = suite_config.Suite(name='suite', tasks=tasks, table=table)
  directories = [str(tmp_path / 'runs')]
  assert len(suite.find_runs(directories, None)) == 2
  assert not caplog.records
  base = str(tmp_path / 'runs' / 'base')
  assert suite.find_runs(directories, ['qa']) == [base]
  (record,) = caplog.records
  assert 'more_fr' in record.getMessage() and 'task' in record.getMessage()
  with raises_error(errors.ConfigError, got='other'):
    suite.find_runs(directories, ['other'])


def test_runs_are_found_by_name(table, tmp_path):
  runs = tmp_path / 'base'  # The directory has the name of one of the runs.
  for name in ('base', 'more_fr', 'other'):
    (runs / name).mkdir(parents=True)
    (runs / name / run_directory.MODEL).write_text('{}')
  assert table.find_runs([str(runs)]) == [
    str(runs / 'base'),
    str(runs / 'more_fr'),
  ]
  assert table.find_runs([str(runs / 'base')]) == [str(runs / 'base')]
  with raises_error(errors.ConfigError, got=str(runs / 'other')):
    table.find_runs([str(runs / 'other')])
  with raises_error(errors.ConfigError, got='base'):
    table.find_runs([str(runs), str(runs / 'base')])


_TESTS = """
from __gin__ import dynamic_registration
from tests.finetuning import fakes
from xlflax import evaluate
include '{training}'
DATA = %gin.REQUIRED
evaluate.evaluate:
  tasks = [@fakes.Counted()]
  model_dir = %DATA
  steps = (%INIT_FROM, %INIT_STEP)
fakes.Counted.name = '{name}'
"""


def _make_suite(tmp_path, training_gin, published):
  for name in ('task', 'qa'):
    (tmp_path / f'{name}.gin').write_text(
      _TESTS.format(training=training_gin, name=name)
    )
  return suite_config.Suite(
    name='table',
    tasks=tuple(
      suite_config.SuiteTask(
        name=name,
        family='f',
        gin_file=str(tmp_path / f'{name}.gin'),
        trials=name,
        select='dev/accuracy/en',
        grid=('LEARNING_RATE=0.2,0.6,0.4',),
        test_top_k=2,
      )
      for name in ('task', 'qa')
    ),
    table=_table(
      published,
      scores={
        's': {
          'a': ('task', 'accuracy/en'),
          'b': ('task', 'accuracy/fr', '{run}_fr'),
        }
      },
      means={'avg': ('a', 'b')},
    ),
  )


@pytest.mark.slow
def test_suite_writes_the_table(
  make_run, fake_training, training_gin, tmp_path
):
  """The two best settings of each run are tested only on the tasks of the run."""
  del fake_training
  published = _write(
    tmp_path / 'table.csv',
    ['base,,Base,base,s,,70,60,,,65', 'more,,More,more,s,base,72,66,,,69'],
  )
  suite = _make_suite(tmp_path, training_gin, published)
  (tmp_path / 'runs').mkdir()
  for name in ('base', 'base_fr', 'more'):
    make_run(tmp_path / 'runs' / name, [10, 20])
  fakes.CALLS.clear()
  output = tmp_path / 'out'
  report = evaluate_suite.evaluate_suite(
    suite=suite,
    model_dirs=[str(tmp_path / 'runs')],
    data='data',
    output=str(output),
  )
  assert not report.failures
  assert {(result.label, result.task) for result in report.results} == {
    ('base', 'task'),
    ('base_fr', 'task'),
    ('more', 'task'),
  }
  assert fakes.CALLS.count('task') == 3 * 2  # the two best of three settings
  assert len([call for call in fakes.CALLS if 'RATE' in call]) == 3 * 3
  for result in report.results:
    assert result.setting == 'LEARNING_RATE=0.6 and LEARNING_RATE=0.4'
    trials = [
      [part for part in evaluated.folder.parts if 'LEARNING_RATE' in part]
      for evaluated in result.evaluated
    ]
    assert trials == [['LEARNING_RATE=0.6'], ['LEARNING_RATE=0.4']]
  with (output / 'table.csv').open() as file:
    lines = {
      (line['row'], line['column']): line for line in csv.DictReader(file)
    }
  scores = {}
  for label in ('base', 'base_fr', 'more'):
    path = output / 'results' / f'{label}@20' / 'task.json'
    scores[label] = json.loads(path.read_text())['values']
    assert len(scores[label]['accuracy/en']) == 2
  a = 100 * np.mean(scores['base']['accuracy/en'])
  b = 100 * np.mean(scores['base_fr']['accuracy/fr'])
  more = 100 * np.mean(scores['more']['accuracy/en'])
  for key, name, expected in (
    (('base', 'a'), 'measured', a),
    (('base', 'b'), 'measured', b),
    (('base', 'avg'), 'measured', np.mean([a, b])),
    (('base', 'avg'), 'differences', np.mean([a, b]) - 65),
    (('more', 'a'), 'measured_changes', more - a),
    (('more', 'a'), 'published_changes', 2),
  ):
    assert float(lines[key][name]) == pytest.approx(expected)
  assert lines['more', 'b']['measured'] == ''  # The run does not exist.
  assert lines['more', 'avg']['measured'] == ''
  markdown = (output / 'table.md').read_text()
  assert f'| Base (difference) | {a - 70:+.1f} | {b - 60:+.1f} |' in markdown
  assert (output / 'table.png').stat().st_size > 1000


def _result(**fields):
  arguments = {
    'task': 'qa',
    'family': 'f',
    'label': 'base',
    'step': 10,
    'values': {'f1/mean': (0.5,), 'exact_match/mean': (0.25,)},
  }
  return suite_report.TaskResult(**(arguments | fields))


def _report(*results):
  return suite_report.SuiteReport(
    suite='table', source_language='en', results=results, tasks=('task', 'qa')
  )


def test_means_with_unlabeled_languages_are_omitted(table):
  notes: list[str] = []
  blind = labeled_examples.ClassifiedText(id='0', language='ar', text='a')
  head_task.with_gold_labels([blind], ['x'], 'ar', notes)
  assert table_export.measured_points(table, _report(_result()))
  report = _report(_result(notes=('another note', *notes)))
  assert not table_export.measured_points(table, report)
  (line,) = table_export.describe_missing_scores(table, report)
  assert 'base@10' in line
  assert 'f1/mean, exact_match/mean' in line
  assert notes[0] in line


def test_earlier_failures_of_missing_scores_are_described(table):
  failures = tuple(
    eval_task.Failure(task='qa', part=part, message='not found')
    for part in ('ar', 'bn')
  )
  assert not table_export.describe_missing_scores(
    table, _report(_result(failures=failures))
  )
  report = _report(_result(failures=failures, is_earlier=True))
  (line,) = table_export.describe_missing_scores(table, report)
  assert str(failures[0]) in line
  assert '(1 more' in line
  assert not table_export.describe_missing_scores(table, _report(_result()))


def test_long_section_headings_do_not_widen_the_printed_table(tmp_path):
  heading = 'Models of the same size with more training steps'
  table = _table(
    _write(
      tmp_path / 'table.csv', [f'base,{heading},Base,base,s,,70,60,50,40,']
    )
  )
  stream = io.StringIO()
  console = rich.console.Console(file=stream, width=60)
  table_export.print_tables(table, _report(), console)
  text = stream.getvalue()
  assert '(continued)' not in text
  assert all(word in text for word in heading.split())


def _shipped():
  return sorted(
    name for name in flag_validation.shipped_suites() if '/table' in name
  )


def _build(name):
  return gin_config.load_gin_files([f'suites/{name}.gin']).build(
    suite_config.Suite
  )


def test_each_paper_has_tables():
  assert {name.split('/')[1] for name in _shipped()} == {
    'ecs',
    'metaxlm',
    'ppa',
    'veco',
  }


@pytest.mark.parametrize('name', _shipped())
def test_shipped_tables_are_consistent(name):
  """The printed averages are the means of their columns."""
  suite = _build(name)
  table = suite.table
  assert suite.name == name
  for row in table.rows:
    for column, parts in table.means.items():
      groups = [
        [row.scores.get(part) for part in ((p,) if isinstance(p, str) else p)]
        for p in parts
      ]
      if column not in row.scores or any(None in group for group in groups):
        continue
      is_equal = math.isclose(
        np.mean([np.mean(group) for group in groups]),
        row.scores[column],
        abs_tol=0.0501,
      )
      printed = (name, row.row, column) in _PRINTED_AVERAGES
      assert is_equal != printed, (row.row, column)


@pytest.mark.parametrize('name', _shipped())
def test_runs_of_shipped_tables_have_gin_files(name):
  paper = name.split('/')[1]
  files = {
    pathlib.Path(file).stem
    for file in gin_files.list_gin_files(f'papers/{paper}')
  }
  for run in _build(name).table.tasks_by_run:
    assert run in _IMPORTED or run.rsplit('_en_', 1)[0] in files or run in files


@pytest.mark.slow
@pytest.mark.parametrize('name', [*_shipped(), 'papers/metaxlm/figure5'])
def test_bindings_of_shipped_tables_have_an_effect(name):
  suite = _build(name)
  runner = suite_runner.SuiteRunner(
    suite=suite, output=pathlib.Path('out'), data='data'
  )
  for task in suite.tasks:
    gin_config.check_bindings(runner._built_configurations(task))


@pytest.mark.parametrize(
  'row', ['base,,Base,base,s,,70,60', 'base,,Base,base,s,,70,60,50,40,58.3,1']
)
def test_rows_have_as_many_columns_as_the_header(tmp_path, row):
  good = 'base,,Base,base,s,,70,60,50,40,58.3'
  published = _write(tmp_path / 'table.csv', [good, row])
  with raises_error(errors.ConfigError, where=f'{published}:3'):
    _table(published).check(['task', 'qa'])


def test_published_scores_must_be_utf8(tmp_path):
  published = _write(
    tmp_path / 'table.csv', ['base,,Base,base,s,,70,60,50,40,58.3']
  )
  path = tmp_path / 'table.csv'
  path.write_bytes(b'\xef\xbb\xbf' + path.read_bytes())
  _table(published).check(['task', 'qa'])
  path.write_bytes(path.read_bytes().replace(b'Base', b'Bas\xe9'))
  with raises_error(errors.ConfigError, where=published):
    _table(published).check(['task', 'qa'])
