"""Tests of splash attention against plain attention with segments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.baselines import splash_attention
from xlflax.models.attention import attention_backends, masks


def _arrays():
  keys = jax.random.split(jax.random.key(0), 3)
  return tuple(jax.random.normal(key, (2, 128, 2, 64)) for key in keys)


@pytest.mark.slow
def test_splash_attention_equals_plain_attention():
  segments = jnp.repeat(jnp.asarray([[1, 2], [3, 3]], jnp.int32), 64, axis=1)
  mask = masks.Mask(segments, segments, sees_itself=True)

  def run(function, arrays):
    def total(arrays):
      return jnp.square(function(*arrays, mask)).sum()

    return jax.value_and_grad(total)(arrays)

  def splash(*given):
    return splash_attention.compute_attention(
      *given, bias=None, scale=0.125, dropout_rate=0.1, dropout_key=None
    )

  def plain(*given):
    return attention_backends.dot_product_attention(
      *given,
      backend=attention_backends.encoder_config.AttentionBackend.XLA,
      scale=0.125,
    )

  actual, expected = (run(f, _arrays()) for f in (splash, plain))
  for a, b in zip(*map(jax.tree.leaves, (actual, expected)), strict=True):
    np.testing.assert_allclose(a, b, atol=1e-3, rtol=1e-4)


def test_splash_attention_rejects_dropout():
  with pytest.raises(ValueError, match='dropout'):
    splash_attention.compute_attention(
      *_arrays(),
      masks.Mask(),
      bias=None,
      scale=1.0,
      dropout_rate=0.1,
      dropout_key=jax.random.key(0),
    )
