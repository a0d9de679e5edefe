"""Equivalent implementations of the encoder."""

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
from xlflax.training.devices import flops
from xlflax.utils import errors

_CONFIG = model_config.EncoderConfig(
  num_layers=3,
  hidden_dim=12,
  mlp_dim=20,
  num_heads=3,
  vocab_size=29,
  pad_vocab_size_multiple=1,
  max_position_embeddings=12,
)
_IDS = np.random.default_rng(0).integers(5, 29, (2, 10))
_SEGMENTS = np.array([[1] * 4 + [2] * 3 + [3] * 2 + [0], [1] * 6 + [0] * 4])
_POSITIONS = np.array(
  [[0, 1, 2, 3, 0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 4, 5, 0, 0, 0, 0]]
)


def _model(**changes):
  return encoder.Encoder(dataclasses.replace(_CONFIG, **changes))


def _params(model, seed=0):
  """Returns random parameters, none of which is zero or one."""
  shapes = nn.unbox(
    jax.eval_shape(
      lambda key: model_params.init_params(model, key), jax.random.key(seed)
    )
  )
  rng = np.random.default_rng(seed)
  return jax.tree_util.tree_map_with_path(
    lambda path, leaf: (
      0.2 * rng.standard_normal(leaf.shape, np.float32)
      + (path[-1].key == 'scale')
    ),
    shapes,
  )


@functools.cache
def _apply(model, method):
  """Returns a compiled function of parameters and arrays."""
  return jax.jit(
    lambda params, *args, **kwargs: model.apply(
      {'params': params}, *args, method=method, **kwargs
    )
  )


def _states(model, params, ids=_IDS, segments=_SEGMENTS, positions=_POSITIONS):
  """Returns the states of all layers, [L + 1, B, T, H]."""
  return np.asarray(
    _apply(model, 'encode_layers')(
      params, ids, segment_ids=segments, positions=positions
    )
  )


@functools.cache
def _training_loss(model):
  """Returns a function of parameters and dropout key with a scalar loss."""

  def loss(params, key):
    logits = model.apply(
      {'params': params},
      _IDS,
      segment_ids=_SEGMENTS,
      positions=_POSITIONS,
      deterministic=False,
      rngs={'dropout': key},
    )
    return jnp.square(jax.nn.log_softmax(logits)).mean()

  return jax.jit(jax.value_and_grad(loss))


@pytest.fixture(scope='module')
def params():
  return _params(_model())


def test_scanned_equals_unrolled(params):
  unrolled = layer_stacking.unstack_layers(params)
  want = _params(_model(scan_layers=False))
  assert jax.tree.structure(unrolled) == jax.tree.structure(want)
  np.testing.assert_allclose(
    _states(_model(), params),
    _states(_model(scan_layers=False), unrolled),
    atol=1e-6,
  )


@pytest.mark.parametrize('norm_position', ['post', 'pre'])
def test_packed_equals_padded(norm_position):
  model = _model(norm_position=norm_position)
  params = _params(model)
  packed = _states(model, params)
  ids = np.zeros((3, 10), np.int32)
  spans = [(0, 4), (4, 7), (7, 9)]
  for row, (start, stop) in enumerate(spans):
    ids[row, : stop - start] = _IDS[0, start:stop]
  running = np.broadcast_to(np.arange(10), ids.shape)
  padded = _states(model, params, ids, (ids > 0).astype(int), running)
  for row, (start, stop) in enumerate(spans):
    np.testing.assert_allclose(
      packed[:, 0, start:stop], padded[:, row, : stop - start], atol=2e-6
    )


def test_default_positions_start_at_zero(params):
  running = np.broadcast_to(np.arange(10), _IDS.shape)
  want = _states(_model(), params, positions=running)
  got = _apply(_model(), '__call__')(params, _IDS, segment_ids=_SEGMENTS)
  logits = _apply(_model(), 'logits')(params, want[-1])
  np.testing.assert_allclose(got, logits, atol=1e-5)


def test_text_does_not_depend_on_padding(params):
  other = np.where(_SEGMENTS == 0, 7, _IDS)
  text = _SEGMENTS > 0
  np.testing.assert_array_equal(
    _states(_model(), params, other)[:, text],
    _states(_model(), params)[:, text],
  )


def test_zeroed_padding_does_not_change_text_states(params):
  zeroed = _states(_model(zero_padding_states=True), params)
  text = _SEGMENTS > 0
  assert not zeroed[:, ~text].any()
  np.testing.assert_allclose(
    zeroed[:, text], _states(_model(), params)[:, text], atol=1e-6
  )


def test_padding_sequence_has_finite_states_and_gradients(params):
  segments = np.zeros_like(_SEGMENTS)

  def loss(params):
    states = _model().apply(
      {'params': params}, _IDS, segment_ids=segments, method='encode'
    )
    return jnp.square(states[..., 0]).sum()

  value, gradient = jax.jit(jax.value_and_grad(loss))(params)
  assert all(np.isfinite(x).all() for x in jax.tree.leaves((value, gradient)))


@pytest.mark.parametrize(
  'changes',
  [
    dict(remat='minimal'),
    pytest.param(dict(remat='full'), marks=pytest.mark.slow),
  ],
)
def test_remat_does_not_change_loss_and_gradients(params, changes):
  key = jax.random.key(1)
  want = _training_loss(_model())(params, key)
  got = _training_loss(_model(**changes))(params, key)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5),
    got,
    want,
  )


def test_save_hidden_recomputes_one_matmul_per_layer(params):
  """'full' recomputes all matmuls, and 'minimal' recomputes none."""
  products = {}
  for remat in ('none', 'minimal', 'save_hidden', 'full'):
    function = _training_loss(_model(remat=remat))
    traced = jax.make_jaxpr(function)(params, jax.random.key(1))
    products[remat] = sum(
      e.primitive.name == 'dot_general'
      and not e.params['dimension_numbers'][1][0]
      for e in flops.iterate_equations(traced.jaxpr)
    )
  assert products['minimal'] == products['none']
  assert products['save_hidden'] == products['minimal'] + 1
  assert products['full'] > products['save_hidden']


def test_bfloat16_states_are_close_to_float32(params):
  model = _model(dtype='bfloat16')
  states = _apply(model, 'encode')(
    params, _IDS, segment_ids=_SEGMENTS, positions=_POSITIONS
  )
  logits = _apply(model, 'logits')(params, states)
  assert states.dtype == jnp.bfloat16
  assert logits.dtype == jnp.float32
  fresh = jax.eval_shape(
    lambda key: model_params.init_params(model, key), jax.random.key(0)
  )
  assert {leaf.dtype.name for leaf in jax.tree.leaves(fresh)} == {'float32'}
  text = _SEGMENTS > 0
  difference = (np.asarray(states, np.float32) - _states(_model(), params)[-1])[
    text
  ]
  assert 0 < np.sqrt(np.mean(difference**2)) < 0.03


def test_encode_layers_includes_embeddings_and_states():
  model = _model(norm_position='pre')
  params = _params(model)
  layers = _states(model, params)
  assert layers.shape == (4, 2, 10, 12)
  states = _apply(model, 'encode')(
    params, _IDS, segment_ids=_SEGMENTS, positions=_POSITIONS
  )
  np.testing.assert_allclose(layers[-1], states, atol=1e-6)
  # Two equal tokens at equal positions have equal embeddings.
  ids = np.where(_POSITIONS == 0, 9, _IDS)
  embedded = _states(model, params, ids)[0]
  np.testing.assert_array_equal(embedded[0, 0], embedded[0, 4])


def test_logits_equal_transformed_states_times_tied_table(params):
  model = _model()
  states = jax.random.normal(jax.random.key(2), (5, 12))
  hidden = _apply(model, 'transform')(params, states)
  table, bias = _apply(model, 'output_table')(params)
  np.testing.assert_array_equal(table, params['embeddings']['token'])
  np.testing.assert_array_equal(bias, params['output_bias'])
  np.testing.assert_allclose(
    _apply(model, 'logits')(params, states),
    np.asarray(hidden) @ table.T + bias[None],
    atol=1e-5,
  )
  assert np.abs(hidden - states).max() > 0.1
  tied = _model(mlm_head='tied')
  np.testing.assert_array_equal(
    _apply(tied, 'transform')(params, states), states
  )


def test_padded_vocabulary_is_not_predicted(params):
  model = _model(pad_vocab_size_multiple=16)
  extra = {'token': jnp.ones((3, 12)), 'bias': jnp.full(3, 50.0)}
  wide = dict(
    params, output_bias=jnp.concatenate([params['output_bias'], extra['bias']])
  )
  wide['embeddings'] = dict(
    params['embeddings'],
    token=jnp.concatenate([params['embeddings']['token'], extra['token']]),
  )
  table, bias = _apply(model, 'output_table')(wide)
  assert table.shape == (32, 12)
  assert (bias[29:] == -1e9).all()
  states = jax.random.normal(jax.random.key(2), (5, 12))
  np.testing.assert_allclose(
    _apply(model, 'logits')(wide, states),
    _apply(_model(), 'logits')(params, states),
    atol=1e-6,
  )


@pytest.mark.slow
@pytest.mark.parametrize('tied', mark_slow([True, False], slow=[False]))
def test_vocabulary_padding_does_not_change_parameters_and_loss(tied):
  """The padded embeddings are zero."""
  plain = _model(tie_word_embeddings=tied)
  padded = _model(tie_word_embeddings=tied, pad_vocab_size_multiple=128)
  before, after = (
    nn.unbox(jax.jit(functools.partial(model_params.init_params, model))(key))
    for model, key in ((plain, jax.random.key(0)), (padded, jax.random.key(0)))
  )
  names = {'token', 'output', 'output_bias'}
  for (path, short), long in zip(
    jax.tree_util.tree_leaves_with_path(before),
    jax.tree.leaves(after),
    strict=True,
  ):
    if path[-1].key in names:
      assert long.shape[0] == 128
      assert not long[len(short) :].any()
    np.testing.assert_array_equal(short, long[: len(short)])
  losses = [
    float(_training_loss(model)(params, jax.random.key(0))[0])
    for model, params in ((plain, before), (padded, after))
  ]
  assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_layers_draw_different_dropout_masks():
  # Each block has a constant output, so each layer adds its scaled mask.
  model = _model(norm_position='pre', dropout_rate=0.5, embedding_norm=False)
  params = jax.tree.map(np.zeros_like, _params(model))
  params['layers']['mlp']['wo']['bias'] = np.ones((3, 12), np.float32)
  states = jax.jit(
    lambda params: model.apply(
      {'params': params},
      _IDS,
      deterministic=False,
      method='encode_layers',
      rngs={'dropout': jax.random.key(0)},
    )
  )(params)
  first, second = states[1] - states[0], states[2] - states[1]
  for mask in (first, second):
    assert set(np.unique(mask)) == {0, 2}
  assert 0.3 < (first != second).mean() < 0.7


def test_dropout_depends_on_the_key(params):
  step = _training_loss(_model())
  losses = [float(step(params, jax.random.key(seed))[0]) for seed in (0, 0, 1)]
  assert losses[0] == losses[1] != losses[2]


def test_missing_vocab_size_is_rejected():
  model = _model(vocab_size=None)
  with raises_error(errors.ConfigError, where='EncoderConfig.vocab_size'):
    model_params.init_params(model, jax.random.key(0))


def test_count_params(params):
  shapes = jax.eval_shape(
    lambda key: model_params.init_params(_model(), key), jax.random.key(0)
  )
  layer = 4 * (12 * 12 + 12) + 2 * 12 * 20 + 20 + 12 + 4 * 12
  head = 12 * 12 + 3 * 12 + 29
  count = (29 + 12 + 2) * 12 + 3 * layer + head
  for tree in (shapes, params):
    assert model_params.count_params(tree) == count
