"""Tests that invalid input ends a command with one message and status 2."""

import re
import resource
import shutil
import subprocess
import sys

import pytest

from tests.end_to_end.conftest import TINY_MLM, losses, parameters
from tests.errors import assert_mentions
from tests.slow import mark_slow
from xlflax import cli
from xlflax.utils import errors


@pytest.fixture
def fails(capsys):
  """Fixture that runs a command in this process and returns its message."""

  def run(*arguments: str) -> str:
    assert cli.main(arguments) == 2
    message = capsys.readouterr().err
    assert 'Traceback' not in message
    return message

  return run


def _train(workspace, model_dir, *more, corpus=None, steps=4):
  return [
    'train',
    *TINY_MLM,
    f'--corpus={corpus or workspace.root / "corpus"}',
    f'--vocabulary={workspace.root / "vocabulary"}',
    f'--compilation_cache={workspace.root / "compiled"}',
    f'--model_dir={model_dir}',
    f'--gin.TRAIN_STEPS={steps}',
    *more,
  ]


@pytest.fixture
def corpus(workspace, tmp_path):
  """Copy of the corpus that a test may damage."""
  return shutil.copytree(workspace.root / 'corpus', tmp_path / 'corpus')


def test_missing_corpus_is_reported(fails, workspace, tmp_path):
  message = fails(
    *_train(workspace, tmp_path / 'run', corpus=tmp_path / 'nowhere')
  )
  assert '--corpus' in message and str(tmp_path / 'nowhere') in message


@pytest.mark.slow
def test_steps_beyond_max_epochs_are_rejected(fails, workspace, tmp_path):
  """The suggested number of steps is accepted."""
  limit = '--gin.mono/dataset_config.DatasetConfig.max_epochs=1'
  arguments = _train(
    workspace, tmp_path / 'run', workspace.cache, limit, steps=100_000
  )
  message = fails(*arguments)
  assert_mentions(message, '100,000 steps', "'mono'", 'max_epochs')
  steps = int(re.search(r'only ([\d,]+) within', message)[1].replace(',', ''))
  assert steps < 1024
  arguments[-2:] = [limit, f'--gin.TRAIN_STEPS={steps}']
  arguments = [x for x in arguments if x != '--gin.TRAIN_STEPS=100000']
  assert cli.main([*arguments, workspace.cache]) == 0
  assert max(losses(tmp_path / 'run')) == steps


@pytest.mark.parametrize('mode', mark_slow([(), ('--dry_run',)], slow=[()]))
def test_selection_by_an_unavailable_metric_is_rejected(
  fails, workspace, tmp_path, mode
):
  message = fails(
    *_train(workspace, tmp_path / 'run'),
    '--gin_file=evaluate/during_training.gin',
    '--gin.EVAL_SPLIT="test"',
    '--gin.checkpoints.CheckpointOptions.metric_for_best_model='
    '"perplexity/perplexity/sw"',
    *mode,
  )
  assert_mentions(message, 'perplexity/perplexity/sw', '{de,en,ru,mean}')
  assert mode or not losses(tmp_path / 'run')


def test_malformed_line_is_located(fails, workspace, corpus, tmp_path):
  path = corpus / 'parallel/en-de.tsv'
  lines = path.read_text().splitlines()
  lines[6] = 'one column only'
  path.write_text('\n'.join(lines) + '\n')
  message = fails(
    'cache',
    f'--corpus={corpus}',
    f'--vocabulary={workspace.root / "vocabulary"}',
    f'--output={tmp_path / "cache"}',
  )
  assert f'{path}:7' in message


def test_language_without_text_is_reported(fails, workspace, corpus, tmp_path):
  (corpus / 'mono/fr.txt').write_text('\n')
  message = fails(*_train(workspace, tmp_path / 'run', corpus=corpus))
  assert 'fr contains no text' in message and 'fr.txt' in message


def test_gin_typos_have_suggestions(fails, workspace, tmp_path):
  run = tmp_path / 'run'
  message = fails(*_train(workspace, run, '--gin.BATCH_SZIE=4'))
  assert 'Got: BATCH_SZIE' in message and 'BATCH_SIZE' in message
  message = fails(*_train(workspace, run, '--gin.Dataset.lenght=4'))
  assert 'lenght' in message
  message = fails(*_train(workspace, run, '--gin_file=pretrain/mml.gin'))
  assert 'pretrain/mlm.gin' in message
  assert not run.exists()


def test_invalid_shapes_are_rejected_before_training(
  fails, workspace, tmp_path
):
  run = tmp_path / 'run'
  message = fails(*_train(workspace, run, '--gin.LENGTH=64', '--dry_run'))
  assert 'max_position_embeddings' in message
  assert_mentions(message, 64)
  message = fails(*_train(workspace, run, '--gin.BATCH_SIZE=7', '--dry_run'))
  assert 'batch size must be' in message and 'Got: 7' in message
  message = fails(
    *_train(workspace, run, '--gin.MONO="corpus.nothing"', '--dry_run')
  )
  assert 'corpus.nothing' in message
  assert not run.exists()


@pytest.fixture(scope='module')
def finished(workspace):
  """Run of eight steps with checkpoints at steps 4 and 8."""
  directory = workspace.root / 'finished'
  workspace.train(directory, workspace.cache, _EVERY, steps=8, options=TINY_MLM)
  return directory


_EVERY = '--gin.checkpoints.CheckpointOptions.save_interval_steps=4'


@pytest.fixture
def run(finished, tmp_path):
  """Copy of the finished run, to be resumed."""
  return shutil.copytree(finished, tmp_path / 'run')


@pytest.mark.slow
def test_directory_with_another_configuration_is_rejected(
  fails, workspace, run
):
  message = fails(
    *_train(
      workspace,
      run,
      workspace.cache,
      _EVERY,
      '--gin.LEARNING_RATE=0.5',
      steps=8,
    )
  )
  assert 'a run with a different configuration' in message
  assert '+ optimizer.learning_rate.peak_value: 0.5' in message
  assert '--on_config_mismatch=continue' in message


@pytest.mark.slow
@pytest.mark.parametrize(
  'setting',
  [
    'EncoderConfig.hidden_dim=32',
    'EncoderConfig.num_layers=1',
    'trainer.Trainer.ema_decay=0.9',
  ],
)
def test_resuming_is_not_suggested_for_incompatible_checkpoints(
  fails, workspace, run, setting
):
  message = fails(
    *_train(
      workspace, run, workspace.cache, _EVERY, f'--gin.{setting}', steps=8
    )
  )
  assert 'a run with a different configuration' in message
  assert '--on_config_mismatch=continue' not in message


@pytest.mark.slow
def test_changed_text_is_rejected_without_a_cache(
  fails, workspace, corpus, tmp_path
):
  def train(*more: str) -> list[str]:
    return _train(workspace, tmp_path / 'run', *more, corpus=corpus)

  assert cli.main(train('--stop_after_steps=2')) == 0
  path = corpus / 'mono/de.txt'
  path.write_text(path.read_text().replace('hund', 'hunt', 1))
  message = fails(*train())
  assert_mentions(message, 'mono', '--on_config_mismatch=continue')
  assert (
    cli.main(train('--on_config_mismatch=continue', '--stop_after_steps=3'))
    == 0
  )
  assert cli.main(train()) == 0  # The path is recorded.


@pytest.mark.slow
def test_vocabulary_of_another_size_is_rejected(
  fails, workspace, run, tmp_path
):
  assert (
    cli.main(
      [
        'vocab',
        f'--corpus={workspace.root / "corpus"}',
        f'--output={tmp_path / "other"}',
        '--size=90',
      ]
    )
    == 0
  )
  other = f'--gin.VOCABULARY="{tmp_path / "other"}"'
  message = fails(*_train(workspace, run, _EVERY, other, steps=12))
  assert 'vocabulary file differs' in message and '--vocabulary' in message
  assert '--on_config_mismatch=continue' not in message
  message = fails(
    *_train(
      workspace, run, '--on_config_mismatch=continue', _EVERY, other, steps=12
    )
  )
  assert_mentions(message, tmp_path / 'other')
  init = [
    other,
    '--gin.INIT_FROM=@initialization.InitFromCheckpoint()',
    f'--gin.initialization.InitFromCheckpoint.model_dir="{run}"',
  ]
  message = fails(*_train(workspace, tmp_path / 'new', *init, '--dry_run'))
  # Both tables are padded to 128 rows, so only the vocabularies differ.
  assert 'InitFromCheckpoint.vocabulary_matching' in message


@pytest.mark.slow
def test_truncated_checkpoint_falls_back_to_the_previous_one(
  workspace, finished, run
):
  for path in (run / 'checkpoints/8/train').rglob('*'):
    if path.is_file() and path.stat().st_size > 1000:
      path.write_bytes(path.read_bytes()[:100])
  output = workspace.train(
    run, workspace.cache, _EVERY, steps=8, options=TINY_MLM
  )
  assert 'is unreadable' in output and 'rejected_checkpoints' in output
  assert 'Resuming from the checkpoint of step 4' in output
  assert (run / 'rejected_checkpoints').is_dir()
  assert losses(run) == losses(finished)
  theirs = parameters(finished, 8)
  for name, value in parameters(run, 8).items():
    assert (value == theirs[name]).all(), name


_LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
from xlflax import cli
sys.exit(cli.main(sys.argv[2:]))
"""


@pytest.mark.slow
def test_full_disk_during_a_save_is_reported(workspace, finished, run):
  del finished
  assert resource.RLIMIT_FSIZE is not None
  arguments = _train(
    workspace,
    run,
    workspace.cache,
    _EVERY,
    '--on_config_mismatch=continue',
    steps=12,
  )
  process = subprocess.run(
    [sys.executable, '-c', _LIMITED, '16000', *arguments],
    capture_output=True,
    text=True,
    timeout=300,
    env=workspace.environment(),
  )
  assert process.returncode == errors.ExitStatus.FAILURE, process.stderr
  assert 'The checkpoint could not be written' in process.stderr
  assert 'The last valid checkpoint is step 8' in process.stderr
  output = workspace.train(
    run,
    workspace.cache,
    _EVERY,
    '--on_config_mismatch=continue',
    steps=12,
    options=TINY_MLM,
  )
  assert 'Resuming from the checkpoint of step 8' in output
