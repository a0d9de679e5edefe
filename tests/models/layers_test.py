"""Layer norm, compared with values computed by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.models import encoder_config as model_config
from xlflax.models import layers

_SIZES = dict(
  num_layers=1, hidden_dim=4, mlp_dim=6, num_heads=2, max_position_embeddings=5
)


def _config(**changes):
  return model_config.EncoderConfig(**_SIZES | dict(vocab_size=7) | changes)


def test_layer_norm_values():
  norm = layers.LayerNorm(_config(layer_norm_epsilon=1e-30))
  params = {'scale': jnp.asarray([1.0, 2, 3, 4]), 'bias': jnp.ones(4)}
  outputs = norm.apply({'params': params}, jnp.asarray([[5.0, 7, 5, 7]]))
  np.testing.assert_allclose(outputs, [[0, 3, -2, 5]], atol=1e-5)


def test_layer_norm_is_exact_for_large_means():
  # The variance is computed from centered values. E[x²] - E[x]² would be 0.
  norm = layers.LayerNorm(_config())
  states = jnp.asarray([[1.0, 3, 1, 3]]) + 2e4
  variables = norm.init(jax.random.key(0), states)
  np.testing.assert_allclose(
    norm.apply(variables, states), [[-1, 1, -1, 1]], atol=1e-3
  )
