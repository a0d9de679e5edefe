"""Tests that invalid settings of methods are rejected before training."""

import re
import shutil

import jax
import pytest

from tests.errors import assert_mentions
from tests.training import tiny
from xlflax import cli
from xlflax.data.corpus import corpus_writer
from xlflax.training.checkpointing import checkpoint_reader, checkpoints

_COMMON = (
  'LENGTH=16',
  'BATCH_SIZE=8',
  'TRAIN_STEPS=4',
  'WARMUP_STEPS=1',
  'EncoderConfig.num_layers=2',
  'EncoderConfig.hidden_dim=16',
  'EncoderConfig.mlp_dim=32',
  'EncoderConfig.num_heads=2',
  'EncoderConfig.max_position_embeddings=32',
)
_PAIRS = ('PAIR_LENGTH=24', 'PAIR_BATCH_SIZE=8')


@pytest.fixture
def fails(workspace, tmp_path, capsys):
  """Fixture that trains in this process and returns the final message."""

  def run(file, *bindings, corpus=workspace.root / 'corpus'):
    model_dir = tmp_path / 'run'
    status = cli.main(
      [
        'train',
        f'--gin_file={file}',
        '--gin_file=models/tiny.gin',
        f'--corpus={corpus}',
        f'--vocabulary={workspace.root / "vocabulary"}',
        f'--model_dir={model_dir}',
        '--compilation_cache=',
        *(
          f'--gin.{binding}'
          for binding in (*_COMMON, *bindings)
          # All datasets of MoCo + TLM contain pairs.
          if 'moco' not in str(file)
          or not binding.startswith(('LENGTH=', 'BATCH_SIZE='))
        ),
      ]
    )
    captured = capsys.readouterr()
    assert status == 2
    assert 'Traceback' not in captured.out + captured.err
    assert not checkpoint_reader.finished_steps(model_dir)
    lines = [
      line
      for line in captured.err.splitlines()
      if not re.match(r'\d\d:\d\d:\d\d [IW] ', line)
    ]
    assert len(lines) == 1 and lines[0].startswith('xlflax train: '), lines
    return lines[0]

  return run


def test_dictionary_line_without_two_columns_is_rejected(
  fails, workspace, tmp_path
):
  corpus = shutil.copytree(workspace.root / 'corpus', tmp_path / 'corpus')
  path = corpus_writer.write_dictionary(
    corpus, ('en', 'de'), [('cat', 'kater'), ('dog', 'hund')]
  )
  path.write_text(path.read_text() + 'house haus\n')
  message = fails(
    'pretrain/mlm.gin', 'MONO="corpus.code_switched"', corpus=corpus
  )
  assert f'{path}:3' in message and 'house haus' in message


def test_missing_dictionaries_are_reported(fails):
  message = fails('pretrain/mlm.gin', 'MONO="corpus.code_switched"')
  assert 'Got: corpus.code_switched' in message
  assert 'dictionaries/' in message


def test_sharing_plan_of_missing_layers_is_rejected(fails, tmp_path):
  file = tmp_path / 'mine.gin'
  file.write_text("""
from __gin__ import dynamic_registration
from xlflax.models import encoder_config as model_config
from xlflax.models.variants import parameter_sharing
include 'pretrain/mlm.gin'
model_config.EncoderConfig.sharing = @parameter_sharing.SharingPlan()
parameter_sharing.SharingPlan.layers = 3
""")
  message = fails(file)
  assert_mentions(message, 'SharingPlan.layers', 3, 2)
  assert f'{file}:7' in message


@pytest.fixture(scope='module')
def wider(tmp_path_factory):
  """Checkpoint of an encoder with 24 instead of 16 dimensions."""
  directory = tmp_path_factory.mktemp('wider')
  model = tiny.make_model(vocab_size=100, hidden_dim=24)
  factory = tiny.make_factory(model=model, use_ema=False)
  saved = checkpoints.Checkpoints(directory)
  saved.save(factory.create(jax.random.key(0)), {})
  saved.close()
  return directory


@pytest.mark.slow
def test_veco_with_a_checkpoint_of_another_shape_is_rejected(fails, wider):
  message = fails('pretrain/veco_phase1.gin', *_PAIRS, f'INIT_DIR="{wider}"')
  assert 'The checkpoint does not match the model' in message
  assert (
    'model/embeddings/token is (100, 16) here, (100, 24) in the checkpoint'
  ) in message
  assert str(wider) in message


def test_veco_without_cross_attention_is_rejected(fails):
  message = fails(
    'pretrain/veco.gin', *_PAIRS, 'EncoderConfig.cross_attention=False'
  )
  assert "Where: objective 'ca_mlm'" in message
  assert 'EncoderConfig.cross_attention = True' in message


def test_queue_size_must_be_a_multiple_of_the_batch_size(fails):
  message = fails(
    'pretrain/moco_tlm.gin',
    *_PAIRS,
    'QUEUE_SIZE=20',
    'MIN_TOKENS=2',
    'MAX_TOKENS=20',
  )
  assert_mentions(message, '20 keys', '8 pairs')
  assert 'MoCoQueue.size to 16' in message


@pytest.mark.slow
def test_failed_start_leaves_the_directory_usable(fails):
  """A run that fails at startup leaves no files that block the next run."""
  for size in (20, 28):
    message = fails(
      'pretrain/moco_tlm.gin',
      *_PAIRS,
      f'QUEUE_SIZE={size}',
      'MIN_TOKENS=2',
      'MAX_TOKENS=20',
    )
    assert_mentions(message, f'{size} keys')


@pytest.mark.slow
def test_missing_heads_of_the_initial_run_are_reported(fails, wider):
  message = fails(
    'pretrain/moco_tlm.gin',
    *_PAIRS,
    'QUEUE_SIZE=16',
    'MIN_TOKENS=2',
    'MAX_TOKENS=20',
    'EncoderConfig.hidden_dim=24',
    f'INIT_FROM="{wider}"',
  )
  assert 'heads/moco/inner/kernel is not in the checkpoint' in message
  assert "add 'heads/' to InitFromCheckpoint.exclude" in message
