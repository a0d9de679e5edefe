"""Sequence-to-sequence objectives with encoder-decoders and shards."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.models import random_parameters
from tests.objectives import encoder_decoder_fake as fake
from xlflax.models import encoder_decoder, encoder_decoder_config
from xlflax.objectives import objective_base
from xlflax.objectives.pretraining.denoising import (
  SpanCorruption,
  TextInfilling,
)
from xlflax.objectives.pretraining.seq2seq import Translation

_SIZES = dict(
  num_encoder_layers=1,
  num_decoder_layers=1,
  hidden_dim=8,
  mlp_dim=16,
  num_heads=2,
  vocab_size=fake.SPEC.size,
  pad_vocab_size_multiple=8,
  num_languages=3,
  max_position_embeddings=16,
)


@pytest.fixture(scope='module')
def blocks():
  rng = np.random.default_rng(3)
  return fake.batch_of(
    [
      [fake.text(rng, n) for n in lines]
      for lines in ([5, 8], [13], [4, 2, 3], [2], [7, 4], [1], [9], [12])
    ],
    16,
    [0, 1, 2, 0, 1, 2, 0, 1],
  )


@pytest.mark.parametrize(
  'fields',
  [
    dict(family='post_ln'),
    dict(
      family='t5',
      gated_mlp=True,
      tie_word_embeddings=False,
      embedding_norm=True,
    ),
  ],
)
def test_translation_loss_equals_model_logits(fields):
  """Computes the smoothed loss from the logits of the model."""
  model = encoder_decoder.EncoderDecoder(
    encoder_decoder_config.EncoderDecoderConfig(**_SIZES, **fields)
  )
  params = {'model': random_parameters.draw_parameters(model, spread=0.1)}
  batch, context = fake.pair_batch(), fake.context(train=False)
  inputs = np.zeros_like(batch['paired_token_ids'])
  for b, start in enumerate([6, 7, 6, 0, 5]):
    tokens = fake.filled(batch['paired_token_ids'][b])
    if tokens:
      inputs[b, : len(tokens) - 1] = [start, *tokens[1:-1]]
  segments = (inputs > 0).astype(np.int32)

  @jax.jit
  def run(params):
    output = Translation()(model, params, batch, context)
    logits = model.apply(
      {'params': params['model']},
      batch['token_ids'],
      decoder_token_ids=inputs,
      segment_ids=batch['segment_ids'],
      decoder_segment_ids=segments,
    )
    return output, jax.nn.log_softmax(logits)

  output, log_p = run(params)
  assert log_p.shape[-1] == fake.SPEC.size
  total = 0.0
  for b, row in enumerate(batch['paired_token_ids']):
    for t, label in enumerate(fake.filled(row)[1:]):
      total -= 0.9 * log_p[b, t, label] + 0.1 * log_p[b, t].mean()
  np.testing.assert_allclose(output.loss.total, total, rtol=1e-4)


def _sharded(batch):
  mesh = Mesh(np.array(jax.devices()), ('data',))
  return jax.device_put(batch, NamedSharding(mesh, PartitionSpec('data')))


@pytest.mark.parametrize(
  'objective',
  [SpanCorruption(), pytest.param(TextInfilling(), marks=pytest.mark.slow)],
  ids=lambda o: o.name,
)
def test_sharded_equals_one_device(objective, blocks):
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5),
    fake.run(objective, _sharded(blocks), fake.context()),
    fake.run(objective, blocks, fake.context()),
  )


@pytest.mark.parametrize(
  'objective', [SpanCorruption(), TextInfilling()], ids=lambda o: o.name
)
def test_corruption_needs_no_communication(objective, blocks):
  batch = _sharded(blocks)
  rows = batch['token_ids'].sharding

  def corrupt(batch):
    source, target, _ = objective.rows(
      batch,
      objective_base.ObjectiveContext(
        vocabulary=fake.SPEC,
        step=jnp.int32(0),
        train=True,
        rng=jax.random.key(0),
      ),
      jax.random.key(0),
    )
    return source['token_ids'], target['token_ids']

  text = jax.jit(corrupt, out_shardings=rows).lower(batch).compile().as_text()
  assert 'sort' in text
  for collective in ('all-gather', 'all-to-all', 'collective-permute'):
    assert collective not in text
