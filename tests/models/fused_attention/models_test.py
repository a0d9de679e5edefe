"""Compares models with interpreted fused attention and plain attention."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import random_parameters
from xlflax.models import encoder, encoder_decoder, encoder_decoder_config
from xlflax.models import encoder_config as model_config

_SIZES = dict(
  hidden_dim=32,
  mlp_dim=32,
  num_heads=2,
  head_dim=16,
  vocab_size=29,
  pad_vocab_size_multiple=1,
  max_position_embeddings=32,
  attention_dropout_rate=0.2,
)
_MODERN = model_config.EncoderConfig(
  **_SIZES,
  num_layers=2,
  position_embedding='rotary',
  local_attention=4,
  global_attn_every_n_layers=2,
  norm_position='pre',
  gated_mlp=True,
)
_T5 = encoder_decoder_config.EncoderDecoderConfig(
  **_SIZES, family='t5', num_encoder_layers=1, num_decoder_layers=1
)
_IDS = np.random.default_rng(0).integers(5, 29, (2, 24))
_SEGMENTS = np.array([[1] * 10 + [2] * 12 + [0] * 2, [1] * 18 + [0] * 6])


def _encoder(backend):
  """Returns an encoder with rotary positions, local layers and packing."""
  model = encoder.Encoder(
    dataclasses.replace(_MODERN, attention_backend=backend)
  )
  return model, (_IDS,), dict(segment_ids=_SEGMENTS)


def _t5(backend):
  """Returns an encoder-decoder with relative position biases."""
  model = encoder_decoder.EncoderDecoder(
    dataclasses.replace(_T5, attention_backend=backend)
  )
  inputs = dict(
    token_ids=_IDS,
    segment_ids=_SEGMENTS,
    decoder_token_ids=_IDS[:, ::-2],
    decoder_segment_ids=np.sort(_SEGMENTS[:, ::-2] > 0)[:, ::-1].astype(int),
  )
  return model, (), inputs


def _run(bound_model, params):
  model, arguments, inputs = bound_model
  text = inputs.get('decoder_segment_ids', _SEGMENTS)[..., None] > 0

  def loss(params):
    states = model.apply(
      {'params': params},
      *arguments,
      **inputs,
      deterministic=False,
      rngs={'dropout': jax.random.key(3)},
    )
    return jnp.square(jnp.where(text, jnp.tanh(states), 0)).mean()

  return jax.jit(jax.value_and_grad(loss))(params)


@pytest.mark.slow
@pytest.mark.parametrize('make', [_encoder, _t5])
def test_fused_attention_equals_plain_attention(make):
  params = random_parameters.draw_parameters(make('xla')[0], spread=0.2)
  want, got = (_run(make(backend), params) for backend in ('xla', 'fused'))
  leaves = [jax.tree.leaves(x) for x in (got, want)]
  for ours, plain in zip(*leaves, strict=True):
    bound = 1e-5 * max(1, np.abs(plain).max())
    np.testing.assert_allclose(ours, plain, atol=bound)
  assert all(np.any(leaf) for leaf in leaves[1])
