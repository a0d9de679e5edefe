"""Tests of `xlflax finetune`: output, exit codes and rejected options."""

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax import cli
from xlflax.utils import errors

pytest_plugins = ['tests.finetuning.fixtures']

_METRIC = '--metric_for_best_model=dev/accuracy/en'


@pytest.fixture
def arguments(tmp_path, training_gin, fake_training):
  del fake_training
  return [
    f'--gin_file={training_gin}',
    f'--output={tmp_path / "out"}',
    '--compilation_cache=',
  ]


def _run(arguments):
  return cli.main(['finetune', *arguments])


def test_grid_prints_the_selected_trial(arguments, capsys):
  grid = ['--grid=LEARNING_RATE=0.2,0.4', '--grid=SEED=0,1']
  assert _run([*arguments, *grid, _METRIC]) == 0
  assert_mentions(capsys.readouterr().out, 'selected', '0.4050 ± 0.0071')


def test_grid_sets_a_required_macro(arguments, capsys, tmp_path):
  required = tmp_path / 'required.gin'
  required.write_text('LEARNING_RATE = %gin.REQUIRED\n')
  grid = [f'--gin_file={required}', '--grid=LEARNING_RATE=0.2,0.4']
  assert _run([*arguments, *grid, _METRIC]) == 0
  assert_mentions(capsys.readouterr().out, 'LEARNING_RATE=0.4')


def test_failed_trial_sets_the_exit_code(arguments, capsys):
  assert _run([*arguments, '--grid=LEARNING_RATE=0.2,9.0', _METRIC]) == 2
  assert_mentions(capsys.readouterr().err, 'LEARNING_RATE=9.0')


def test_dry_run_lists_the_trials(arguments, capsys, tmp_path):
  assert _run([*arguments, '--grid=SEED=0,1', '--dry_run']) == 0
  assert capsys.readouterr().out == 'SEED=0\nSEED=1\n'
  assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize('dry_run', [[], ['--dry_run']])
def test_run_without_a_checkpoint_is_rejected(arguments, tmp_path, dry_run):
  (tmp_path / 'mlm').mkdir()
  start = f'--init_from={tmp_path / "mlm"}'
  run = cli.parse('finetune', [*arguments, start, *dry_run])
  with raises_error(errors.CheckpointError, where=tmp_path / 'mlm') as caught:
    run()
  assert_mentions(caught.value.fix, 'xlflax train')


@pytest.mark.parametrize('dry_run', [[], ['--dry_run']])
@pytest.mark.parametrize('metric', ['dve/accuracy/en', 'dev/accuracy'])
def test_unknown_metric_is_rejected(arguments, metric, dry_run):
  metric_option = f'--metric_for_best_model={metric}'
  run = cli.parse('finetune', [*arguments, metric_option, *dry_run])
  with raises_error(
    errors.ConfigError, got=metric, mentions='--metric_for_best_model'
  ) as caught:
    run()
  assert_mentions(caught.value.fix, 'dev/accuracy/mean')
  assert_mentions(caught.value.expected, 'dev/METRIC/mean')


def test_grid_of_settings_requires_a_metric(arguments):
  grid = ['--grid=LEARNING_RATE=1,2', '--dry_run']
  run = cli.parse('finetune', [*arguments, *grid])
  with raises_error(errors.ConfigError, mentions='--metric_for_best_model'):
    run()


@pytest.mark.parametrize(
  ('options', 'mentions'),
  [
    (['--grid=SEED'], ('--grid', 'SEED')),
    (['--gin.LEARNING_RAT=1'], 'LEARNING_RAT'),
    (['--eval_gin=A=1'], ('--eval_gin', '--eval_gin_file')),
    (['--test_top_k=2'], ('--test_top_k', '--eval_gin_file')),
    (['--test_top_k=3'], ('--test_top_k', '3')),
    (['--eval_batch_size=8'], ('--eval_batch_size', '--eval_gin_file')),
    (['--train_languages=en,fr'], ('--train_languages', '--eval_gin_file')),
  ],
)
def test_invalid_options_are_rejected(arguments, options, mentions):
  with raises_error(errors.ConfigError, mentions=mentions):
    cli.parse('finetune', [*arguments, *options])()


@pytest.mark.parametrize(
  'binding, options, mentions',
  [
    ('LEARNING_RATE=0.3', ['--grid=LEARNING_RATE=0.2,0.4'], '--grid'),
    ("MODEL_DIR='elsewhere'", [], '--output'),
  ],
)
def test_overridden_binding_causes_a_warning(
  arguments, caplog, binding, options, mentions
):
  flags = [f'--gin.{binding}', *options, _METRIC, '--dry_run']
  cli.parse('finetune', [*arguments, *flags])()
  (warning,) = _warnings(caplog)
  assert_mentions(warning, f'--gin.{binding}', mentions)


def test_binding_of_a_macro_that_the_grid_does_not_vary_is_silent(
  arguments, caplog
):
  flags = ['--gin.LEARNING_RATE=0.3', '--grid=SEED=0,1', '--dry_run']
  cli.parse('finetune', [*arguments, *flags])()
  assert not _warnings(caplog)


def _warnings(caplog) -> list[str]:
  return [
    record.getMessage()
    for record in caplog.records
    if record.levelname == 'WARNING'
  ]
