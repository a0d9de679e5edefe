"""Equivalent implementations, masks and gradients of encoder-decoders."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import raises_error
from tests.models import layer_stacking, random_parameters
from tests.slow import mark_slow
from xlflax.models import (
  encoder,
  encoder_decoder,
  encoder_decoder_config,
  model_params,
)
from xlflax.training.devices import partitioning
from xlflax.utils import errors

_SIZES = dict(
  num_encoder_layers=3,
  num_decoder_layers=2,
  hidden_dim=16,
  mlp_dim=24,
  num_heads=2,
  vocab_size=30,
  max_position_embeddings=16,
)
_KINDS = {
  'post_ln': dict(
    family='post_ln',
    use_language_embeddings=True,
    num_languages=3,
    type_vocab_size=1,
  ),
  'tied': dict(family='post_ln', tie_decoder=True),
  'pre_ln': dict(
    family='pre_ln',
    position_offset=2,
    scale_embeddings=True,
    tie_word_embeddings=False,
  ),
  't5': dict(
    family='t5',
    gated_mlp=True,
    activation='gelu_tanh',
    tie_word_embeddings=False,
    pad_vocab_size_multiple=8,
  ),
  'umt5': dict(family='t5', per_layer_relative_bias=True, activation='relu'),
}
_RNG = np.random.default_rng(0)
_SOURCE = _RNG.integers(3, 30, (8, 7))
_SEGMENTS = np.array([[1] * 7, [1] * 4 + [0] * 3] * 4)
_TARGET = _RNG.integers(3, 30, (8, 5))
_TARGET_SEGMENTS = np.array([[1] * 3 + [0] * 2, [1] * 5] * 4)
_LANGUAGES = dict(language_ids=np.full((8, 7), 1))
_TARGET_LANGUAGES = dict(language_ids=np.full((8, 5), 2))


def _model(kind, **changes):
  return encoder_decoder.EncoderDecoder(
    encoder_decoder_config.EncoderDecoderConfig(
      **_SIZES | _KINDS[kind] | changes
    )
  )


def _inputs(kind):
  has_languages = _KINDS[kind].get('use_language_embeddings')
  result = dict(
    token_ids=_SOURCE,
    segment_ids=_SEGMENTS,
    decoder_token_ids=_TARGET,
    decoder_segment_ids=_TARGET_SEGMENTS,
  )
  if has_languages:
    result |= dict(
      language_ids=np.full((8, 7), 1), decoder_language_ids=np.full((8, 5), 2)
    )
  return result


@pytest.fixture
def trees():
  """Fixture that returns boxed parameters with non-uniform logits."""
  return lambda kind: random_parameters.boxed(_model(kind), spread=0.25)


@functools.cache
def _jitted(model, method, static):
  return jax.jit(
    lambda p, a, k: model.apply(
      {'params': p}, *a, method=method, **k, **dict(static)
    )
  )


def _call(model, params, method, *args, static=(), **kwargs):
  return _jitted(model, method, static)(nn.unbox(params), args, kwargs)


def _loss(model):
  def loss(params, inputs, key):
    logits = model.apply(
      {'params': params}, **inputs, deterministic=False, rngs={'dropout': key}
    )
    text = (_TARGET_SEGMENTS > 0)[..., None]
    logits = jnp.where(text, jax.nn.log_softmax(logits), 0)
    return jnp.square(logits).mean(), logits

  return jax.value_and_grad(loss, has_aux=True)


@pytest.mark.slow
@pytest.mark.parametrize(
  'kind', ['t5', pytest.param('post_ln', marks=pytest.mark.slow)]
)
def test_sharded_equals_one_device(trees, kind):
  model, boxed = _model(kind), trees(kind)
  params, key = nn.unbox(boxed), jax.random.key(1)
  want = jax.jit(_loss(model))(params, _inputs(kind), key)
  partitioner = partitioning.Partitioner(data=2, fsdp=2, tensor=2)
  placed = jax.device_put(params, partitioner.shardings(boxed))
  with partitioner.scope():
    got = jax.jit(_loss(model))(
      placed, jax.device_put(_inputs(kind), partitioner.batch_sharding), key
    )
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=3e-5, rtol=2e-4),
    got,
    want,
  )
  _assert_nonzero_gradients(want[1])


def _assert_nonzero_gradients(gradients):
  for path, gradient in jax.tree_util.tree_leaves_with_path(gradients):
    # The key bias adds a constant to all scores of a query.
    assert 'key' in str(path) or np.abs(gradient).max() > 1e-9, path


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['tied', 'umt5'])
def test_scanned_equals_unrolled_with_remat(trees, kind):
  scanned = nn.unbox(trees(kind))
  unrolled = {
    name: layer_stacking.unstack_layers(leaf) for name, leaf in scanned.items()
  }
  model = _model(
    kind,
    scan_layers=False,
    remat='full',
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
  )
  fresh = nn.unbox(
    jax.eval_shape(lambda: model_params.init_params(model, jax.random.key(0)))
  )
  assert jax.tree.map(jnp.shape, unrolled) == jax.tree.map(
    lambda x: x.shape, fresh
  )
  (_, want), gradients = jax.jit(
    _loss(_model(kind, dropout_rate=0.0, attention_dropout_rate=0.0))
  )(scanned, _inputs(kind), jax.random.key(0))
  (_, got), other_outputs = jax.jit(_loss(model))(
    unrolled, _inputs(kind), jax.random.key(0)
  )
  np.testing.assert_allclose(got, want, atol=1e-5, rtol=1e-5)
  _assert_nonzero_gradients(gradients)
  other_outputs = {
    name: layer_stacking.stack_layers(leaf)
    for name, leaf in other_outputs.items()
  }
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-3),
    other_outputs,
    gradients,
  )


@pytest.mark.parametrize(
  'kind',
  mark_slow(
    ['post_ln', 'tied', 'pre_ln', 't5', 'umt5'], slow=['tied', 'pre_ln', 't5']
  ),
)
def test_cached_steps_equal_complete_sequences(trees, kind):
  model, params = _model(kind), nn.unbox(trees(kind))
  inputs = _inputs(kind)
  languages = inputs.get('decoder_language_ids')
  memory = _call(
    model,
    params,
    'encode',
    **{k: v for k, v in inputs.items() if not k.startswith('decoder')},
  )
  want = _call(
    model,
    params,
    'decode',
    _TARGET,
    memory,
    memory_segment_ids=_SEGMENTS,
    language_ids=languages,
  )
  cache = _call(
    model,
    params,
    'start_decoding',
    memory[::2],
    static=(('length', 6), ('rows_per_memory', 2)),
    memory_segment_ids=_SEGMENTS[::2],
  )
  step = jax.jit(
    lambda t, c, i: model.apply(
      {'params': params},
      t,
      c,
      i,
      method='decode_step',
      language_ids=None if languages is None else languages[:, :1],
    )
  )
  # Sequences 0 and 1 of the cache read sequence 0 of the memory, and so on.
  target = np.repeat(_TARGET[::2], 2, axis=0)
  for i in range(5):
    states, cache = step(target[:, i : i + 1], cache, i)
    np.testing.assert_allclose(
      states[:, 0], np.repeat(want[::2, i], 2, axis=0), atol=1e-5
    )
  assert np.abs(want).max() > 1


def test_decoder_masks_later_tokens_and_memory_padding(trees):
  model, params = _model('t5'), trees('t5')
  memory = _call(model, params, 'encode', _SOURCE, segment_ids=_SEGMENTS)
  want = _call(
    model, params, 'decode', _TARGET, memory, memory_segment_ids=_SEGMENTS
  )
  later = _TARGET.copy()
  later[:, 3:] = 3
  other_memory = jnp.where((_SEGMENTS > 0)[..., None], memory, 7.0)
  got = _call(
    model, params, 'decode', later, other_memory, memory_segment_ids=_SEGMENTS
  )
  np.testing.assert_allclose(got[:, :3], want[:, :3], atol=1e-6)
  assert np.abs(got - want)[:, 4].max() > 1e-2
  decoded = _call(
    model, params, 'decode', _TARGET, memory + 1, memory_segment_ids=_SEGMENTS
  )
  assert np.abs(decoded - want).max() > 1e-2


def _pack(rows, first, second, width):
  """Packs two sequences; returns ids, segments and positions with padding."""
  lengths = first, second
  ids = np.concatenate([rows[0, :first], rows[1, :second]])
  segments = np.repeat([1, 2], lengths)
  positions = np.concatenate([np.arange(n) for n in lengths])
  return [
    np.pad(x, (0, width - len(x)))[None] for x in (ids, segments, positions)
  ]


@pytest.mark.parametrize('kind', mark_slow(['pre_ln', 'umt5'], slow=['umt5']))
def test_packed_equals_padded(trees, kind):
  model, params = _model(kind), trees(kind)
  want = _call(model, params, '__call__', **_inputs(kind))
  source = _pack(_SOURCE, 7, 4, 13)
  target = _pack(_TARGET, 3, 5, 10)
  got = _call(
    model,
    params,
    '__call__',
    source[0],
    segment_ids=source[1],
    positions=source[2],
    decoder_token_ids=target[0],
    decoder_segment_ids=target[1],
    decoder_positions=target[2],
  )
  np.testing.assert_allclose(got[0, :3], want[0, :3], atol=2e-5)
  np.testing.assert_allclose(got[0, 3:8], want[1], atol=2e-5)


def test_encoder_equals_a_standalone_encoder(trees):
  model, params = _model('post_ln'), nn.unbox(trees('post_ln'))
  alone = encoder.Encoder(model.config.encoder)
  layers = _call(
    model, params, 'encode_layers', _SOURCE, segment_ids=_SEGMENTS, **_LANGUAGES
  )
  np.testing.assert_array_equal(
    layers,
    _call(
      alone,
      params['encoder'],
      'encode_layers',
      _SOURCE,
      segment_ids=_SEGMENTS,
      **_LANGUAGES,
    ),
  )
  assert layers.shape == (4, 8, 7, 16)


@pytest.mark.parametrize('kind', ['t5', 'umt5'])
def test_t5_encoder_layers_include_embeddings_and_states(trees, kind):
  model, params = _model(kind), trees(kind)
  layers = _call(model, params, 'encode_layers', _SOURCE)
  assert layers.shape == (4, 8, 7, 16)
  np.testing.assert_allclose(
    layers[-1], _call(model, params, 'encode', _SOURCE), atol=1e-6
  )
  np.testing.assert_array_equal(
    layers[0], nn.unbox(params)['encoder']['token'][_SOURCE]
  )


def test_tied_decoder_equals_the_plug_in_of_an_encoder(trees):
  """For sequences of one token, causal masks have no effect."""
  model = _model('tied', num_decoder_layers=3)
  params = random_parameters.draw_parameters(model, spread=0.25)
  veco = encoder.Encoder(
    dataclasses.replace(model.config.encoder, cross_attention=True)
  )
  merged = params['encoder'] | {
    'layers': params['encoder']['layers'] | params['decoder']['layers']
  }
  memory = _call(model, params, 'encode', _SOURCE, segment_ids=_SEGMENTS)
  got = _call(
    model,
    params,
    'decode',
    _TARGET[:, :1],
    memory,
    memory_segment_ids=_SEGMENTS,
  )
  want = _call(
    veco,
    merged,
    'plug_in',
    _TARGET[:, :1],
    memory,
    memory_segment_ids=_SEGMENTS,
  )
  np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize(
  'which,layers',
  [('first', (0, 1)), pytest.param('last', (1, 2), marks=pytest.mark.slow)],
)
def test_shallow_tied_decoder_uses_the_first_or_last_layers(
  trees, which, layers
):
  model, params = _model('tied', tied_layers=which), nn.unbox(trees('tied'))
  memory = _call(model, params, 'encode', _SOURCE)

  def total(encoder_layers):
    tree = params | {'encoder': params['encoder'] | {'layers': encoder_layers}}
    return jnp.square(
      model.apply({'params': tree}, _TARGET, memory, method='decode')[..., 0]
    ).sum()

  gradient = jax.jit(jax.grad(total))(params['encoder']['layers'])
  sizes = np.abs(gradient['mlp']['wi']['kernel']).max((1, 2))
  assert set(np.flatnonzero(sizes)) == set(layers)


def test_dropout_only_in_training(trees):
  model, params = _model('t5'), nn.unbox(trees('t5'))

  def logits(seed, deterministic):
    return model.apply(
      {'params': params},
      **_inputs('t5'),
      deterministic=deterministic,
      rngs={'dropout': jax.random.key(seed)},
    )

  logits = jax.jit(logits, static_argnums=1)
  np.testing.assert_array_equal(logits(0, True), logits(1, True))
  assert np.abs(logits(0, False) - logits(1, False)).max() > 1e-2


def test_logits_equal_states_times_output_table(trees):
  for kind in ('t5', 'pre_ln', 'umt5'):
    model, params = _model(kind), trees(kind)
    states = jax.random.normal(jax.random.key(0), (4, 16))
    table, bias = _call(model, params, 'output_table')
    hidden = _call(model, params, 'transform', states)
    logits = _call(model, params, 'logits', states)
    np.testing.assert_allclose(
      logits, (hidden @ table.T + bias[None])[:, :30], atol=1e-5
    )
    assert (table.shape, logits.shape) == (
      (model.config.table_size, 16),
      (4, 30),
    )
    assert (np.asarray(bias)[30:] < -1e8).all()


def test_sequences_longer_than_the_model_are_rejected(trees):
  for kind in ('t5', 'pre_ln'):
    with raises_error(errors.ConfigError, mentions=17):
      _call(_model(kind), trees(kind), 'encode', np.zeros((1, 17), 'int32'))
