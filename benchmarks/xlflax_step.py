"""xlflax's own train step, jitted as `xlflax train` does, on a fixed batch."""

from typing import NamedTuple

import jax
import numpy as np
from flax import linen as nn

from benchmarks import shapes
from xlflax.data import batch_keys as batch_lib
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.models import encoder, model_params
from xlflax.models import encoder_config as model_config
from xlflax.objectives import objective_base
from xlflax.objectives import objective_mixture as mixture_lib
from xlflax.objectives.pretraining import masked_lm
from xlflax.training import train_state, train_step
from xlflax.training.devices import flops, partitioning
from xlflax.training.optimization import optimizers

CHUNK_SIZE = 8192

# Variant -> how the objective scores the vocabulary.
HEADS = {
  'gathered': dict(logit_positions=masked_lm.LogitPositions.GATHERED),
  'gathered_chunked': dict(
    logit_positions=masked_lm.LogitPositions.GATHERED, chunk_size=CHUNK_SIZE
  ),
  'every_chunked': dict(
    logit_positions=masked_lm.LogitPositions.EVERY_POSITION,
    chunk_size=CHUNK_SIZE,
  ),
  'every': dict(logit_positions=masked_lm.LogitPositions.EVERY_POSITION),
}


class Training(NamedTuple):
  """A jitted step and what it is called with, inside `scope()`."""

  step: jax.stages.Wrapped
  state: train_state.TrainState
  batches: dict[str, batch_lib.Batch]
  partitioner: partitioning.Partitioner


def prepare_training(shape: shapes.Shape, variant: str, **options) -> Training:
  """Everything for training steps of this shape.

  Args:
    shape: the sizes.
    variant: key of `HEADS`.
    **options: of `EncoderConfig`, where they differ from the usual.
  """
  model = encoder.Encoder(_make_config(shape, **options))
  mixture = mixture_lib.ObjectiveMixture(
    entries=(
      mixture_lib.WeightedObjective(
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
  """FLOPs of one step's forward and backward pass; nothing is computed."""
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
  """A function that trains one step and returns its loss; see `prepare`."""
  training = prepare_training(shape, variant, **options)
  kept = [training.state]
  batches, partitioner, step = (
    training.batches,
    training.partitioner,
    training.step,
  )
  del training  # the state is donated to the first step

  def call() -> float:
    with partitioner.scope():
      kept[0], output = step(kept[0], batches)
    jax.block_until_ready(kept[0])
    return float(output.loss)

  return call


def _make_objective(variant: str) -> masked_lm.MaskedLM:
  return masked_lm.MaskedLM(mask_ratio=shapes.MASK_RATIO, **HEADS[variant])


def _make_config(shape: shapes.Shape, **options) -> model_config.EncoderConfig:
  return model_config.EncoderConfig(
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


def _make_batch(shape: shapes.Shape) -> batch_lib.Batch:
  ids = shapes.make_token_ids(shape)
  positions = np.broadcast_to(
    np.arange(shape.length, dtype=np.int32), ids.shape
  )
  return {
    batch_lib.TOKEN_IDS: ids,
    batch_lib.SEGMENT_IDS: np.ones_like(ids),
    batch_lib.POSITIONS: positions,
    batch_lib.LANGUAGE_IDS: np.zeros_like(ids),
  }


def library_versions() -> dict[str, str]:
  """Of the library that the step runs on."""
  return {'jax': jax.__version__}
