"""Compares T5 layers with transformers and NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers.models.t5 import modeling_t5

from xlflax.models import encoder_decoder_config
from xlflax.models.variants import t5_layers


def _config(**fields):
  return encoder_decoder_config.EncoderDecoderConfig(
    **dict(
      family='t5',
      num_encoder_layers=1,
      num_decoder_layers=1,
      hidden_dim=8,
      mlp_dim=12,
      num_heads=2,
      layer_norm_epsilon=1e-6,
    )
    | fields
  )


@pytest.mark.parametrize('causal', [True, False])
@pytest.mark.parametrize('rows,farthest', [(32, 128), (8, 20)])
def test_relative_buckets_equal_transformers(causal, rows, farthest):
  """The distances are -299 to 299."""
  config = _config(relative_buckets=rows, relative_max_distance=farthest)
  places = jnp.arange(300)
  got = t5_layers.relative_buckets(places, places, causal=causal, config=config)
  distance = torch.arange(300)[None, :] - torch.arange(300)[:, None]
  want = modeling_t5.T5Attention._relative_position_bucket(
    distance, bidirectional=not causal, num_buckets=rows, max_distance=farthest
  )
  np.testing.assert_array_equal(got, want.numpy())


def test_rms_norm_values():
  """[3, 4] has the root mean square sqrt(12.5)."""
  params = {'scale': jnp.array([1.0, 2.0])}
  got = t5_layers.RmsNorm(_config()).apply(
    {'params': params}, jnp.array([[3.0, 4.0], [0.0, 0.0]])
  )
  np.testing.assert_allclose(
    got, [[3 / 12.5**0.5, 8 / 12.5**0.5], [0, 0]], rtol=1e-5
  )


def test_gated_feed_forward_equals_numpy():
  config = _config(gated_mlp=True, activation='relu')
  layer = t5_layers.FeedForward(config)
  states = jax.random.normal(jax.random.key(0), (1, 3, 8))
  params = jax.tree.map(
    lambda box: box.value,
    layer.init(jax.random.key(1), states, deterministic=True)['params'],
    is_leaf=lambda x: hasattr(x, 'value'),
  )
  kernels = {k: np.asarray(v['kernel']) for k, v in params.items()}
  hidden = np.maximum(states @ kernels['gate'], 0) * (states @ kernels['wi'])
  np.testing.assert_allclose(
    layer.apply({'params': params}, states, deterministic=True),
    hidden @ kernels['wo'],
    atol=1e-5,
  )


def test_fully_masked_queries_return_zeros():
  layer = t5_layers.Attention(_config())
  states = jax.random.normal(jax.random.key(0), (2, 3, 8))
  mask = jnp.array([True, False])[:, None, None, None]
  mask = jnp.broadcast_to(mask, (2, 1, 3, 3))
  params = layer.init(
    jax.random.key(1), states, states, None, deterministic=True
  )
  got = layer.apply(params, states, states, mask, deterministic=True)
  assert not np.asarray(got[1]).any() and np.asarray(got[0]).all()
