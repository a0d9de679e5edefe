"""Rotary positions, local layers, gated blocks, shared keys and values."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import raises_error
from tests.models import layer_stacking
from tests.slow import mark_slow
from xlflax.models import encoder, model_params
from xlflax.models import encoder_config as model_config
from xlflax.models import encoder_decoder_config as pair_config
from xlflax.models.attention import attention_backends, rotary
from xlflax.utils import errors

_MODERN = model_config.EncoderConfig(
  num_layers=4,
  hidden_dim=12,
  mlp_dim=10,
  num_heads=3,
  vocab_size=29,
  pad_vocab_size_multiple=1,
  max_position_embeddings=12,
  position_embedding='rotary',
  rope_theta=50.0,
  local_rope_theta=9.0,
  local_attention=2,
  global_attn_every_n_layers=3,
  norm_position='pre',
  norm='scale',
  first_attention_norm=False,
  gated_mlp=True,
  attention_bias=False,
  mlp_bias=False,
  head_bias=False,
)
_EURO = dataclasses.replace(
  _MODERN,
  num_layers=2,
  num_heads=4,
  num_kv_heads=2,
  head_dim=6,
  norm='rms',
  first_attention_norm=True,
  local_attention=None,
  local_rope_theta=None,
  global_attn_every_n_layers=1,
  mlm_head='tied',
  output_bias=False,
  tie_word_embeddings=False,
  embedding_norm=False,
)
_CONFIGS = {'modern': _MODERN, 'euro': _EURO}
_IDS = np.random.default_rng(0).integers(5, 29, (2, 10))
_SEGMENTS = np.array([[1] * 4 + [2] * 5 + [0], [1] * 6 + [0] * 4])
_POSITIONS = np.array(
  [[0, 1, 2, 3, 0, 1, 2, 3, 4, 0], [0, 1, 2, 3, 4, 5, 0, 0, 0, 0]]
)


def _params(model, scale=0.3):
  """Returns random parameters, none of which is zero or one."""
  shapes = nn.unbox(
    jax.eval_shape(
      lambda key: model_params.init_params(model, key), jax.random.key(0)
    )
  )
  rng = np.random.default_rng(0)
  return jax.tree_util.tree_map_with_path(
    lambda path, leaf: (
      scale * rng.standard_normal(leaf.shape, np.float32)
      + (path[-1].key == 'scale')
    ),
    shapes,
  )


@functools.cache
def _apply(config):
  model = encoder.Encoder(config)
  return jax.jit(
    lambda params, ids, segments, positions: model.apply(
      {'params': params}, ids, segment_ids=segments, positions=positions
    )
  )


# The imported models of tests/interop also have the options of EuroBERT.
@pytest.fixture(scope='module', params=mark_slow(_CONFIGS, slow=['euro']))
def case(request):
  """Configuration, parameters and logits of packed sequences."""
  config = _CONFIGS[request.param]
  params = _params(encoder.Encoder(config))
  return (
    config,
    params,
    np.asarray(_apply(config)(params, _IDS, _SEGMENTS, _POSITIONS)),
  )


def test_scanned_equals_unrolled(case):
  config, params, want = case
  unrolled = dataclasses.replace(config, scan_layers=False)
  got = _apply(unrolled)(
    layer_stacking.unstack_layers(params), _IDS, _SEGMENTS, _POSITIONS
  )
  np.testing.assert_allclose(got, want, atol=2e-5)


def test_packed_equals_padded(case):
  config, params, want = case
  ids = np.zeros((2, 10), np.int32)
  ids[0, :4], ids[1, :5] = _IDS[0, :4], _IDS[0, 4:9]
  running = np.broadcast_to(np.arange(10), ids.shape)
  got = np.asarray(_apply(config)(params, ids, (ids > 0) * 1, running))
  np.testing.assert_allclose(got[0, :4], want[0, :4], atol=2e-5)
  np.testing.assert_allclose(got[1, :5], want[0, 4:9], atol=2e-5)


def test_missing_segments_equal_one_segment(case):
  config, params, _ = case
  model = encoder.Encoder(config)
  got = jax.jit(lambda p: model.apply({'params': p}, _IDS))(params)
  running = np.broadcast_to(np.arange(10), _IDS.shape)
  want = _apply(config)(params, _IDS, np.ones_like(_IDS), running)
  np.testing.assert_allclose(got, want, atol=2e-5)


def test_local_attention_is_limited_to_its_windows():
  config = dataclasses.replace(
    _MODERN,
    num_layers=2,
    global_attn_every_n_layers=9,
    scan_layers=False,
    first_attention_norm=True,
  )
  # The parameters of the global layer 0 are zero, which disables it.
  params = _params(encoder.Encoder(config))
  params['layers_0'] = jax.tree.map(jnp.zeros_like, params['layers_0'])
  ones, running = np.ones((2, 10), int), np.broadcast_to(np.arange(10), (2, 10))
  other = _IDS.copy()
  other[:, 5] = 5 + (other[:, 5] - 4) % 24
  change = np.abs(
    np.asarray(_apply(config)(params, _IDS, ones, running))
    - np.asarray(_apply(config)(params, other, ones, running))
  )
  is_changed = change.max((0, 2)) > 0
  np.testing.assert_array_equal(np.flatnonzero(is_changed), [3, 4, 5, 6, 7])


@pytest.mark.slow
def test_first_attention_norm_is_unused():
  params = _params(encoder.Encoder(_MODERN))
  model = encoder.Encoder(_MODERN)
  grads = jax.jit(
    jax.grad(
      lambda p: jnp.square(
        model.apply({'params': p}, _IDS, segment_ids=_SEGMENTS)
      ).mean()
    )
  )(params)
  norm = grads['layers']['attention_norm']['scale']
  assert not norm[0].any() and norm[1:].any(1).all()
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))


def test_rotary_embedding_values():
  heads = jnp.array([1.0, 2.0, 3.0, 4.0])[None, None, None]  # D = 4
  turned = rotary.apply_rotary(
    heads, rotary.rotary_angles(jnp.array([[3]]), dim=4, theta=100.0)
  )
  fast, slow = 3.0, 3.0 / 10  # angles: 3 / 100^(0/4), 3 / 100^(2/4)
  want = [
    np.cos(fast) - 3 * np.sin(fast),
    2 * np.cos(slow) - 4 * np.sin(slow),
    3 * np.cos(fast) + np.sin(fast),
    4 * np.cos(slow) + 2 * np.sin(slow),
  ]
  np.testing.assert_allclose(np.asarray(turned).ravel(), want, rtol=1e-5)


def test_rope_scaling_factor_stretches_all_periods():
  places = jnp.array([[0, 2, 4, 6]])
  stretched = rotary.rotary_angles(places, dim=4, theta=100.0, factor=2.0)
  plain = rotary.rotary_angles(places // 2, dim=4, theta=100.0)
  np.testing.assert_allclose(stretched.cos, plain.cos, rtol=1e-5)
  np.testing.assert_allclose(stretched.sin, plain.sin, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('name', mark_slow(_CONFIGS, slow=['euro']))
def test_encoder_uses_the_rope_scaling_factor(name):
  """Doubling positions and periods does not change the logits."""
  config = dataclasses.replace(
    _CONFIGS[name], max_position_embeddings=24, rope_scaling_factor=2.0, local_attention=None,
    local_rope_theta=None, global_attn_every_n_layers=1,
  )  # fmt: skip
  plain = dataclasses.replace(config, rope_scaling_factor=1.0)
  params = _params(encoder.Encoder(config))
  got = _apply(config)(params, _IDS, _SEGMENTS, 2 * _POSITIONS)
  want = _apply(plain)(params, _IDS, _SEGMENTS, _POSITIONS)
  np.testing.assert_allclose(got, want, atol=1e-5)
  other = _apply(plain)(params, _IDS, _SEGMENTS, 2 * _POSITIONS)
  assert np.abs(np.asarray(other) - want).max() > 1e-3


@pytest.mark.parametrize(
  ('biases', 'expected_layers'),
  [
    (dict(mlp_bias=False), set()),
    (dict(mlp_bias=True), {'gate', 'wi', 'wo'}),
    (dict(mlp_bias=False, mlp_output_bias=True), {'wo'}),
    (dict(mlp_bias=True, mlp_output_bias=False), {'gate', 'wi'}),
  ],
)
def test_biases_of_the_feed_forward_block(biases, expected_layers):
  config = dataclasses.replace(_MODERN, **biases)
  mlp = _params(encoder.Encoder(config))['layers']['mlp']
  assert {
    name for name, layer in mlp.items() if 'bias' in layer
  } == expected_layers


def test_rotated_dot_products_depend_only_on_distances():
  rng = np.random.default_rng(0)
  query, key = (
    jnp.asarray(rng.normal(size=(1, 1, 2, 8)), jnp.float32) for _ in range(2)
  )

  def product(i, j):
    a, b = (
      rotary.apply_rotary(
        x, rotary.rotary_angles(jnp.array([[position]]), dim=8, theta=20.0)
      )
      for x, position in ((query, i), (key, j))
    )
    return np.asarray((a * b).sum(-1))

  np.testing.assert_allclose(product(7, 3), product(4, 0), rtol=1e-4)
  assert np.abs(product(7, 3) - product(7, 4)).max() > 1e-3


def test_shared_keys_and_values_are_repeated():
  rng = np.random.default_rng(0)
  query, key, value = (
    jnp.asarray(rng.normal(size=(2, 5, heads, 6)), jnp.float32)
    for heads in (4, 2, 2)
  )
  mask = jnp.asarray((rng.random((2, 1, 5, 5)) < 0.8) | np.eye(5, dtype=bool))
  xla = model_config.AttentionBackend.XLA
  got = attention_backends.dot_product_attention(
    query, key, value, mask, backend=xla
  )
  want = attention_backends.dot_product_attention(
    query, jnp.repeat(key, 2, 2), jnp.repeat(value, 2, 2), mask, backend=xla
  )
  np.testing.assert_allclose(got, want, atol=1e-6)
  dropped = attention_backends.dot_product_attention(
    query,
    key,
    value,
    mask,
    backend=xla,
    dropout_rate=1e-9,
    dropout_key=jax.random.key(0),
  )
  np.testing.assert_allclose(dropped, want, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize('scan', [True, False])
def test_remat_does_not_change_the_loss_with_dropout(scan):
  config = dataclasses.replace(
    _MODERN, dropout_rate=0.1, dtype='bfloat16', attention_dropout_rate=0.1
  )
  config = dataclasses.replace(config, scan_layers=scan)
  params = _params(encoder.Encoder(config))
  losses = []
  for remat in ('none', 'full'):
    model = encoder.Encoder(dataclasses.replace(config, remat=remat))
    losses.append(
      float(
        jax.jit(
          lambda p, m=model: jnp.square(
            m.apply(
              {'params': p},
              _IDS,
              segment_ids=_SEGMENTS,
              deterministic=False,
              rngs={'dropout': jax.random.key(1)},
            )
          ).mean()
        )(params)
      )
    )
  assert np.isfinite(losses[0]) and losses[0] == pytest.approx(
    losses[1], rel=1e-3
  )


@pytest.mark.slow
def test_eight_devices_equal_one():
  config = dataclasses.replace(
    _MODERN,
    num_heads=2,
    pad_vocab_size_multiple=8,
    num_layers=2,
    global_attn_every_n_layers=2,
  )
  model = encoder.Encoder(config)
  rules = (
    ('batch', 'data'),
    ('vocab', 'tensor'),
    ('mlp', 'tensor'),
    ('heads', 'tensor'),
    ('embed', 'fsdp'),
    ('columns', 'fsdp'),
    ('length', None),
    ('kv', None),
    ('layers', None),
    ('norm', None),
  )
  boxed = jax.eval_shape(
    lambda key: model_params.init_params(model, key), jax.random.key(0)
  )
  params = _params(model)

  def loss(params, ids):
    return jnp.square(model.apply({'params': params}, ids)).mean()

  want = jax.jit(jax.value_and_grad(loss))(params, _IDS)
  mesh = jax.make_mesh(
    (2, 2, 2),
    ('data', 'fsdp', 'tensor'),
    axis_types=(jax.sharding.AxisType.Auto,) * 3,
  )
  sharded = jax.device_put(
    params,
    nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, rules),
  )
  with nn.logical_axis_rules(rules), jax.set_mesh(mesh):
    got = jax.jit(jax.value_and_grad(loss))(sharded, _IDS)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5, rtol=1e-4),
    got,
    want,
  )


@pytest.mark.parametrize(
  'changes, values',
  [
    (dict(head_dim=3), (3, 'EncoderConfig')),
    (dict(cross_attention=True), ('cross_attention', 'EncoderConfig')),
    (dict(num_kv_heads=2), (2, 3, 'EncoderConfig')),
    (
      dict(local_attention=None),
      ('global_attn_every_n_layers', 3, 'EncoderConfig'),
    ),
    (
      dict(norm_position='post'),
      ('first_attention_norm', 'post', 'norm_position', 'EncoderConfig'),
    ),
    (dict(rope_theta=0.0), ('0.0', 'EncoderConfig.rope_theta')),
    (dict(position_embedding='learned'), ('local_rope_theta', 'EncoderConfig')),
    (
      dict(
        position_embedding='learned',
        local_rope_theta=None,
        rope_scaling_factor=2.0,
      ),
      ('rope_scaling_factor', 'EncoderConfig'),
    ),
  ],
)
def test_incompatible_settings_are_rejected(changes, values):
  with raises_error(errors.ConfigError, mentions=values):
    dataclasses.replace(_MODERN, **changes)


def test_rotary_positions_of_decoders_are_rejected():
  with raises_error(
    errors.ConfigError,
    got='rotary',
    where='EncoderDecoderConfig.position_embedding',
  ):
    pair_config.EncoderDecoderConfig(
      family='pre_ln',
      num_encoder_layers=1,
      num_decoder_layers=1,
      hidden_dim=8,
      mlp_dim=8,
      num_heads=2,
      position_embedding='rotary',
    )


@pytest.mark.parametrize('length, works', [(10, True), (9, False)])
def test_cudnn_masks_require_even_lengths(length, works):
  case = attention_backends.Case('bfloat16', 64, length, True, 0.0, (9, 0))
  if works:
    assert (
      attention_backends.resolve_backend(
        model_config.AttentionBackend.CUDNN, case
      )
      == 'cudnn'
    )
  else:
    with raises_error(
      errors.ConfigError, where='EncoderConfig.attention_backend', mentions=9
    ):
      attention_backends.resolve_backend(
        model_config.AttentionBackend.CUDNN, case
      )
