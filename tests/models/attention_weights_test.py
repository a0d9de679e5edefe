"""Attention weights of an encoder for analyses."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import raises_error
from tests.slow import mark_slow
from xlflax.models import encoder, encoder_config
from xlflax.models.attention import attention_weights
from xlflax.utils import errors

_TOKENS = np.array([[1, 5, 6, 2], [1, 7, 2, 0]], np.int32)
_SEGMENTS = np.array([[1, 1, 1, 1], [1, 1, 1, 0]], np.int32)


def _model(**fields):
  config = encoder_config.EncoderConfig(
    vocab_size=16,
    num_layers=2,
    hidden_dim=8,
    mlp_dim=16,
    num_heads=2,
    max_position_embeddings=8,
    **fields,
  )
  return encoder.Encoder(config)


def _softmax(scores):
  weights = np.exp(scores - scores.max(-1, keepdims=True))
  return weights / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize('scan_layers', mark_slow([True, False], slow=[True]))
def test_weights_equal_numpy(scan_layers):
  model = _model(scan_layers=scan_layers)
  params = nn.unbox(model.init(jax.random.key(0), _TOKENS))['params']
  params = jax.tree.map(lambda x: 20 * x if x.ndim > 1 else x, params)
  weights = attention_weights.compute_attention_weights(
    model, params, _TOKENS, segment_ids=_SEGMENTS
  )
  assert weights.shape == (2, 2, 2, 4, 4)
  embedded = np.asarray(
    model.apply(
      {'params': params}, _TOKENS, segment_ids=_SEGMENTS, method='encode_layers'
    )
  )
  for layer in range(2):
    attention = (
      jax.tree.map(lambda x, i=layer: x[i], params['layers'])
      if scan_layers
      else params[f'layers_{layer}']
    )['attention']
    query, key = (
      np.einsum('bth,hnd->btnd', embedded[layer], attention[name]['kernel'])
      + np.asarray(attention[name]['bias'])
      for name in ('query', 'key')
    )
    scores = np.einsum('btnd,bsnd->bnts', query, key) / 2  # Heads of width 4.
    visible = _SEGMENTS[:, None, :, None] == _SEGMENTS[:, None, None, :]
    expected = _softmax(np.where(visible, scores, -1e9))
    np.testing.assert_allclose(weights[layer], expected, atol=1e-5)
  assert weights.std() > 0.05


def test_recording_weights_does_not_change_states():
  model = _model()
  params = model.init(jax.random.key(0), _TOKENS)
  assert set(params) == {'params'}
  states, _ = model.apply(
    params, _TOKENS, method='encode', mutable=[attention_weights.COLLECTION]
  )
  np.testing.assert_array_equal(
    states, model.apply(params, _TOKENS, method='encode')
  )


def test_disentangled_attention_is_rejected():
  model = _model(position_embedding='disentangled')
  with raises_error(
    errors.ConfigError, mentions="position_embedding='disentangled'"
  ):
    attention_weights.compute_attention_weights(model, {}, jnp.asarray(_TOKENS))
