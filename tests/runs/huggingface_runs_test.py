"""Tests of converting runs to Hugging Face directories and back."""

import dataclasses
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import xlflax
from xlflax import models
from xlflax.training import train_state
from xlflax.training.checkpointing import checkpoints, run_directory
from xlflax.training.devices import partitioning
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']


def _one_device() -> partitioning.Partitioner:
  return partitioning.Partitioner(devices=(jax.devices()[0],))


def _open(directory) -> xlflax.Run:
  return xlflax.load_run(directory, partitioner=_one_device())


@pytest.fixture(scope='module')
def run(make_run, tmp_path_factory):
  return _open(make_run(tmp_path_factory.mktemp('runs') / 'run', [10]))


def test_run_is_unchanged_after_export_and_import(run, sentences, tmp_path):
  """The vectors and the tokenizer are equal."""
  folder, texts = tmp_path / 'folder', sentences('de', 3)
  plain_run = _write_plain(run, tmp_path / 'run')
  assert xlflax.to_huggingface(plain_run, folder, model_type='bert') == []
  imported_run = xlflax.from_huggingface(
    folder, languages=['de', 'en'], partitioner=_one_device()
  )
  assert imported_run.steps == [0]
  assert imported_run.vocabulary.spec.languages == ('de', 'en')
  np.testing.assert_allclose(
    imported_run.encode(texts),
    plain_run.encode(texts, languages=['de', 'ja', 'de']),
    atol=1e-5,
  )
  assert imported_run.directory.parent.name.startswith('xlflax_')
  saved_run = xlflax.from_huggingface(folder, model_dir=tmp_path / 'kept')
  assert _open(tmp_path / 'kept').steps == saved_run.steps
  with pytest.raises(errors.RunDirectoryError):
    xlflax.from_huggingface(folder, model_dir=tmp_path / 'kept')


def test_only_checkpoints_are_exported(run, tmp_path):
  with pytest.raises(errors.CheckpointError, match="step='untrained'"):
    xlflax.to_huggingface(run.checkpoint('untrained'), tmp_path / 'folder')


def _write_plain(run, directory) -> xlflax.Run:
  """Writes a run of the same size without language embeddings."""
  config = dataclasses.replace(
    run.model.config, use_language_embeddings=False, type_vocab_size=1
  )
  model = run.model.clone(config=config)
  params = nn.meta.unbox(models.init_params(model, jax.random.key(0)))
  directory.mkdir()
  run_directory.write_model(directory, model)
  shutil.copytree(run.directory / 'vocabulary', directory / 'vocabulary')
  saved = checkpoints.Checkpoints(
    directory, checkpoints.CheckpointOptions(enable_async_checkpointing=False)
  )
  state = train_state.TrainState(
    step=jnp.int32(5),
    params={'model': params},
    opt_state=(),
    ema=(),
    objective_state={},
  )
  saved.save(state, {})
  saved.close()
  return _open(directory)
