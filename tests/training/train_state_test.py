"""Tests of the content and sharding of train states."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import raises_error
from tests.training import tiny
from xlflax.models import compile_targets
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import masked_lm, sentence_alignment
from xlflax.training import param_tree, train_state
from xlflax.training.devices import partitioning
from xlflax.training.optimization import optimizers
from xlflax.utils import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Queue(masked_lm.MaskedLM):
  """Objective with a queue of vectors, like momentum contrast."""

  def init_state(self, model, params, vocabulary):
    return {
      'queue': jnp.ones((4, model.config.hidden_dim)),
      'average': params['model'],
    }


def _mixture():
  return tiny.make_mixture(
    objective_mixture.WeightedObjective(dataset='mono', objective=_Queue()),
    objective_mixture.WeightedObjective(
      dataset='sides',
      objective=sentence_alignment.SentenceAlignment(projection_dim=6),
    ),
  )


@pytest.fixture(scope='module')
def sharded():
  return tiny.make_factory(
    mixture=_mixture(), partitioner=partitioning.Partitioner(fsdp=2, tensor=2)
  )


@pytest.fixture(scope='module')
def state(sharded):
  return sharded.create(jax.random.key(3))


@pytest.mark.slow
def test_state_does_not_depend_on_the_mesh(state):
  alone = tiny.make_factory(mixture=_mixture()).create(jax.random.key(3))
  assert jax.tree.structure(alone) == jax.tree.structure(state)
  names = param_tree.flatten_params(alone)
  for name, leaf in param_tree.flatten_params(state).items():
    np.testing.assert_array_equal(leaf, names[name], err_msg=name)


def test_state_has_the_planned_shardings(sharded, state):
  for leaf, abstract in zip(
    jax.tree.leaves(state),
    jax.tree.leaves(sharded.abstract_sharded),
    strict=True,
  ):
    assert (leaf.shape, leaf.dtype) == (abstract.shape, abstract.dtype)
    assert leaf.sharding.is_equivalent_to(abstract.sharding, leaf.ndim)
  table = state.params['model']['embeddings']['token']
  assert table.sharding.shard_shape(table.shape) == (32, 8)


def test_state_contains_parameters_average_and_objective_state(state):
  assert (state.step.shape, state.step.dtype, int(state.step)) == (
    (),
    jnp.int32,
    0,
  )
  assert set(state.params) == {'model', 'heads'}
  assert set(state.params['heads']) == {'align'}
  assert set(state.objective_state) == {'mlm'}
  tiny.assert_trees_equal(state.ema, state.params)
  tiny.assert_trees_equal(
    state.objective_state['mlm']['average'], state.params['model']
  )


def test_objective_state_is_sharded_like_parameters(sharded):
  objective_shardings = sharded.shardings.objective_state['mlm']
  assert objective_shardings['average'] == sharded.shardings.params['model']
  assert objective_shardings['queue'].is_fully_replicated


def test_average_and_heads_are_optional():
  factory = tiny.make_factory(use_ema=False)
  assert factory.abstract.ema == factory.shardings.ema == ()
  assert set(factory.abstract.params) == {'model'}
  assert factory.abstract.objective_state == {}


def test_buffers_are_not_shared(state):
  """Each buffer can be donated."""
  pointers = [
    shard.data.unsafe_buffer_pointer()
    for leaf in jax.tree.leaves(state)
    for shard in leaf.addressable_shards
  ]
  assert len(set(pointers)) == len(pointers)


def test_parameters_depend_on_the_seed(sharded, state):
  other = sharded.create(jax.random.key(4))

  def table(s):
    return np.asarray(s.params['model']['embeddings']['token'])

  assert not np.array_equal(table(state), table(other))


def test_entries_with_the_same_objective_share_a_head():
  objective = sentence_alignment.SentenceAlignment(projection_dim=6)
  mixture = tiny.make_mixture(
    *[
      objective_mixture.WeightedObjective(dataset=s, objective=objective)
      for s in 'ab'
    ]
  )
  params = jax.eval_shape(
    lambda: train_state.init_params(
      tiny.make_model(), mixture, jax.random.key(0)
    )
  )
  assert set(params['heads']) == {'align'}


def test_patterns_of_the_optimizer_are_checked():
  with raises_error(errors.ConfigError, got='no_such'):
    tiny.make_factory(
      optimizer=optimizers.Adam(learning_rate=0.1, frozen=('no_such',))
    )


def test_indivisible_vocabulary_is_not_sharded(warnings_logged):
  factory = tiny.make_factory(
    model=tiny.make_model(vocab_size=63),
    partitioner=partitioning.Partitioner(tensor=2),
  )
  token = factory.shardings.params['model']['embeddings']['token']
  assert token.shard_shape((63, 16)) == (63, 16)
  assert any(
    'model/embeddings/token' in m and '63' in m for m in warnings_logged()
  )


@pytest.mark.slow
def test_state_does_not_depend_on_the_optimization_level(monkeypatch):
  factory = tiny.make_factory(use_ema=False)
  states = []
  for level in (1, 3):  # 3 is the default of XLA.
    options = {'xla_backend_optimization_level': level}
    monkeypatch.setattr(compile_targets, 'single_run_options', options.copy)
    states.append(factory.create(jax.random.key(0)).params)
  tiny.assert_trees_equal(*states)


@pytest.mark.slow
def test_replaced_parameters_are_not_initialized():
  factory = tiny.make_factory(use_ema=False)
  key = jax.random.key(0)
  names = set(param_tree.flatten_params(factory.abstract.params))
  all_params = param_tree.flatten_params(factory.create(key).params)
  some = {name for name in names if name.startswith('model/layers')}
  assert some and some != names
  created_params = param_tree.flatten_params(
    factory.create(key, without=some).params
  )
  for name, values in all_params.items():
    expected = np.zeros_like(values) if name in some else values
    np.testing.assert_array_equal(created_params[name], expected, err_msg=name)
  draws = [
    jax.jit(functools.partial(factory._create, without=without))
    .lower(key)
    .compile()
    .as_text()
    .count(' xor(')  # operations that draw random bits
    for without in (set(), names)
  ]
  assert draws[0] > 0 and draws[1] == 0
