"""Tests of the published recipes of suites."""

import pathlib

import pytest

from tests.errors import assert_mentions, raises_error
from tests.suites import recipe_table
from xlflax import cli
from xlflax.suites import suite_report as suite_results
from xlflax.suites import suite_result_store
from xlflax.utils import errors


def test_page_matches_the_gin_files(request):
  text = recipe_table.build_page()
  if request.config.getoption('--regenerate_goldens'):
    recipe_table.PAGE.write_text(text)
  assert recipe_table.PAGE.read_text() == text, 'make goldens regenerates it'


@pytest.mark.parametrize(
  ('task', 'expected'),
  [
    ('xnli', dict(peak=2e-5, warmup=0, decay=0.0)),
    ('xquad', dict(peak=3e-5, warmup=500, decay=1e-4)),
    ('tydiqa', dict(peak=3e-5, warmup=500, decay=1e-4)),
    ('panx', dict(peak=2e-5, warmup=0, decay=0.0)),
  ],
)
def test_training_settings_match_the_scripts_of_xtreme(task, expected):
  """The settings match train_*.sh and third_party/run_*.py of XTREME."""
  suite_task = recipe_table.build_suite('xtreme', 'xtreme').task(task)
  config = recipe_table.load_configuration(suite_task, *suite_task.recipe)
  optimizer = config.parameter('trainer.Trainer.optimizer')
  rate = optimizer.learning_rate
  assert (rate.peak_value, rate.warmup_steps) == (
    expected['peak'],
    expected['warmup'],
  )
  assert (optimizer.weight_decay, optimizer.eps) == (expected['decay'], 1e-8)
  assert optimizer.b2 == 0.999 and optimizer.clip_norm == 1.0


def test_retrieval_settings_match_the_scripts_of_xtreme():
  suite = recipe_table.build_suite('xtreme', 'xtreme')
  for name, pooling in (('tatoeba', 'mean_all'), ('bucc2018', 'first')):
    task = suite.task(name)
    config = recipe_table.load_configuration(task, *task.recipe)
    cls = next(iter(task.recipe)).rpartition('.')[0]
    fields = ('pooling', 'layer', 'max_length', 'centering')
    values = [
      recipe_table.read_setting(config, f'{cls}.{field}') for field in fields
    ]
    assert values == [pooling, 8, 512, 'none']


def test_xtreme_r_recipe_extends_the_xtreme_recipe():
  ours, base = (
    recipe_table.build_suite('xtreme_r', name)
    for name in ('xtreme-r', 'xtreme')
  )
  assert ours.recipe == 'xtreme-r'
  for task in ours.tasks:
    assert task.recipe, f'{task.name} has settings of the recipe'
    if task.name not in ('tatoeba', 'mewslix', 'lareqa'):
      assert task == base.task(task.name)
  for name, length in (('mewslix', 64), ('lareqa', 256)):
    task = ours.task(name)
    config = recipe_table.load_configuration(task, *task.recipe)
    values = [
      recipe_table.read_setting(config, f'mteb_tasks.Ranking.{field}')
      for field in ('pooling', 'max_length', 'centering')
    ]
    assert values == ['first', length, 'none'] and task.deviations
  assert any(
    'SQuAD' in deviation for deviation in ours.task('tatoeba').deviations
  )


def test_xtreme_r_recipe_is_found_by_name(capsys):
  arguments = ['--suite=xtreme_r', '--recipe=xtreme-r', '--data=d']
  assert cli.main(['evaluate', '--model_dir=m', *arguments]) == 2


def test_unknown_recipe_is_reported(capsys):
  arguments = ['--suite=xtreme', '--recipe=xtrem', '--data=d', '--output=o']
  assert cli.main(['evaluate', '--model_dir=m', *arguments]) == 2
  assert_mentions(capsys.readouterr().err, 'xtrem')


def test_recipe_of_another_suite_is_rejected(tmp_path, capsys):
  arguments = ['--suite=glue', '--recipe=xtreme', '--data=d']
  arguments += [f'--output={tmp_path}', '--model_dir=m']
  assert cli.main(['evaluate', *arguments]) == 2


def test_result_contains_the_recipe(tmp_path: pathlib.Path):
  suite = recipe_table.build_suite('xtreme_r', 'xtreme')
  notes = suite.recipe_notes(suite.task('xcopa'))
  assert 'recipe xtreme: LEARNING_RATE = 2e-5; BATCH_SIZE = 64' in notes[0]
  assert any('Social IQa' in note for note in notes[1:])
  result = suite_results.TaskResult(
    task='a', family='f', label='m', step=1, run='r', recipe='xtreme'
  )
  suite_result_store.write(result, tmp_path)
  suite_result_store.check_run('m@1', 'r', 'xtreme', tmp_path)
  with raises_error(
    errors.RunDirectoryError, where='a.json', mentions=('xlflax', 'xtreme')
  ):
    suite_result_store.check_run('m@1', 'r', 'xlflax', tmp_path)
