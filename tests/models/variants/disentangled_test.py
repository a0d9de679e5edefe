"""Disentangled attention and its distance buckets."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from tests.models import random_parameters
from xlflax.models import encoder
from xlflax.models import encoder_config as model_config
from xlflax.models.variants import disentangled


def test_log_bucket_values():
  """Buckets are exact up to distance 4, then logarithmic, and antisymmetric."""
  distances = np.array([0, 1, 4, 5, 9, 31, -1, -4, -31])
  buckets = disentangled.log_bucket(jnp.array(distances), buckets=8, maximum=32)
  assert buckets.tolist() == [0, 1, 4, 5, 6, 7, -1, -4, -7]


def test_attention_equals_the_formula():
  rng = np.random.default_rng(0)
  query, key, value = rng.normal(size=(3, 2, 3, 2, 4)).astype(np.float32)
  relative_query, relative_key = rng.normal(size=(2, 6, 2, 4)).astype(
    np.float32
  )
  index = rng.integers(0, 6, (1, 3, 3))
  got = disentangled.disentangled_attention(
    query,
    key,
    value,
    relative_query=relative_query,
    relative_key=relative_key,
    index=jnp.array(index),
    mask=None,
  )
  want = np.zeros_like(query)
  for b in range(2):
    for n in range(2):
      scores = np.empty((3, 3))
      for i in range(3):
        for j in range(3):
          q, k, r = query[b, i, n], key[b, j, n], index[0, i, j]
          scores[i, j] = (
            q @ k + q @ relative_key[r, n] + k @ relative_query[r, n]
          ) / np.sqrt(12)
      weights = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
      want[b, :, n] = weights @ value[b, :, n]
  np.testing.assert_allclose(got, want, atol=1e-5)


def test_packed_sequences_equal_separate_sequences():
  """Positions restart in each segment."""
  model = encoder.Encoder(
    model_config.EncoderConfig(
      num_layers=1,
      hidden_dim=8,
      mlp_dim=8,
      num_heads=2,
      vocab_size=11,
      pad_vocab_size_multiple=1,
      num_languages=1,
      max_position_embeddings=16,
      position_embedding='disentangled',
      relative_buckets=4,
      relative_max_distance=16,
    )
  )
  ids = np.arange(1, 9)[None]
  params = {'params': random_parameters.draw_parameters(model)}
  encode = jax.jit(functools.partial(model.apply, method='encode'))
  full_states = encode(
    params,
    ids,
    segment_ids=np.array([[1, 1, 1, 2, 2, 2, 2, 2]]),
    positions=np.array([[0, 1, 2, 0, 1, 2, 3, 4]]),
  )
  alone = encode(params, ids[:, 3:])
  np.testing.assert_allclose(full_states[:, 3:], alone, atol=1e-5)
