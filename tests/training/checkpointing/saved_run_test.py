"""Tests of opening a model directory for reading."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import raises_error
from tests.evaluation.fixtures import (  # noqa: F401
  corpus,
  eval_model,
  make_run,
  model,
  vocabulary,
  vocabulary_dir,
)
from tests.training import tiny
from xlflax.training import param_tree, train_state
from xlflax.training.checkpointing import (
  checkpoint_reader,
  checkpoints,
  run_directory,
  saved_run,
)
from xlflax.training.devices import partitioning
from xlflax.utils import errors


@pytest.fixture(scope='module')
def directory(make_run, tmp_path_factory):  # noqa: F811
  return make_run(tmp_path_factory.mktemp('runs') / 'run', steps=(2, 10))


def _mesh():
  return partitioning.Partitioner(fsdp=2, tensor=2)


def test_saved_run_has_steps_model_and_vocabulary(directory, eval_model):  # noqa: F811
  run = saved_run.load_run(str(directory))
  assert run.steps == [2, 10]
  assert run.model == eval_model.model
  assert run.vocabulary.hash == eval_model.vocabulary.hash
  assert not run.is_finished()


def test_finished_run_is_marked(directory, tmp_path):
  saved_run.mark_finished(tmp_path, 10)
  assert saved_run.SavedRun(tmp_path, None, None).is_finished()


@pytest.mark.parametrize('partitioner', [None, _mesh()])
def test_parameters_are_restored_on_one_or_several_devices(
  directory,
  eval_model,  # noqa: F811
  partitioner,
):
  params = saved_run.load_run(directory).restore_params(
    10, partitioner=partitioner
  )
  tiny.assert_trees_equal(
    params, jax.tree.map(lambda x: x * 1.1, eval_model.params)
  )
  table = params['model']['embeddings']['token']
  assert len(table.sharding.device_set) == (8 if partitioner else 1)


def test_heads_are_restored(make_run, tmp_path, eval_model):  # noqa: F811
  directory = make_run(tmp_path / 'run')
  heads = {'align': {'out': {'kernel': jnp.full((2, 3), 7.0)}}}
  saved = checkpoints.Checkpoints(directory)
  saved.save(
    train_state.TrainState(
      step=jnp.int32(1),
      params=eval_model.params | {'heads': heads},
      opt_state=(),
      ema=(),
      objective_state={},
    ),
    {},
  )
  saved.close()
  params = saved_run.load_run(directory).restore_params(1)
  tiny.assert_trees_equal(params['heads'], heads)


@pytest.mark.slow
def test_untrained_parameters_depend_only_on_the_seed(directory):
  run = saved_run.load_run(directory)
  alone, sharded = (
    run.untrained_params(seed=1, partitioner=p) for p in (None, _mesh())
  )
  other = param_tree.flatten_params(run.untrained_params(seed=2))
  for name, leaf in param_tree.flatten_params(alone).items():
    np.testing.assert_array_equal(
      leaf, param_tree.flatten_params(sharded)[name]
    )
  assert not np.array_equal(
    alone['model']['embeddings']['token'], other['model/embeddings/token']
  )


def test_missing_directory_is_rejected(tmp_path):
  with pytest.raises(errors.RunDirectoryError) as error:
    saved_run.load_run(tmp_path / 'none')
  assert error.value.got == str(tmp_path / 'none')


def test_directory_without_a_run_is_rejected(tmp_path):
  with raises_error(errors.RunDirectoryError, mentions='model.json'):
    saved_run.load_run(tmp_path)


def test_missing_vocabulary_is_an_error(tmp_path):
  run_directory.write_model(tmp_path, tiny.make_model())
  with pytest.raises(errors.VocabularyError):
    saved_run.load_run(tmp_path)


def test_missing_step_is_reported_with_existing_steps(directory):
  with raises_error(errors.CheckpointError, mentions=(3, 2, 10)):
    saved_run.load_run(directory).restore_params(3)


def test_averaged_parameters_are_restored(make_run, tmp_path, eval_model):  # noqa: F811
  directory = make_run(tmp_path / 'run')
  average = jax.tree.map(lambda x: x + 1.0, eval_model.params)
  saved = checkpoints.Checkpoints(directory)
  saved.save(
    train_state.TrainState(
      step=jnp.asarray(3),
      params=eval_model.params,
      opt_state=(),
      ema=average,
      objective_state={},
    ),
    {},
  )
  saved.close()
  tiny.assert_trees_equal(
    saved_run.load_run(directory).restore_params(3), average
  )


def test_only_directories_with_step_names_are_listed(tmp_path):
  for name in ('60', '060', '7', '²', '0', '60.tmp'):
    (tmp_path / 'checkpoints' / name / 'params').mkdir(parents=True)
  assert checkpoint_reader.finished_steps(tmp_path) == [0, 7, 60]
