"""`xlflax finetune`, `xlflax label` and suites: flags and exit status."""

import pytest

from xlflax import cli

pytest_plugins = ['tests.finetuning.fixtures']


@pytest.fixture
def arguments(tmp_path, training_gin, fake_training):
  del fake_training
  return [
    'finetune',
    f'--gin_file={training_gin}',
    f'--output={tmp_path / "out"}',
    '--compilation_cache=',
  ]


def test_a_grid(arguments, capsys):
  assert (
    cli.main(
      [
        *arguments,
        '--grid=LEARNING_RATE=0.2,0.4',
        '--grid=SEED=0,1',
        '--select=dev/accuracy/en',
      ]
    )
    == 0
  )
  printed = capsys.readouterr().out
  assert 'selected' in printed and '0.4050 ± 0.0071' in printed


def test_a_value_that_only_the_grid_gives(arguments, capsys, tmp_path):
  required = tmp_path / 'required.gin'
  required.write_text('LEARNING_RATE = %gin.REQUIRED\n')
  assert (
    cli.main(
      [
        *arguments,
        f'--gin_file={required}',
        '--grid=LEARNING_RATE=0.2,0.4',
        '--select=dev/accuracy/en',
      ]
    )
    == 0
  )
  assert 'LEARNING_RATE=0.4' in capsys.readouterr().out


def test_a_failed_trial_is_in_the_exit_status(arguments, capsys):
  assert (
    cli.main(
      [*arguments, '--grid=LEARNING_RATE=0.2,9.0', '--select=dev/accuracy/en']
    )
    == 2
  )
  assert 'diverged: LEARNING_RATE=9.0' in capsys.readouterr().err


def test_trials_are_listed_without_a_run(arguments, capsys, tmp_path):
  assert cli.main([*arguments, '--grid=SEED=0,1', '--dry_run']) == 0
  assert capsys.readouterr().out == 'SEED=0\nSEED=1\n'
  assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize('dry_run', [[], ['--dry_run']])
@pytest.mark.parametrize('metric', ['dve/accuracy/en', 'dev/accuracy'])
def test_a_metric_that_there_is_not(arguments, capsys, metric, dry_run):
  assert cli.main([*arguments, f'--select={metric}', *dry_run]) == 2
  assert capsys.readouterr().err.strip() == (
    f'xlflax finetune: Training evaluates no such metric. Got: {metric}. Expected: such '
    'as dev/accuracy/mean. Where: --select. What to do: did you mean '
    'dev/accuracy/mean?'
  )


def test_a_grid_needs_a_metric_before_it_is_run(arguments, capsys):
  assert cli.main([*arguments, '--grid=LEARNING_RATE=1,2', '--dry_run']) == 2
  assert 'Nothing says which setting' in capsys.readouterr().err


@pytest.mark.parametrize(
  'more, message',
  [
    (['--grid=SEED'], 'An axis of a grid is wrong'),
    (['--test_gin=A=1'], '--test_gin has an effect only with --test_gin_file'),
    (['--directions=en,fr'], 'Directions of transfer are measured on test'),
    (['--gin.LEARNING_RAT=1'], 'nothing uses it'),
  ],
)
def test_mistakes(arguments, more, message, capsys):
  assert cli.main([*arguments, *more]) == 2
  assert message in capsys.readouterr().err


def test_an_input_without_a_language(capsys, tmp_path):
  assert (
    cli.main(
      ['label', '--model_dir=run', '--input=text.txt', f'--output={tmp_path}']
    )
    == 2
  )
  assert 'An input is named wrongly' in capsys.readouterr().err
