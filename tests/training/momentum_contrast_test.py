"""Tests of the sharded, saved and initialized state of momentum contrast."""

import jax
import numpy as np
import pytest

from tests.training import tiny
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining.momentum_contrast import MoCoQueue
from xlflax.objectives.pretraining.sentence_alignment import SentenceAlignment
from xlflax.training import train_step
from xlflax.training.checkpointing import checkpoint_reader, checkpoints
from xlflax.training.devices import partitioning
from xlflax.training.initialization import init_from as initialization
from xlflax.training.optimization import optimizers

MIXTURE = objective_mixture.ObjectiveMixture(
  entries=(
    objective_mixture.WeightedObjective(
      dataset='sides',
      objective=SentenceAlignment(
        queue=MoCoQueue(size=24, momentum=0.9),
        direction='forward',
        pooling='first',
        projection_dim=8,
      ),
    ),
  )
)
_OPTIMIZER = optimizers.AdamW(learning_rate=0.01)


def _batch(seed):
  first, second = (tiny.make_batch(seed=2 * seed + i) for i in (0, 1))
  return {**first, **{f'paired_{k}': v for k, v in second.items()}}


def _factory(partitioner):
  return tiny.make_factory(
    mixture=MIXTURE,
    optimizer=_OPTIMIZER,
    partitioner=partitioner,
    use_ema=False,
    model=tiny.make_model(num_layers=1, scan_layers=False),
  )


def _trained(partitioner, steps=4):
  """Returns a state after steps of 8 pairs, in which the queue of 24 wraps."""
  factory = _factory(partitioner)
  builder = train_step.TrainStepBuilder(
    model=tiny.make_model(num_layers=1, scan_layers=False),
    mixture=MIXTURE,
    optimizer=_OPTIMIZER,
    vocabulary=tiny.SPEC,
    seed=0,
  )
  step = jax.jit(
    builder.build((0,)),
    donate_argnums=0,
    out_shardings=(factory.shardings, partitioner.replicated),
  )
  state, losses = factory.create(jax.random.key(0)), []
  with partitioner.scope():
    for i in range(steps):
      state, output = step(
        state, {'sides': jax.device_put(_batch(i), partitioner.batch_sharding)}
      )
      losses.append(float(output.loss))
  return factory, state, losses


@pytest.fixture(scope='module')
def sharded():
  return _trained(partitioning.Partitioner(data=2, fsdp=2, tensor=2))


@pytest.fixture(scope='module')
def single():
  return _trained(tiny.one_device())


@pytest.mark.slow
def test_sharded_state_equals_one_device(sharded, single):
  _, state, losses = sharded
  _, expected_state, wanted_losses = single
  np.testing.assert_allclose(losses, wanted_losses, rtol=1e-4)
  key_encoder, wanted_kept = (
    s.objective_state['align'] for s in (state, expected_state)
  )
  assert int(key_encoder['pointer']) == 8
  np.testing.assert_array_equal(
    key_encoder['queue']['prints'], wanted_kept['queue']['prints']
  )
  np.testing.assert_allclose(
    key_encoder['queue']['keys'], wanted_kept['queue']['keys'], atol=2e-3
  )
  for a, b in zip(
    jax.tree.leaves(key_encoder['key_encoder']),
    jax.tree.leaves(wanted_kept['key_encoder']),
    strict=True,
  ):
    np.testing.assert_allclose(a, b, atol=1e-3)


@pytest.mark.slow
def test_key_encoder_is_sharded_like_the_parameters(sharded):
  factory, state, _ = sharded
  encoder = state.objective_state['align']['key_encoder']
  spread = 0
  for tree in (
    factory.shardings.objective_state['align']['key_encoder'],
    jax.tree.map(lambda x: x.sharding, encoder),
  ):
    for part in ('model', 'heads'):
      assert jax.tree.all(
        jax.tree.map(
          lambda a, b: a.spec == b.spec,
          tree[part],
          factory.shardings.params[part],
        )
      )
  for leaf in jax.tree.leaves(encoder):
    spread += not leaf.sharding.is_fully_replicated
  assert spread > 5  # kernels and embeddings, including the head
  assert not encoder['heads']['align']['inner'][
    'kernel'
  ].sharding.is_fully_replicated


@pytest.mark.slow
def test_checkpoint_restores_queue_pointer_and_key_encoder(sharded, tmp_path):
  """The state is restored bit-exactly on the same mesh and on one device."""
  factory, state, _ = sharded
  saved = checkpoints.Checkpoints(tmp_path)
  saved.save(state, {})
  saved.wait()
  restored = saved.restore_last(factory).state
  tiny.assert_trees_equal(restored.objective_state, state.objective_state)
  alone = saved.restore_last(_factory(tiny.one_device())).state
  tiny.assert_trees_equal(alone.objective_state, state.objective_state)
  names = checkpoint_reader.saved_shapes(
    checkpoint_reader.checkpoint_path(tmp_path, 4)
  )
  assert not any('key_encoder' in n or 'queue' in n for n in names)
  saved.close()


@pytest.mark.slow
def test_key_encoder_is_initialized_from_the_run_of_the_parameters(
  single, tmp_path
):
  """The state shares no buffers, so that it can be donated."""
  factory, state, _ = single
  saved = checkpoints.Checkpoints(tmp_path)
  saved.save(state, {})
  saved.close()
  fresh = factory.create(jax.random.key(1))
  fresh = initialization.initialize_from_runs(
    initialization.InitFromCheckpoint(model_dir=str(tmp_path)), fresh, factory
  )
  key_encoder = factory.create_objective_state(fresh.params)['align']
  tiny.assert_trees_equal(key_encoder['key_encoder'], state.params)
  pointers = [
    leaf.unsafe_buffer_pointer()
    for leaf in jax.tree.leaves((fresh.params, key_encoder))
  ]
  assert len(set(pointers)) == len(pointers)
