"""Tests of teacher runs in the state of a student."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from tests.errors import raises_error
from tests.training import tiny
from xlflax.data.corpus import corpus_directory, corpus_writer
from xlflax.data.tokenizers import vocabulary_training
from xlflax.models import model_params
from xlflax.models.variants.parameter_sharing import SharingPlan
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining.distillation import Distillation
from xlflax.training import train_state, train_step
from xlflax.training.checkpointing import (
  checkpoint_reader,
  checkpoints,
  run_directory,
)
from xlflax.training.devices import partitioning
from xlflax.training.initialization import teachers
from xlflax.training.optimization import optimizers
from xlflax.utils import errors

_LINES = {
  'en': 'the cat sees a bird and the dog hears the cat',
  'de': 'die Katze sieht den Vogel und der Hund hört den Garten',
}


def _vocabulary(directory, languages, size):
  corpus_writer.write_monolingual(
    directory / 'corpus', 'en', [[_LINES['en']] * 3]
  )
  if 'de' in languages:
    corpus_writer.write_monolingual(
      directory / 'corpus', 'de', [[_LINES['de']] * 3]
    )
  return vocabulary_training.train_vocabulary(
    corpus_directory.Corpus(str(directory / 'corpus')),
    directory / 'vocabulary',
    size=size,
    num_threads=1,
  )


@pytest.fixture(scope='module')
def student(tmp_path_factory):
  return _vocabulary(tmp_path_factory.mktemp('student'), ('en', 'de'), 34)


@pytest.fixture(scope='module')
def teacher(tmp_path_factory):
  """Run directory, vocabulary and model of an English run."""
  directory = tmp_path_factory.mktemp('teacher')
  vocabulary = _vocabulary(directory, ('en',), 23)
  model = tiny.make_model(
    len(vocabulary),
    num_languages=1,
    num_layers=1,
    scan_layers=False,
    hidden_dim=8,
    use_language_embeddings=True,
  )
  run_directory.write_model(directory, model)
  saved = checkpoints.Checkpoints(directory)
  params = {
    'model': nn.unbox(model_params.init_params(model, jax.random.key(7)))
  }
  for step in (1, 2):
    saved.save(
      train_state.TrainState(
        step=jnp.int32(step),
        params=jax.tree.map(lambda x, s=step: x * s, params),
        opt_state={},
        ema=(),
        objective_state={},
      ),
      {},
    )
  saved.close()
  return directory, vocabulary, model


def _params(teacher, step=2):
  _, _, model = teacher
  return jax.tree.map(
    lambda x: step * np.asarray(x),
    nn.unbox(model_params.init_params(model, jax.random.key(7))),
  )


def test_reorder_embeddings_docstring_example():
  got = teachers.reorder_embeddings(
    {
      'output_bias': np.array([1.0, 2.0]),
      'other': 5,
      'output': np.diag([7.0, 8.0]),
      'embeddings': {'token': np.eye(2), 'norm': 3},
    },
    np.array([1, -1, 1, 0]),
    np.array([True, False, True, True]),
    unknown=0,
    temperature=1.0,
  )
  np.testing.assert_allclose(
    got['output_bias'], [2 - np.log(2), -1e9, 2 - np.log(2), 1]
  )
  np.testing.assert_array_equal(
    got['embeddings']['token'], [[0, 1], [1, 0], [0, 1], [1, 0]]
  )
  np.testing.assert_array_equal(got['output'], [[0, 8], [7, 0], [0, 8], [7, 0]])
  assert got['other'] == 5 and got['embeddings']['norm'] == 3


def test_embeddings_are_reordered_by_token(teacher, student):
  directory, vocabulary, _ = teacher
  rows = len(student) + 3
  got = teachers.Teacher(model_dir=str(directory)).load(
    vocabulary=student, rows=rows, temperature=1.0
  )
  table = _params(teacher)['embeddings']['token']
  source = {vocabulary.piece(i): i for i in range(len(vocabulary))}
  special = {'<pad>', '<s>', '</s>', '<unk>', '<mask>'}
  num_compared = 0
  for i in range(len(student)):
    piece = student.piece(i)
    if piece in source and piece not in special:
      num_compared += not piece.startswith('<')
      np.testing.assert_allclose(
        got.params['embeddings']['token'][i], table[source[piece]]
      )
      assert got.matched[i] == (not piece.startswith('<'))
    elif piece in special:
      np.testing.assert_allclose(
        got.params['embeddings']['token'][i], table[source[piece]]
      )
      assert not got.matched[i]
  assert num_compared >= 8 and got.matched.sum() < len(student)
  assert not got.matched[len(student) :].any()
  assert got.languages == ('en',)
  first = teachers.Teacher(model_dir=str(directory), step=1).load(
    vocabulary=student, rows=rows, temperature=1.0
  )
  np.testing.assert_allclose(
    2 * first.params['embeddings']['position'],
    got.params['embeddings']['position'],
  )


def _factory(directory, student, partitioner):
  model = tiny.make_model(
    len(student), num_layers=1, scan_layers=False, hidden_dim=8
  )
  mixture = objective_mixture.ObjectiveMixture(
    entries=(
      objective_mixture.WeightedObjective(
        dataset='mono',
        objective=Distillation(
          teacher=teachers.Teacher(model_dir=str(directory)), mask_ratio=0.5
        ),
      ),
    )
  )
  optimizer = optimizers.AdamW(learning_rate=0.05)
  factory = train_state.StateFactory(
    model, mixture, optimizer, student.spec, partitioner, use_ema=False
  )
  builder = train_step.TrainStepBuilder(
    model=model,
    mixture=mixture,
    optimizer=optimizer,
    vocabulary=student.spec,
    seed=0,
  )
  return model, mixture.entries[0].objective, factory, builder


def _batch(student):
  """Eight rows of the English sentence."""
  ids = [student.spec.bos_id, *student.encode(_LINES['en'])][:11]
  tokens = np.tile(np.array([*ids, student.spec.eos_id], np.int32), (8, 1))
  language = student.spec.languages.index('en')
  return {
    'token_ids': tokens,
    'segment_ids': np.ones_like(tokens),
    'positions': np.tile(np.arange(tokens.shape[1], dtype=np.int32), (8, 1)),
    'language_ids': np.full_like(tokens, language),
  }


@pytest.mark.slow
def test_teacher_is_loaded_sharded_and_resumed(teacher, student, tmp_path):
  """A resumed run does not read the checkpoint of the teacher."""
  copy = tmp_path / 'copy'
  shutil.copytree(teacher[0], copy)
  partitioner = partitioning.Partitioner(data=2, fsdp=2, tensor=2)
  model, objective, factory, builder = _factory(copy, student, partitioner)
  state = factory.create(jax.random.key(0))
  assert not any(x.any() for x in jax.tree.leaves(state.objective_state))
  with partitioner.scope():
    loaded = objective.load_state(
      state.objective_state['distill'],
      model=model,
      params=state.params,
      vocabulary=student,
    )
  want = factory.shardings.objective_state['distill']
  assert jax.tree.all(jax.tree.map(lambda x, s: x.sharding == s, loaded, want))
  assert not loaded['teacher']['embeddings'][
    'token'
  ].sharding.is_fully_replicated
  state = state.replace(objective_state={'distill': loaded})
  before = jax.tree.map(np.asarray, loaded)
  step = jax.jit(
    builder.build((0,)),
    out_shardings=(factory.shardings, partitioner.replicated),
  )
  losses = []
  with partitioner.scope():
    for _ in range(4):
      state, output = step(
        state,
        {'mono': jax.device_put(_batch(student), partitioner.batch_sharding)},
      )
      losses.append(float(output.loss))
  assert 0 < losses[-1] < 0.7 * losses[0]
  tiny.assert_trees_equal(state.objective_state['distill'], before)
  saved = checkpoints.Checkpoints(tmp_path / 'run')
  saved.save(state, {})
  saved.wait()
  shutil.rmtree(copy / checkpoint_reader.DIRECTORY)
  _, _, again, _ = _factory(copy, student, partitioner)
  restored = saved.restore_last(again).state
  tiny.assert_trees_equal(restored.objective_state, state.objective_state)
  saved.close()


def test_distillation_requires_a_vocabulary(teacher, student):
  objective = Distillation(teacher=teachers.Teacher(model_dir=str(teacher[0])))
  with raises_error(errors.VocabularyError, mentions="'distill'"):
    objective.load_state({}, model=None, params=None, vocabulary=None)


def test_missing_teacher_step_or_checkpoint_is_reported(
  teacher, student, tmp_path
):
  load = lambda path, step: teachers.Teacher(  # noqa: E731
    model_dir=str(path), step=step
  ).load(vocabulary=student, rows=len(student), temperature=1.0)
  with raises_error(errors.CheckpointError, got=9, mentions=(1, 2)):
    load(teacher[0], 9)
  shutil.copytree(teacher[0], tmp_path / 'empty')
  shutil.rmtree(tmp_path / 'empty' / checkpoint_reader.DIRECTORY)
  with raises_error(errors.CheckpointError, where='empty'):
    load(tmp_path / 'empty', None)


def test_teacher_with_language_specific_parameters_is_rejected(tmp_path):
  model = tiny.make_model(sharing=SharingPlan(embeddings=True))
  run_directory.write_model(tmp_path, model)
  with raises_error(errors.ConfigError, mentions='learned'):
    teachers.Teacher(model_dir=str(tmp_path)).encoder(model.config)
