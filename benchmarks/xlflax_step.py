"""xlflax's own train step, as `xlflax train` runs it, on a fixed batch."""

import jax
import numpy as np

from benchmarks import shapes
from xlflax.data import batch as batch_lib
from xlflax.data import stream as stream_lib
from xlflax.data import vocabulary_spec
from xlflax.models import config as model_config
from xlflax.models import encoder
from xlflax.objectives import masked_lm
from xlflax.objectives import mixture as mixture_lib
from xlflax.training import checkpoints
from xlflax.training import optimizers
from xlflax.training import partitioning
from xlflax.training import run_directory
from xlflax.training import setup as setup_lib
from xlflax.training import step as step_lib

CHUNK_SIZE = 8192

# Variant -> how the objective scores the vocabulary.
HEADS = {
    'gathered': dict(head=masked_lm.Head.GATHERED),
    'gathered_chunked': dict(head=masked_lm.Head.GATHERED,
                             chunk_size=CHUNK_SIZE),
    'every_chunked': dict(head=masked_lm.Head.EVERY_POSITION,
                          chunk_size=CHUNK_SIZE),
    'every': dict(head=masked_lm.Head.EVERY_POSITION),
}


def settings(shape: shapes.Shape, variant: str, **model) -> setup_lib.Settings:
  """Settings of a run of this shape; `model` overrides encoder options."""
  config = model_config.EncoderConfig(**{
      'num_layers': shape.layers, 'hidden_dim': shape.hidden,
      'mlp_dim': shape.mlp, 'num_heads': shape.heads,
      'max_length': shape.length, 'dropout_rate': shape.dropout,
      'attention_dropout_rate': shape.dropout, 'layer_norm_epsilon': 1e-5,
      'scan_layers': False, **model})
  stream = stream_lib.Stream(
      name='text', mixture='text', layout=stream_lib.Layout.BLOCKS,
      length=shape.length, batch_size=shape.batch)
  objective = masked_lm.MaskedLM(
      mask_ratio=shapes.MASK_RATIO, **HEADS[variant])
  spec = vocabulary_spec.VocabularySpec(
      size=shape.vocabulary, pad_id=shapes.PAD, bos_id=shapes.BOS,
      eos_id=shapes.EOS, unk_id=shapes.UNK, mask_id=shapes.MASK,
      special_ids=shapes.SPECIAL_IDS, languages=('en',))
  return setup_lib.Settings(
      model_dir='unused', model=encoder.Encoder(config), vocabulary=spec,
      objectives=mixture_lib.ObjectiveMixture(
          entries=(mixture_lib.Entry(stream='text', objective=objective),)),
      streams=(stream,), total_steps=1000,
      optimizer=optimizers.adamw(learning_rate=1e-4),
      corpus=None, cache_dir=None, partitioner=partitioning.Partitioner(),
      checkpoints=checkpoints.CheckpointOptions(), evaluation=None,
      init_from=None, seed=0, accumulation=1, ema_decay=None,
      non_finite=step_lib.NonFinite.STOP, log_every_steps=50, prefetch=1,
      stop_at_step=None, other_config=run_directory.OtherConfig.REFUSE)


def make(shape: shapes.Shape, variant: str, **model):
  """A function that trains one step and returns its loss.

  Args:
    shape: the sizes.
    variant: key of `HEADS`.
    **model: encoder options that differ from the usual.
  """
  setup = setup_lib.Setup(settings(shape, variant, **model))
  scope = setup.settings.partitioner.scope()
  with scope:
    kept = [setup.initial_state()]
    batch = jax.device_put(_batch(shape),
                           setup.settings.partitioner.batch_sharding)
    step = setup.jitted_step((0,))
  def call() -> float:
    with setup.settings.partitioner.scope():
      kept[0], output = step(kept[0], {'text': batch})
    jax.block_until_ready(kept[0])
    return float(output.loss)
  return call


def _batch(shape: shapes.Shape) -> dict[str, np.ndarray]:
  ids = shapes.token_ids(shape)
  positions = np.broadcast_to(
      np.arange(shape.length, dtype=np.int32), ids.shape)
  return {batch_lib.TOKEN_IDS: ids,
          batch_lib.SEGMENT_IDS: np.ones_like(ids),
          batch_lib.POSITIONS: positions,
          batch_lib.LANGUAGE_IDS: np.zeros_like(ids)}


def versions() -> dict[str, str]:
  """Of the libraries that the step runs on."""
  return {'jax': jax.__version__}
