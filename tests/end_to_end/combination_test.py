"""Tests a user's gin file that combines the methods of several papers."""

import json
import shutil

import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.end_to_end.conftest import losses
from xlflax.data.corpus import corpus_writer
from xlflax.training import param_tree
from xlflax.training.checkpointing import checkpoint_reader

_STEPS = 32
_SIZES = dict(
  num_layers=1,
  hidden_dim=16,
  mlp_dim=32,
  num_heads=2,
  max_position_embeddings=32,
  scan_layers=False,
)

# VECO's datasets and objectives, MoCo, replaced tokens and a teacher.
_GIN = """
from __gin__ import dynamic_registration

from xlflax import trainer
from xlflax.data import dataset_config
from xlflax.models import encoder_config as model_config
from xlflax.objectives.pretraining import sentence_alignment
from xlflax.objectives.pretraining import cross_attention_mlm
from xlflax.objectives.pretraining import distillation
from xlflax.training.initialization import teachers
from xlflax.objectives.pretraining import masked_lm
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import momentum_contrast
from xlflax.objectives.pretraining import replaced_token
from xlflax.training.initialization import init_from as initialization
from xlflax.training.optimization import schedules
from xlflax.training.initialization import vocabulary_matching

include 'pretrain/veco.gin'
include 'models/tiny.gin'

SOURCE = %gin.REQUIRED

# From a monolingual run with another vocabulary.
INIT_FROM = @initialization.InitFromCheckpoint()
initialization.InitFromCheckpoint:
  model_dir = %SOURCE
  exclude = ('cross_attention', 'heads/')
  vocabulary_matching = @vocabulary_matching.EmbeddingTransfer()

trainer.Trainer.datasets = [
    @adjacent/dataset_config.DatasetConfig(), @sides/dataset_config.DatasetConfig(),
    @pairs/dataset_config.DatasetConfig(), @mono/dataset_config.DatasetConfig()]
objective_mixture.ObjectiveMixture:
  entries = [
      @ca_mono/objective_mixture.WeightedObjective(), @moco/objective_mixture.WeightedObjective(), @tlm/objective_mixture.WeightedObjective(),
      @rtd/objective_mixture.WeightedObjective(), @distill/objective_mixture.WeightedObjective()]
  combine = 'sum'
  schedule = None

adjacent/dataset_config.DatasetConfig:
  mixture = 'corpus.code_switched'
  alpha = @alpha/schedules.Piecewise()
alpha/schedules.Piecewise:
  values = (1.0, 0.3)
  boundaries = (10,)

moco/objective_mixture.WeightedObjective:
  dataset = 'sides'
  objective = @sentence_alignment.SentenceAlignment()
sentence_alignment.SentenceAlignment:
  queue = @momentum_contrast.MoCoQueue()
  direction = 'forward'
  projection_dim = 8
  name = 'moco'
momentum_contrast.MoCoQueue:
  size = 24
  momentum = 0.9

rtd/objective_mixture.WeightedObjective:
  dataset = 'mono'
  objective = @replaced_token.ReplacedTokenDetection()
replaced_token.ReplacedTokenDetection:
  generator = @generator/model_config.EncoderConfig()
  discriminator_weight = 5.0
  mask_ratio = %MASK_RATIO
  max_mask_ratio = 0.3
generator/model_config.EncoderConfig.num_layers = 1

distill/objective_mixture.WeightedObjective:
  dataset = 'mono'
  objective = @distillation.Distillation()
teachers.Teacher.model_dir = %SOURCE
distillation.Distillation:
  teacher = @teachers.Teacher()
  mask_ratio = %MASK_RATIO
  max_mask_ratio = 0.3

# Every ratio falls from 30 % to 15 %.
MASK_RATIO = @ratio/schedules.Linear()
PAIR_MASK_RATIO = @ratio/schedules.Linear()
ratio/schedules.Linear:
  peak_value = 0.3
  end_value = 0.15
  warmup_steps = 0
  num_train_steps = %TRAIN_STEPS
cross_attention_mlm.CrossAttentionMLM.max_mask_ratio = 0.3
masked_lm.TranslationLM.max_mask_ratio = 0.3
"""
_SMALL = (
  '--gin.LENGTH=16',
  '--gin.BATCH_SIZE=8',
  '--gin.WARMUP_STEPS=2',
  '--gin.LEARNING_RATE=1e-2',
  *(f'--gin.EncoderConfig.{k}={v}' for k, v in _SIZES.items()),
)


@pytest.fixture(scope='module')
def inputs(workspace):
  """Flags of the corpus with a dictionary, and its vocabulary."""
  corpus = workspace.root / 'with_dictionary'
  shutil.copytree(workspace.root / 'corpus', corpus)
  corpus_writer.write_dictionary(
    corpus,
    ('en', 'de'),
    [
      ('cat', 'kater'),
      ('dog', 'hund'),
      ('house', 'haus'),
      ('tree', 'baum'),
      ('river', 'fluss'),
      ('stone', 'stein'),
      ('bird', 'vogel'),
    ],
  )
  return (
    f'--corpus={corpus}',
    f'--vocabulary={workspace.root / "vocabulary"}',
    f'--compilation_cache={workspace.root / "compiled"}',
  )


@pytest.fixture(scope='module')
def english(workspace):
  """Monolingual run with its own vocabulary."""
  corpus, vocabulary, run = (
    workspace.root / f'english{name}' for name in ('', '_vocabulary', '_run')
  )
  (corpus / 'mono').mkdir(parents=True)
  shutil.copy(workspace.root / 'corpus/mono/en.txt', corpus / 'mono')
  workspace.run(
    'vocab', f'--corpus={corpus}', f'--output={vocabulary}', '--size=48'
  )
  workspace.run(
    'train',
    '--gin_file=pretrain/mlm.gin',
    '--gin_file=models/tiny.gin',
    f'--corpus={corpus}',
    f'--vocabulary={vocabulary}',
    f'--model_dir={run}',
    f'--compilation_cache={workspace.root}/compiled',
    '--gin.TRAIN_STEPS=8',
    *_SMALL,
  )
  return run


def _parameters(model_dir, step):
  with ocp.PyTreeCheckpointer() as checkpointer:
    return {
      name: np.asarray(leaf)
      for name, leaf in param_tree.flatten_params(
        checkpointer.restore(
          checkpoint_reader.checkpoint_path(model_dir, step).absolute()
          / 'params'
        )
      ).items()
    }


@pytest.mark.slow
def test_all_methods_train_in_one_run(workspace, inputs, english, tmp_path):
  file, run = tmp_path / 'mine.gin', tmp_path / 'run'
  file.write_text(_GIN)
  workspace.run(
    'train',
    f'--gin_file={file}',
    *inputs,
    f'--model_dir={run}',
    f'--gin.SOURCE="{english}"',
    f'--gin.TRAIN_STEPS={_STEPS}',
    *_SMALL,
    '--gin.PAIR_LENGTH=24',
    '--gin.PAIR_BATCH_SIZE=8',
    '--gin.trainer.Trainer.log_metrics_every=8',
    '--gin.checkpoints.CheckpointOptions.save_interval_steps=8',
  )
  rows = losses(run)
  assert np.isfinite([v for row in rows.values() for v in row.values()]).all()
  for name in (
    'loss',
    'ca_mlm/cross_loss',
    'ca_mlm/self_loss',
    'moco/loss',
    'tlm/loss',
    'rtd/generator_loss',
    'rtd/discriminator_loss',
  ):
    assert rows[_STEPS][name] < rows[8][name], name
  # The student was initialized from the teacher.
  assert rows[8]['distill/loss'] < 0.1
  before, after = _parameters(run, 16), _parameters(run, _STEPS)
  assert [name for name in after if 'cross_attention/' in name]
  for name, value in after.items():  # Biases of keys have no effect.
    moved = np.abs(value - before[name]).max()
    assert moved > 1e-3 or name.endswith('key/bias'), name
  counts = json.loads((run / 'report/vocabulary_matching.json').read_text())
  assert counts['counts']['exact'] > 20
