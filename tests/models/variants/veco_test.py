"""The plug-in module of VECO and its equivalent implementations."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import raises_error
from tests.models import layer_stacking
from tests.objectives import veco_reference
from xlflax.models import encoder, encoder_decoder_config, model_params
from xlflax.models import encoder_config as model_config
from xlflax.models.variants import veco
from xlflax.utils import errors

_CONFIG = model_config.EncoderConfig(
  num_layers=3,
  hidden_dim=12,
  mlp_dim=20,
  num_heads=2,
  vocab_size=29,
  max_position_embeddings=12,
  cross_attention=True,
)
_RNG = np.random.default_rng(0)
# Sequences of 10 tokens that attend to a memory of 7; the second is not packed.
_X = dict(
  token_ids=_RNG.integers(5, 29, (2, 10)),
  segment_ids=np.array([[1] * 4 + [2] * 3 + [3] * 2 + [0], [1] * 10]),
  positions=np.array([[0, 1, 2, 3, 0, 1, 2, 0, 1, 0], [*range(10)]]),
)
_MEMORY = _RNG.standard_normal((2, 7, 12), np.float32)
_MEMORY_SEGMENTS = np.array([[1] * 2 + [2] * 4 + [0], [1] * 5 + [0] * 2])
# Spans of segments 1 and 2 of the first sequence; segment 3 has no memory.
_SPANS = [((0, 4), (0, 2)), ((4, 7), (2, 6))]


def _model(**changes):
  return encoder.Encoder(dataclasses.replace(_CONFIG, **changes))


@functools.cache
def _params(model):
  """Returns random parameters, none of which is zero or one."""
  shapes = nn.unbox(
    jax.eval_shape(
      lambda key: model_params.init_params(model, key), jax.random.key(0)
    )
  )
  rng = np.random.default_rng(0)
  return jax.tree_util.tree_map_with_path(
    lambda path, leaf: (
      0.3 * rng.standard_normal(leaf.shape, np.float32)
      + (path[-1].key == 'scale')
    ),
    shapes,
  )


@functools.cache
def _apply(model, method):
  return jax.jit(
    lambda params, *args, **kwargs: model.apply(
      {'params': params}, *args, method=method, **kwargs
    )
  )


def _plug_in(model, params, **changes):
  arguments = (
    dict(_X, memory=_MEMORY, memory_segment_ids=_MEMORY_SEGMENTS) | changes
  )
  return np.asarray(
    _apply(model, 'plug_in')(
      params, arguments.pop('token_ids'), arguments.pop('memory'), **arguments
    )
  )


def _without_cross_attention(params):
  return {
    **params,
    'layers': {
      name: part
      for name, part in params['layers'].items()
      if not name.startswith('cross_attention')
    },
  }


def test_plug_in_equals_the_equations():
  """Compares the second sequence with NumPy in float64."""
  params = _params(_model())
  got = _plug_in(_model(), params)[1]
  want = veco_reference.states(
    params,
    _X['token_ids'][1],
    _X['positions'][1],
    np.asarray(_MEMORY[1, :5], np.float64),
  )
  np.testing.assert_allclose(got, want, atol=1e-5)


def test_plugged_out_module_equals_a_plain_encoder():
  model, plain = _model(), _model(cross_attention=False)
  params = _params(model)
  encode = _apply(model, 'encode')
  np.testing.assert_array_equal(
    encode(params, **_X),
    _apply(plain, 'encode')(_without_cross_attention(params), **_X),
  )
  assert jax.tree.structure(
    _without_cross_attention(params)
  ) == jax.tree.structure(_params(plain))
  # The program does not use the module.
  text = encode.lower(_without_cross_attention(params), **_X).as_text()
  assert (
    text
    == _apply(plain, 'encode')
    .lower(_without_cross_attention(params), **_X)
    .as_text()
  )


def test_one_seed_initializes_common_parameters_equally():
  key = jax.random.key(3)
  with_it, plain = (
    nn.unbox(model_params.init_params(_model(cross_attention=c), key))
    for c in (True, False)
  )
  jax.tree.map(
    np.testing.assert_array_equal, _without_cross_attention(with_it), plain
  )
  kernels = with_it['layers']['cross_attention']['query']['kernel']
  np.testing.assert_allclose(kernels.std(axis=(1, 2, 3)), 0.02, rtol=0.3)
  assert (kernels[0] != kernels[1]).all()


@pytest.mark.parametrize('norm_position', ['post', 'pre'])
def test_packed_equals_padded(norm_position):
  model = _model(norm_position=norm_position)
  params = _params(model)
  packed = _plug_in(model, params)
  ids, memory = np.zeros((2, 10), int), np.zeros((2, 7, 12), np.float32)
  segments, memory_segments = np.zeros((2, 10), int), np.zeros((2, 7), int)
  for row, ((a, b), (c, d)) in enumerate(_SPANS):
    ids[row, : b - a] = _X['token_ids'][0, a:b]
    segments[row, : b - a] = 1
    memory[row, : d - c] = _MEMORY[0, c:d]
    memory_segments[row, : d - c] = 1
  padded = _plug_in(
    model,
    params,
    token_ids=ids,
    segment_ids=segments,
    memory=memory,
    positions=np.broadcast_to(np.arange(10), (2, 10)),
    memory_segment_ids=memory_segments,
  )
  for row, ((a, b), _) in enumerate(_SPANS):
    np.testing.assert_allclose(packed[0, a:b], padded[row, : b - a], atol=3e-6)


def test_segments_without_memory_attend_to_zeros():
  """The third segment does not depend on the memory of other segments."""
  params = _params(_model())
  states = _plug_in(_model(), params)
  other = _plug_in(_model(), params, memory=-2 * _MEMORY)
  np.testing.assert_array_equal(states[0, 7:9], other[0, 7:9])
  assert (states[0, :7] != other[0, :7]).any(axis=-1).all()
  silent = jax.tree.map(np.copy, params)
  silent['layers']['cross_attention']['output']['kernel'][:] = 0
  np.testing.assert_allclose(
    states[0, 7:9], _plug_in(_model(), silent)[0, 7:9], atol=1e-6
  )


def test_text_does_not_depend_on_memory_padding():
  changed = np.where(_MEMORY_SEGMENTS[..., None] == 0, 99, _MEMORY)
  text = _X['segment_ids'] > 0
  np.testing.assert_array_equal(
    _plug_in(_model(), _params(_model()), memory=changed)[text],
    _plug_in(_model(), _params(_model()))[text],
  )


def test_scanned_equals_unrolled():
  params = _params(_model())
  unrolled = layer_stacking.unstack_layers(params)
  model = _model(scan_layers=False)
  assert jax.tree.structure(unrolled) == jax.tree.structure(_params(model))
  np.testing.assert_allclose(
    _plug_in(_model(), params), _plug_in(model, unrolled), atol=1e-6
  )


def _loss(model, params, key):
  states = model.apply(
    {'params': params},
    **_X,
    memory=_MEMORY,
    deterministic=False,
    memory_segment_ids=_MEMORY_SEGMENTS,
    method='plug_in',
    rngs={'dropout': key},
  )
  return jnp.square(states[..., :5]).mean()


@pytest.mark.slow
def test_remat_does_not_change_gradients_and_dropout_uses_the_key():
  params = _params(_model())
  steps = [
    jax.jit(jax.value_and_grad(functools.partial(_loss, model)))
    for model in (_model(), _model(remat='full'))
  ]
  want, got = (step(params, jax.random.key(1)) for step in steps)
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, atol=1e-5), got, want
  )
  assert steps[0](params, jax.random.key(2))[0] != want[0]


def test_bfloat16_states_are_close_to_float32():
  params = _params(_model())
  model = _model(dtype='bfloat16')
  states = _apply(model, 'plug_in')(
    params,
    _X['token_ids'],
    _MEMORY,
    segment_ids=_X['segment_ids'],
    positions=_X['positions'],
    memory_segment_ids=_MEMORY_SEGMENTS,
  )
  assert states.dtype == jnp.bfloat16
  want = _plug_in(_model(), params)
  text = _X['segment_ids'] > 0
  difference = (np.asarray(states, np.float32) - want)[text]
  assert 0 < np.sqrt(np.mean(difference**2)) < 0.05


@pytest.mark.slow
def test_eight_devices_equal_one():
  model = _model(pad_vocab_size_multiple=8)
  rules = (
    ('batch', ('data', 'fsdp')),
    ('heads', 'tensor'),
    ('embed', 'fsdp'),
    ('columns', 'fsdp'),
    ('mlp', 'tensor'),
    ('vocab', 'tensor'),
  )
  batch = jax.tree.map(
    lambda x: np.concatenate([x] * 4),
    dict(_X, memory=_MEMORY, memory_segment_ids=_MEMORY_SEGMENTS),
  )

  def loss(params, batch):
    states = model.apply({'params': params}, **batch, method='plug_in')
    return jnp.square(states[..., :5]).mean(), states

  step = jax.value_and_grad(loss, has_aux=True)
  want = jax.jit(step)(_params(model), batch)
  mesh = jax.make_mesh(
    (2, 2, 2),
    ('data', 'fsdp', 'tensor'),
    axis_types=(jax.sharding.AxisType.Auto,) * 3,
  )
  boxed = jax.eval_shape(
    lambda key: model_params.init_params(model, key), jax.random.key(0)
  )
  shardings = nn.logical_to_mesh_sharding(
    nn.get_partition_spec(boxed), mesh, rules
  )
  params = jax.device_put(_params(model), shardings)
  kernel = params['layers']['cross_attention']['key']['kernel']
  assert kernel.addressable_shards[0].data.shape == (3, 6, 1, 6)
  batch = jax.device_put(
    batch,
    jax.sharding.NamedSharding(
      mesh, jax.sharding.PartitionSpec(('data', 'fsdp'))
    ),
  )
  with nn.logical_axis_rules(rules), jax.set_mesh(mesh):
    got = jax.jit(step)(params, batch)
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, atol=2e-5, rtol=1e-3),
    got,
    want,
  )


def _pair():
  y = dict(token_ids=_RNG.integers(5, 29, (2, 7)), segment_ids=_MEMORY_SEGMENTS)
  return _X, y


def test_pair_features():
  """Features are [H_x : S_x] and [H_y : S_y]; each S reads the other H."""
  x, y = _pair()
  model, params = _model(), _params(_model())
  got = jax.jit(
    lambda params: model.apply(
      {'params': params}, x, y, method=veco.pair_features
    )
  )(params)
  encoded_sides = [_apply(model, 'encode')(params, **side) for side in (x, y)]
  for i, (side, other) in enumerate([(x, y), (y, x)]):
    plug_in = _apply(model, 'plug_in')(
      params,
      **side,
      memory=encoded_sides[1 - i],
      memory_segment_ids=other['segment_ids'],
    )
    assert got[i].shape == (*side['token_ids'].shape, 24)
    np.testing.assert_allclose(
      got[i], jnp.concatenate([encoded_sides[i], plug_in], -1), atol=1e-5
    )


@pytest.mark.slow
def test_stop_gradient_memory():
  x, y = _pair()
  x = dict(x, positions=x['positions'] % 4)
  y = dict(y, positions=np.full((2, 7), 11))

  def gradient(stop):
    def loss(params):
      first, _ = _model().apply(
        {'params': params},
        x,
        y,
        stop_gradient_memory=stop,
        method=veco.pair_features,
      )
      return jnp.square(first[..., :15]).sum()

    return jax.jit(jax.grad(loss))(_params(_model()))['embeddings']['position']

  assert not gradient(stop=True)[11].any()
  assert gradient(stop=False)[11].any()


@pytest.mark.parametrize(
  'changes, values',
  [
    (
      dict(memory=_MEMORY[:1], memory_segment_ids=None),
      ('(2', 1, 7, 12, 'Encoder.plug_in'),
    ),
    (dict(memory=_MEMORY[..., :8]), (2, 7, 8, 10, 'Encoder.plug_in')),
    (
      dict(memory_segment_ids=np.ones((2, 10), int)),
      ('(2, 10)', 'Encoder.plug_in'),
    ),
  ],
)
def test_invalid_memory_shapes_are_rejected(changes, values):
  with raises_error(errors.ConfigError, mentions=values):
    _plug_in(_model(), _params(_model()), **changes)


def test_plug_in_requires_cross_attention():
  plain = _model(cross_attention=False)
  with raises_error(
    errors.ConfigError, where='Encoder.plug_in', mentions='cross_attention'
  ):
    _plug_in(plain, _params(plain))


def test_encoder_decoders_are_rejected():
  config = encoder_decoder_config.EncoderDecoderConfig(
    family='post_ln',
    num_encoder_layers=1,
    num_decoder_layers=1,
    hidden_dim=8,
    mlp_dim=8,
    num_heads=1,
  )
  with raises_error(
    errors.ConfigError, got='EncoderDecoderConfig', where="objective 'ca_mlm'"
  ):
    veco.check_enabled(config, where="objective 'ca_mlm'")
