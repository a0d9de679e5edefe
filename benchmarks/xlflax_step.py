"""An xlflax training step on a fixed batch, jitted as in `xlflax train`."""

from typing import NamedTuple

import jax
import numpy as np
from flax import linen as nn

from benchmarks import shapes
from xlflax.data import batch_keys
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.models import encoder, encoder_config, model_params
from xlflax.objectives import objective_base, objective_mixture
from xlflax.objectives.pretraining import masked_lm
from xlflax.training import train_state, train_step
from xlflax.training.devices import flops, partitioning
from xlflax.training.optimization import optimizers

CHUNK_SIZE = 8192

# Variant -> options of the objective for scoring the vocabulary.
HEADS = {
  'gathered': dict(logit_positions=masked_lm.LogitPositions.MASKED),
  'gathered_chunked': dict(
    logit_positions=masked_lm.LogitPositions.MASKED, chunk_size=CHUNK_SIZE
  ),
  'every_chunked': dict(
    logit_positions=masked_lm.LogitPositions.ALL, chunk_size=CHUNK_SIZE
  ),
  'every': dict(logit_positions=masked_lm.LogitPositions.ALL),
}


class Training(NamedTuple):
  """A jitted training step and its inputs. Call the step inside `scope()`.

  Attributes:
    step: Jitted training step.
    state: Initial training state, whose buffers the first step donates.
    batches: Map from dataset name to batch.
    partitioner: Partitioner for the state and the batches.
  """

  step: jax.stages.Wrapped
  state: train_state.TrainState
  batches: dict[str, batch_keys.Batch]
  partitioner: partitioning.Partitioner


def prepare_training(shape: shapes.Shape, variant: str, **options) -> Training:
  """Creates the training step, the initial state and the batches of a run.

  Args:
    shape: Sizes of the model and the batch.
    variant: Vocabulary head to use, a key of `HEADS`.
    **options: Fields of `EncoderConfig` that override the defaults.
  """
  model = encoder.Encoder(_make_config(shape, **options))
  mixture = objective_mixture.ObjectiveMixture(
    entries=(
      objective_mixture.WeightedObjective(
        dataset='text', objective=_make_objective(variant)
      ),
    )
  )
  optimizer = optimizers.AdamW(learning_rate=1e-4, clip_norm=1.0)
  spec = _make_vocabulary(shape)
  partitioner = partitioning.Partitioner()
  factory = train_state.StateFactory(
    model, mixture, optimizer, spec, partitioner, use_ema=False
  )
  builder = train_step.TrainStepBuilder(
    model=model, mixture=mixture, optimizer=optimizer, vocabulary=spec, seed=0
  )
  step = jax.jit(
    builder.build((0,)),
    donate_argnums=0,
    out_shardings=(factory.shardings, partitioner.replicated),
  )
  batch = jax.device_put(_make_batch(shape), partitioner.batch_sharding)
  return Training(
    step, factory.create(jax.random.key(0)), {'text': batch}, partitioner
  )


def count_model_flops(shape: shapes.Shape, variant: str = 'gathered') -> int:
  """Returns the model FLOPs of one training step without running it."""
  model, spec = encoder.Encoder(_make_config(shape)), _make_vocabulary(shape)
  objective = _make_objective(variant)
  params = jax.eval_shape(
    lambda: nn.meta.unbox(
      {'model': model_params.init_params(model, jax.random.key(0)), 'heads': {}}
    )
  )
  batch = jax.eval_shape(lambda: _make_batch(shape))

  def loss(params, batch):
    return objective(
      model,
      params,
      batch,
      objective_base.ObjectiveContext(
        vocabulary=spec,
        step=jax.numpy.int32(0),
        train=True,
        rng=jax.random.key(0),
      ),
    ).loss.total

  return flops.count_training_step(loss, params, batch)


def make_step_function(shape: shapes.Shape, variant: str, **options):
  """Returns a function that trains one step and returns its loss.

  Args:
    shape: Sizes of the model and the batch.
    variant: Vocabulary head to use, a key of `HEADS`.
    **options: Fields of `EncoderConfig` that override the defaults.
  """
  training = prepare_training(shape, variant, **options)
  state = [training.state]
  batches, partitioner, step = (
    training.batches,
    training.partitioner,
    training.step,
  )
  del training  # The first step donates the state.

  def call() -> float:
    with partitioner.scope():
      state[0], output = step(state[0], batches)
    jax.block_until_ready(state[0])
    return float(output.loss)

  return call


def _make_objective(variant: str) -> masked_lm.MaskedLM:
  return masked_lm.MaskedLM(mask_ratio=shapes.MASK_RATIO, **HEADS[variant])


def _make_config(
  shape: shapes.Shape, **options
) -> encoder_config.EncoderConfig:
  return encoder_config.EncoderConfig(
    **{
      'num_layers': shape.layers,
      'hidden_dim': shape.hidden,
      'mlp_dim': shape.mlp,
      'num_heads': shape.heads,
      'max_position_embeddings': shape.length,
      'dropout_rate': shape.dropout,
      'attention_dropout_rate': shape.dropout,
      'layer_norm_epsilon': 1e-5,
      'vocab_size': shape.vocabulary,
      'num_languages': 1,
      **options,
    }
  )


def _make_vocabulary(shape: shapes.Shape) -> vocabulary_spec.VocabularySpec:
  return vocabulary_spec.VocabularySpec(
    size=shape.vocabulary,
    pad_id=shapes.PAD,
    bos_id=shapes.BOS,
    eos_id=shapes.EOS,
    unk_id=shapes.UNK,
    mask_id=shapes.MASK,
    special_ids=shapes.SPECIAL_IDS,
    languages=('en',),
  )


def _make_batch(shape: shapes.Shape) -> batch_keys.Batch:
  """Returns a batch of full sequences, each with a single segment."""
  ids = shapes.make_token_ids(shape)
  positions = np.broadcast_to(
    np.arange(shape.length, dtype=np.int32), ids.shape
  )
  return {
    batch_keys.TOKEN_IDS: ids,
    batch_keys.SEGMENT_IDS: np.ones_like(ids),
    batch_keys.POSITIONS: positions,
    batch_keys.LANGUAGE_IDS: np.zeros_like(ids),
  }


def library_versions() -> dict[str, str]:
  """Returns the versions of the libraries that the training step uses."""
  return {'jax': jax.__version__}
