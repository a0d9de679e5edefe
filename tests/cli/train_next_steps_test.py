"""Tests of the next commands that `xlflax train` suggests."""

import shlex
import types

import pytest

from tests.errors import assert_mentions
from tests.training import tiny
from xlflax import cli
from xlflax.cli import train_next_steps
from xlflax.models import encoder_decoder, encoder_decoder_config
from xlflax.objectives.finetuning import (
  reranking,
  sequence_classification,
  sequence_regression,
  token_classification,
)
from xlflax.objectives.pretraining import denoising, seq2seq


def _trainer(model=None, objectives=None):
  return types.SimpleNamespace(
    model=model or tiny.make_model(),
    objectives=objectives or tiny.make_mixture(),
    corpus='my corpus',
    num_train_steps=20000,
    stop_after_steps=None,
    log_metrics_every=100,
  )


def _encoder_decoder():
  return encoder_decoder.EncoderDecoder(
    encoder_decoder_config.EncoderDecoderConfig(
      family='post_ln',
      num_encoder_layers=1,
      num_decoder_layers=1,
      hidden_dim=16,
      mlp_dim=32,
      num_heads=2,
    )
  )


def _objectives(*objectives):
  return types.SimpleNamespace(objectives=objectives)


def _tagging():
  return _objectives(
    token_classification.TokenClassification(labels=('A', 'B'))
  )


_RESULT = {
  'step': 20000,
  'checkpoint': 20000,
  'loss': 2.3456,
  'model_dir': 'runs/a b',
  'finished': True,
  'has_untrained_mlm_head': False,
  'seconds': {'step': 3600.0, 'start': 61.0},
  'earlier_seconds': 0.0,
}


@pytest.mark.parametrize(
  ('trainer', 'names'),
  [
    (_trainer(), ['evaluate', 'finetune', 'convert']),
    (
      _trainer(_encoder_decoder(), _objectives(seq2seq.Translation())),
      ['translate', 'evaluate'],
    ),
    (
      _trainer(_encoder_decoder(), _objectives(denoising.SpanCorruption())),
      ['finetune', 'convert'],
    ),
    (
      _trainer(_encoder_decoder(), _objectives(denoising.TextInfilling())),
      ['finetune', 'convert'],
    ),
    (_trainer(_encoder_decoder(), _tagging()), ['evaluate', 'convert']),
    (_trainer(objectives=_tagging()), ['evaluate', 'convert']),
  ],
)
def test_suggested_commands_are_valid(trainer, names):
  commands = train_next_steps.next_commands(trainer, _RESULT)
  lines = [shlex.split(line) for line in commands]
  assert [arguments[1] for arguments in lines] == names
  for arguments in lines:
    cli.parse(arguments[1], arguments[2:])
    assert any('runs/a b' in word for word in arguments)


@pytest.mark.parametrize(
  ('objective', 'file'),
  [
    (
      sequence_classification.SequenceClassification(labels=('A', 'B')),
      'classification',
    ),
    (sequence_regression.SequenceRegression(), 'regression'),
    (reranking.Reranking(), 'reranking'),
  ],
)
def test_evaluation_file_matches_the_head(objective, file):
  trainer = _trainer(objectives=types.SimpleNamespace(objectives=[objective]))
  evaluation, *_ = train_next_steps.next_commands(trainer, _RESULT)
  assert f'--gin_file=evaluate/{file}.gin' in evaluation


def test_evaluation_file_of_a_user_defined_head_is_a_placeholder():
  objective = sequence_classification.SequenceClassification(
    name='rating', labels=('A', 'B')
  )
  trainer = _trainer(objectives=types.SimpleNamespace(objectives=[objective]))
  evaluation, *_ = train_next_steps.next_commands(trainer, _RESULT)
  assert '--gin_file=FILE.gin' in evaluation


@pytest.mark.parametrize(
  ('folders', 'tasks'),
  [
    (['mono'], ['perplexity']),
    (['parallel'], ['retrieval']),
    (['mono', 'parallel'], ['retrieval', 'perplexity']),
    ([], ['retrieval', 'perplexity']),
  ],
)
def test_evaluation_matches_the_test_split(tmp_path, folders, tasks):
  files = {'mono': 'en.txt', 'parallel': 'de-en.tsv'}
  for folder in ('mono', *(f'test/{folder}' for folder in folders)):
    (tmp_path / folder).mkdir(parents=True)
    name = files[folder.split('/')[-1]]
    (tmp_path / folder / name).write_text('a\tb\n')
  trainer = _trainer()
  trainer.corpus = str(tmp_path)
  evaluation, *_ = train_next_steps.next_commands(trainer, _RESULT)
  assert f'--tasks={",".join(tasks)} ' in evaluation
  assert (f'--corpus={tmp_path}' in evaluation) == bool(folders)


@pytest.mark.parametrize('folder', ['mono', 'parallel'])
def test_untrained_head_is_not_evaluated_or_exported(tmp_path, folder):
  (tmp_path / 'test' / folder).mkdir(parents=True)
  name = {'mono': 'en.txt', 'parallel': 'de-en.tsv'}[folder]
  (tmp_path / 'test' / folder / name).write_text('a\tb\n')
  trainer = _trainer()
  trainer.corpus = str(tmp_path)
  result = _RESULT | {'has_untrained_mlm_head': True}
  evaluation, *_, export = train_next_steps.next_commands(trainer, result)
  assert '--tasks=retrieval ' in evaluation and 'perplexity' not in evaluation
  assert (f'--corpus={tmp_path}' in evaluation) == (folder == 'parallel')
  assert '--head=states' in export
  arguments = shlex.split(export)
  cli.parse(arguments[1], arguments[2:])


def test_next_steps_are_logged(caplog):
  caplog.set_level('INFO')
  train_next_steps.log_next_steps(_trainer(), _RESULT)
  assert '20,000 of 20,000' in caplog.messages[0]
  assert '01:01:01' in caplog.messages[0] and '2.3456' in caplog.messages[0]
  assert "--corpus='my corpus'" in caplog.messages[1]
  caplog.clear()
  unfinished = _RESULT | {'finished': False, 'step': 3}
  train_next_steps.log_next_steps(_trainer(), unfinished)
  assert '3 of 20,000' in caplog.messages[0]
  assert 'xlflax' not in caplog.messages[1]


@pytest.mark.parametrize('earlier_seconds', [0.0, 60.0])
def test_duration_of_a_resumed_run_includes_earlier_starts(
  caplog, earlier_seconds
):
  caplog.set_level('INFO')
  result = _RESULT | {'earlier_seconds': earlier_seconds}
  train_next_steps.log_next_steps(_trainer(), result)
  assert ('all starts' in caplog.messages[0]) == (earlier_seconds > 0)


@pytest.mark.parametrize(
  ('finished', 'step', 'is_reported'),
  [(False, 99, False), (False, 100, True), (True, 20000, False)],
)
def test_reported_or_mean_loss_is_logged(caplog, finished, step, is_reported):
  caplog.set_level('INFO')
  result = _RESULT | {'finished': finished, 'step': step}
  train_next_steps.log_next_steps(_trainer(), result)
  assert '2.3456' in caplog.messages[0]
  assert ('reported' in caplog.messages[0]) == is_reported


def test_a_run_whose_checkpoints_a_hook_rejected_is_not_evaluated():
  rejected = _RESULT | {
    'finished': False,
    'checkpoint': None,
    'rejected_by': 'Announce',
  }
  [hint] = train_next_steps.next_commands(_trainer(), rejected)
  assert_mentions(hint, 'Announce.before_checkpoint', 'True')
  assert 'evaluate' not in hint


@pytest.mark.parametrize('checkpoint', [None, 1000])
def test_hint_names_only_existing_checkpoints(checkpoint):
  unfinished = _RESULT | {'finished': False, 'checkpoint': checkpoint}
  (hint,) = train_next_steps.next_commands(_trainer(), unfinished)
  assert ('checkpoint' in hint) == (checkpoint is not None)
  assert ('1,000' in hint) == (checkpoint is not None)


def test_hint_mentions_stop_after_steps_if_it_was_reached():
  trainer = _trainer()
  trainer.stop_after_steps = 1000
  unfinished = _RESULT | {'finished': False, 'step': 1000, 'checkpoint': 1000}
  (hint,) = train_next_steps.next_commands(trainer, unfinished)
  assert_mentions(hint, '--stop_after_steps', '1,000')
  interrupted = unfinished | {'step': 400, 'checkpoint': 400}
  (hint,) = train_next_steps.next_commands(trainer, interrupted)
  assert 'stop_after_steps' not in hint


def test_commands_after_a_hook_stopped_the_run_use_its_checkpoint():
  stopped = _RESULT | {
    'finished': False,
    'step': 2000,
    'checkpoint': 2000,
    'stopped_by': 'EarlyStopping',
  }
  hint, *commands = train_next_steps.next_commands(_trainer(), stopped)
  assert_mentions(hint, 'EarlyStopping', 'Trainer.hooks', '2,000', 'MODEL_DIR')
  assert commands == train_next_steps.next_commands(_trainer(), _RESULT)
  stopped |= {'step': 0, 'checkpoint': None}
  (hint,) = train_next_steps.next_commands(_trainer(), stopped)
  assert_mentions(hint, 'EarlyStopping', 'Trainer.hooks')


def test_export_formats_are_logged(caplog):
  caplog.set_level('INFO')
  train_next_steps.log_export(_trainer())
  train_next_steps.log_export(_trainer(tiny.make_model(scale_embeddings=True)))
  assert caplog.records[0].args == ('bert',)
  # The reasons for all architectures together would exceed a log line.
  assert len(caplog.records[1].getMessage()) < 200
