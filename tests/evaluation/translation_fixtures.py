"""Fixtures with the copying model; they require those of `fixtures`."""

import pathlib

import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn

from tests.evaluation import copying_model
from xlflax.evaluation import eval_task
from xlflax.models import model_params
from xlflax.objectives.pretraining import seq2seq
from xlflax.training import train_state
from xlflax.training.checkpointing import (
  checkpoints,
  objective_config,
  run_directory,
)


@pytest.fixture(scope='session')
def copier(vocabulary) -> eval_task.EvalModel:
  """Copying model with batch size 8 and bos as the start of the decoder."""
  model = copying_model.CopyingModel(
    copying_model.Config(vocab_size=len(vocabulary))
  )
  params = nn.meta.unbox(model_params.init_params(model, jax.random.key(0)))
  return eval_task.EvalModel(
    model=model,
    params={'model': params},
    vocabulary=vocabulary,
    batch_size=8,
    objectives={'translation': seq2seq.Translation(decoder_start='bos')},
  )


@pytest.fixture(scope='session')
def copying_run(copier, vocabulary_dir, tmp_path_factory) -> pathlib.Path:
  """Run directory of the copying model with checkpoints at steps 10 and 20."""
  directory = tmp_path_factory.mktemp('copying_run')
  run_directory.write_model(directory, copier.model)
  objective_config.write_objectives(directory, copier.objectives.values())
  run_directory.copy_vocabulary(pathlib.Path(vocabulary_dir), directory)
  saved = checkpoints.Checkpoints(
    directory,
    checkpoints.CheckpointOptions(
      max_to_keep=None, enable_async_checkpointing=False
    ),
  )
  for step in (10, 20):
    saved.save(
      train_state.TrainState(
        step=jnp.int32(step),
        params=copier.params,
        opt_state={'m': jnp.zeros(2)},
        ema=(),
        objective_state={},
      ),
      {'seed': 0},
    )
  saved.close()
  return directory
