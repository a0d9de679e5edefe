"""Fixtures with a pretrained run and fake training."""

import pytest

from tests.evaluation.fixtures import *  # noqa: F403  (fixtures)
from tests.finetuning import fakes
from xlflax.finetuning import grid_trials


@pytest.fixture(scope='session')
def pretrained(make_run, tmp_path_factory):
  """Run directory with checkpoints at steps 10 and 20."""
  return make_run(tmp_path_factory.mktemp('runs') / 'pretrained', [10, 20])


@pytest.fixture
def fake_training(monkeypatch):
  monkeypatch.setattr(grid_trials, 'Trainer', fakes.FakeTrainer)
  fakes.CALLS.clear()
  return fakes.CALLS


@pytest.fixture
def training_gin(tmp_path, pretrained) -> str:
  """Gin file with the macros of the fake training."""
  path = tmp_path / 'training.gin'
  path.write_text(f"""
from __gin__ import dynamic_registration
from tests.finetuning import fakes
from xlflax.training.checkpointing import checkpoints
from xlflax.evaluation import during_training
from xlflax.training.checkpointing import run_directory
MODEL_DIR = %gin.REQUIRED
LEARNING_RATE = 0.5
SEED = 0
EVALUATION = @during_training.Evaluation()
during_training.Evaluation:
  tasks = [@dev/fakes.Counted()]
  eval_interval_steps = 10
dev/fakes.Counted.name = 'dev'
INIT_FROM = None
fakes.FakeTrainer:
  model_dir = %MODEL_DIR
  learning_rate = %LEARNING_RATE
  seed = %SEED
  pretrained = '{pretrained}'
  evaluation = %EVALUATION
  init_from = %INIT_FROM
fakes.FakeTrainer.checkpoints = @checkpoints.CheckpointOptions()
checkpoints.CheckpointOptions.save_interval_steps = 10
""")
  return str(path)
