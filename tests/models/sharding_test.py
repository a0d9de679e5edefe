"""Compares a sharded encoder with one on a single device."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import random_parameters
from xlflax.models import encoder, model_params
from xlflax.models import encoder_config as model_config

_P = jax.sharding.PartitionSpec
_RULES = (
  ('batch', ('data', 'fsdp')),
  ('length', None),
  ('vocab', 'tensor'),
  ('mlp', 'tensor'),
  ('heads', 'tensor'),
  ('kv', None),
  ('embed', 'fsdp'),
  ('columns', 'fsdp'),
  ('layers', None),
  ('position', None),
  ('language', None),
  ('type', None),
  ('norm', None),
)
_MODEL = encoder.Encoder(
  model_config.EncoderConfig(
    num_layers=2,
    hidden_dim=16,
    mlp_dim=24,
    num_heads=2,
    vocab_size=95,
    pad_vocab_size_multiple=8,
    max_position_embeddings=12,
    use_language_embeddings=True,
    num_languages=3,
    type_vocab_size=2,
  )
)


def _batch():
  rng = np.random.default_rng(0)
  segments = np.sort(rng.integers(0, 3, (8, 12)))[:, ::-1]
  return dict(
    token_ids=rng.integers(0, 95, (8, 12)),
    segment_ids=segments,
    positions=rng.integers(0, 12, (8, 12)),
    language_ids=rng.integers(0, 3, (8, 12)),
    token_type_ids=rng.integers(0, 2, (8, 12)),
  )


def _loss(params, batch, key):
  """Returns a scalar loss with dropout, and the logits [8, 12, 95]."""
  logits = _MODEL.apply(
    {'params': params}, **batch, deterministic=False, rngs={'dropout': key}
  )
  return jnp.square(jax.nn.log_softmax(logits)).mean(), logits


_STEP = jax.value_and_grad(_loss, has_aux=True)


def _sharded(params, batch, key):
  """Returns loss, logits, gradients and program text on a 2x2x2 mesh."""
  mesh = jax.make_mesh(
    (2, 2, 2),
    ('data', 'fsdp', 'tensor'),
    axis_types=(jax.sharding.AxisType.Auto,) * 3,
  )
  shardings = nn.logical_to_mesh_sharding(
    nn.get_partition_spec(params), mesh, _RULES
  )
  params = jax.device_put(nn.unbox(params), shardings)
  token = params['embeddings']['token']
  assert token.addressable_shards[0].data.shape == (48, 8)
  batch = jax.device_put(
    batch, jax.sharding.NamedSharding(mesh, _P(('data', 'fsdp')))
  )
  with nn.logical_axis_rules(_RULES), jax.set_mesh(mesh):
    step = jax.jit(_STEP).lower(params, batch, key).compile()
  return step(params, batch, key), step.as_text()


def test_eight_devices_equal_one():
  params = random_parameters.boxed(_MODEL, spread=0.1)
  batch, key = _batch(), jax.random.key(1)
  want = jax.jit(_STEP)(nn.unbox(params), batch, key)
  got, text = _sharded(params, batch, key)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5, rtol=1e-4),
    got,
    want,
  )
  # No device holds all rows of the embedding table, nor a part of all rows.
  assert re.search(r'f32\[48,', text)
  assert not re.search(r'f32\[96,', text)


@pytest.mark.slow
def test_parameters_are_initialized_sharded():
  mesh = jax.make_mesh(
    (2, 2, 2),
    ('data', 'fsdp', 'tensor'),
    axis_types=(jax.sharding.AxisType.Auto,) * 3,
  )

  def init(key):
    return nn.unbox(model_params.init_params(_MODEL, key))

  boxed = jax.eval_shape(
    lambda key: model_params.init_params(_MODEL, key), jax.random.key(0)
  )
  shardings = nn.logical_to_mesh_sharding(
    nn.get_partition_spec(boxed), mesh, _RULES
  )
  with nn.logical_axis_rules(_RULES), jax.set_mesh(mesh):
    params = jax.jit(init, out_shardings=shardings)(jax.random.key(0))
  kernel = params['layers']['attention']['query']['kernel']
  assert kernel.addressable_shards[0].data.shape == (2, 8, 1, 8)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
    params,
    init(jax.random.key(0)),
  )
