"""Writes checkpoints of small models with T5X."""

import jax
import jax.numpy as jnp
import numpy as np
import seqio
from t5x import checkpoints, optimizers, partitioning, train_state
from t5x import models as t5x_models
from t5x.examples.scalable_t5 import network as scalable
from t5x.examples.t5 import network as examples

from xlflax.interop.t5x import logical_axes

_SHAPES = {
  name: (2, 9)
  for name in (
    'encoder_input_tokens',
    'decoder_input_tokens',
    'decoder_target_tokens',
  )
}
# Name -> (T5X network module, additional configuration).
_NETWORKS = {
  'v1.1': (examples, dict(mlp_activations=('gelu', 'linear'))),
  'first': (
    examples,
    dict(mlp_activations=('relu',), logits_via_embedding=True),
  ),
  'scanned': (
    scalable,
    dict(mlp_activations=('gelu', 'linear'), scan_layers=True),
  ),
  'unscanned': (
    scalable,
    dict(mlp_activations=('gelu', 'linear'), scan_layers=False),
  ),
}


def make_model(kind, rows):
  """Returns a small T5X model with `rows` embeddings."""
  network, more = _NETWORKS[kind]
  if network is scalable:
    more = more | dict(remat_policy='none')
  config = network.T5Config(
    vocab_size=rows,
    dtype=jnp.float32,
    emb_dim=12,
    num_heads=2,
    head_dim=5,
    num_encoder_layers=3,
    num_decoder_layers=2,
    mlp_dim=20,
    **more,
  )
  vocabulary = seqio.PassThroughVocabulary(rows)
  return t5x_models.EncoderDecoderModel(
    network.Transformer(config=config),
    vocabulary,
    vocabulary,
    optimizers.adamw(0.1),
  )


def _partitioner():
  return partitioning.PjitPartitioner(
    num_partitions=1,
    logical_axis_rules=(
      partitioning.standard_logical_axis_rules(
        additional_rules=logical_axes.additional_rules()
      )
    ),
  )


def save_checkpoint(model, directory, *, orbax, step=7):
  """Saves a checkpoint with T5X and returns its parameters."""
  with jax.numpy_rank_promotion('allow'):  # The layers of T5X require it.
    state = train_state.FlaxOptimTrainState.create(
      model.optimizer_def,
      model.get_initial_variables(
        jax.random.PRNGKey(2), _SHAPES, dict.fromkeys(_SHAPES, jnp.int32)
      ),
    )
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda x: jnp.asarray(rng.normal(size=x.shape, scale=0.4), jnp.float32),
    state.params,
  )
  state = state.replace_params(params).replace_step(jnp.int32(step))
  if orbax:
    manager = checkpoints.OrbaxCheckpointManagerInterface(
      str(directory), state, _partitioner()
    )
    manager.save(state)
    manager.close()
  else:
    checkpoints.Checkpointer(state, _partitioner(), str(directory)).save(state)
  return params
