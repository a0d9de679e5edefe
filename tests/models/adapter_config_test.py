"""Adapters: their configuration, parameters and outputs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax.sharding import PartitionSpec as P

from tests.slow import mark_slow
from tests.training import tiny
from xlflax.models import adapter_config, adapter_layers, model_params
from xlflax.models.heads import transformer_head
from xlflax.training import param_tree
from xlflax.training.checkpointing import config_serialization
from xlflax.training.devices import partitioning
from xlflax.utils import errors

_LORA = adapter_config.LoRA(
  name='task', rank=3, alpha=6.0, target_modules=('query', 'output', 'wi', 'wo')
)


def _params(model, seed=0):
  return nn.unbox(model_params.init_params(model, jax.random.key(seed)))


def _randomized(params, seed=1):
  """Returns parameters with random instead of zero adapter parameters."""
  rng = np.random.default_rng(seed)
  return param_tree.map_named(
    lambda name, leaf: (
      jnp.asarray(rng.normal(0, 0.1, leaf.shape), leaf.dtype)
      if adapter_config.adapter_name(name)
      else leaf
    ),
    params,
  )


def _encode(model, params, **inputs):
  batch = tiny.make_batch()
  return model.apply(
    {'params': params},
    batch['token_ids'],
    segment_ids=batch['segment_ids'],
    method='encode',
    **inputs,
  )


def _without_adapters(params):
  named = param_tree.flatten_params(params)
  return param_tree.unflatten_params(
    {n: v for n, v in named.items() if adapter_config.adapter_name(n) is None}
  )


def test_adapters_are_disabled_by_default():
  model = tiny.make_model()
  assert model.config.adapters is None
  assert not any(
    map(adapter_config.adapter_name, param_tree.flatten_params(_params(model)))
  )


@pytest.mark.parametrize('scan', mark_slow([True, False], slow=[True]))
def test_initial_lora_model_equals_its_base(scan):
  base = tiny.make_model(scan_layers=scan)
  model = tiny.make_model(scan_layers=scan, adapters=_LORA)
  params = _params(model)
  tiny.assert_trees_equal(_without_adapters(params), _params(base))
  np.testing.assert_array_equal(
    _encode(model, params), _encode(base, _params(base))
  )


def test_lora_parameter_shapes():
  shapes = param_tree.param_shapes(_params(tiny.make_model(adapters=_LORA)))
  lora = {n: s for n, s in shapes.items() if adapter_config.adapter_name(n)}
  # 2 layers, 2 heads of width 8, width 16, feed-forward width 32, rank 3.
  assert lora == {
    'layers/attention/query/adapters_task/lora_a': (2, 16, 3),
    'layers/attention/query/adapters_task/lora_b': (2, 3, 2, 8),
    'layers/attention/output/adapters_task/lora_a': (2, 2, 8, 3),
    'layers/attention/output/adapters_task/lora_b': (2, 3, 16),
    'layers/mlp/wi/adapters_task/lora_a': (2, 16, 3),
    'layers/mlp/wi/adapters_task/lora_b': (2, 3, 32),
    'layers/mlp/wo/adapters_task/lora_a': (2, 32, 3),
    'layers/mlp/wo/adapters_task/lora_b': (2, 3, 16),
  }


def test_lora_adds_the_scaled_product_to_the_kernel():
  model = tiny.make_model(adapters=_LORA)
  params = _randomized(_params(model))
  expected = _without_adapters(params)
  layers = params['layers']
  for block, module, pattern in (
    ('attention', 'query', 'lir,lrnd->lind'),
    ('attention', 'output', 'lndr,lro->lndo'),
    ('mlp', 'wi', 'lir,lro->lio'),
    ('mlp', 'wo', 'lir,lro->lio'),
  ):
    update = layers[block][module]['adapters_task']
    expected['layers'][block][module]['kernel'] += 2.0 * np.einsum(
      pattern, update['lora_a'], update['lora_b']
    )
  np.testing.assert_allclose(
    _encode(model, params),
    _encode(tiny.make_model(), expected),
    rtol=1e-4,
    atol=1e-5,
  )


@pytest.mark.slow
def test_lora_dropout_is_used_only_in_training():
  lora = dataclasses.replace(_LORA, dropout_rate=0.5)
  model = tiny.make_model(adapters=lora)
  params = _randomized(_params(model))
  plain = _encode(tiny.make_model(adapters=_LORA), params)
  keys = {'dropout': jax.random.key(0)}
  np.testing.assert_array_equal(_encode(model, params, rngs=keys), plain)
  dropped = _encode(model, params, rngs=keys, deterministic=False)
  assert np.abs(dropped - plain).max() > 1e-3


def test_transformer_head_has_no_adapters():
  config = tiny.make_model(adapters=_LORA).config
  assert transformer_head.make_head_config(config, 16).adapters is None


def test_adapter_configuration_round_trips_through_json():
  config = tiny.make_model(
    adapters=(_LORA, adapter_config.LoRA(name='sw', frozen=True))
  ).config
  description = config_serialization.to_json_config(config)
  assert config_serialization.from_json_config(description) == config


def test_patterns_select_trained_adapters_and_heads():
  adapters = (_LORA, adapter_config.LoRA(name='sw', frozen=True))
  (trainable,) = adapter_config.trainable_patterns(adapters)
  names = {
    'heads/tagging/output/kernel': True,
    'model/layers/attention/query/adapters_task/lora_a': True,
    'model/layers/attention/query/adapters_sw/lora_a': False,
    'model/layers/attention/query/kernel': False,
    'model/output_bias': False,
  }
  for name, expected in names.items():
    assert param_tree.matches_pattern((trainable,), name) is expected, name


@pytest.mark.parametrize(
  'make',
  [
    lambda: adapter_config.LoRA(target_modules=('attention',)),
    lambda: adapter_config.LoRA(target_modules=()),
    lambda: adapter_config.LoRA(name='a/b'),
    lambda: adapter_config.LoRA(rank=0),
    lambda: tiny.make_model(adapters=(_LORA, _LORA)),
    lambda: tiny.make_model(adapters='lora'),
  ],
)
def test_invalid_configurations_are_rejected(make):
  with pytest.raises(errors.ConfigError):
    make()


_BOTTLENECK = adapter_config.Bottleneck(name='sw', reduction_factor=4)


@pytest.mark.slow
@pytest.mark.parametrize('scan', mark_slow([True, False], slow=[True]))
@pytest.mark.parametrize('norm_position', ['post', 'pre'])
def test_initial_bottleneck_model_equals_its_base(scan, norm_position):
  fields = dict(scan_layers=scan, norm_position=norm_position)
  base = tiny.make_model(**fields)
  adapters = (dataclasses.replace(_BOTTLENECK, invertible=True), _LORA)
  model = tiny.make_model(adapters=adapters, **fields)
  params = _params(model)
  tiny.assert_trees_equal(_without_adapters(params), _params(base))
  tokens = tiny.make_batch()['token_ids']
  np.testing.assert_allclose(
    model.apply({'params': params}, tokens),
    base.apply({'params': _params(base)}, tokens),
    rtol=1e-6,
    atol=1e-6,
  )


@pytest.mark.parametrize('norm_position', ['post', 'pre'])
def test_stacked_bottlenecks_equal_numpy(norm_position):
  """Computes one layer in NumPy; only its feed-forward block is adapted."""
  task = adapter_config.Bottleneck(
    name='task', reduction_factor=8, activation='tanh'
  )
  fields = dict(num_layers=1, scan_layers=False, norm_position=norm_position)
  model = tiny.make_model(adapters=(_BOTTLENECK, task), **fields)
  params = jax.tree.map(np.asarray, _randomized(_params(model)))
  layer = params['layers_0']
  assert layer['adapters_sw']['down']['kernel'].shape == (16, 4)
  assert layer['adapters_task']['up']['kernel'].shape == (2, 16)

  def norm(states, name='mlp_norm'):
    mean = states.mean(-1, keepdims=True)
    variance = states.var(-1, keepdims=True)
    normed = (states - mean) / np.sqrt(variance + 1e-12)
    scale = params[name] if name == 'final_norm' else layer[name]
    return normed * scale['scale'] + scale['bias']

  def linear(states, weights):
    return states @ np.asarray(weights['kernel']) + weights['bias']

  # The input and output of the block are recorded from the model.
  recorded = {}

  def record(next_fun, args, kwargs, context):
    output = next_fun(*args, **kwargs)
    if context.method_name == '__call__' and context.module.name == 'mlp':
      recorded['input'], recorded['output'] = args[0], output
    if context.method_name == 'attention_block':
      recorded['states'] = output
    return output

  with nn.intercept_methods(record):
    actual = _encode(model, params)
  is_post = norm_position == 'post'
  x, f = np.asarray(recorded['states']), np.asarray(recorded['output'])
  for name, activation in (
    ('sw', lambda h: np.maximum(h, 0)),
    ('task', np.tanh),
  ):
    weights = layer[f'adapters_{name}']
    h = norm(x + f) if is_post else x + f
    f = f + linear(activation(linear(h, weights['down'])), weights['up'])
  expected = norm(x + f) if is_post else norm(x + f, 'final_norm')
  np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
  assert np.abs(f - np.asarray(recorded['output'])).max() > 1e-3


def test_inverse_of_an_invertible_adapter():
  config = tiny.make_model(adapters=_BOTTLENECK, hidden_dim=17, num_heads=1)
  module = adapter_layers.InvertibleAdapter(config.config, _BOTTLENECK)
  states = jax.random.normal(jax.random.key(0), (2, 3, 17))
  params = nn.unbox(module.init(jax.random.key(1), states))
  params = jax.tree.map(
    lambda leaf: 0.3 * jax.random.normal(jax.random.key(2), leaf.shape), params
  )
  outputs = module.apply(params, states)
  assert np.abs(outputs - states).max() > 0.1
  np.testing.assert_allclose(
    module.apply(params, outputs, method='inverse'), states, atol=1e-5
  )


def test_logits_use_the_inverse_of_the_last_adapter_first():
  adapters = tuple(
    adapter_config.Bottleneck(name=name, invertible=True)
    for name in ('first', 'second')
  )
  model = tiny.make_model(adapters=adapters, mlm_head='tied')
  params = _randomized(_params(model))
  states = jax.random.normal(jax.random.key(0), (2, 16))
  expected = states
  for adapter in reversed(adapters):
    expected = adapter_layers.InvertibleAdapter(model.config, adapter).apply(
      {'params': params[f'adapters_{adapter.name}']}, expected, method='inverse'
    )
  actual = model.apply({'params': params}, states, method='transform')
  np.testing.assert_allclose(actual, expected, rtol=1e-6)
  assert np.abs(actual - states).max() > 1e-2


def test_unknown_activation_is_rejected():
  with pytest.raises(errors.ConfigError):
    adapter_config.Bottleneck(activation='step')


@pytest.mark.slow
def test_lora_is_sharded_like_its_kernel():
  mesh = partitioning.Partitioner(fsdp=4, tensor=2)
  factory = tiny.make_factory(
    model=tiny.make_model(adapters=_LORA), partitioner=mesh
  )
  layers = factory.shardings.params['model']['layers']
  query, wo = layers['attention']['query'], layers['mlp']['wo']
  assert query['kernel'].spec == P(None, 'fsdp', 'tensor', None)
  assert query['adapters_task']['lora_a'].spec == P(None, 'fsdp', None)
  assert query['adapters_task']['lora_b'].spec == P(None, None, 'tensor', None)
  assert wo['adapters_task']['lora_a'].spec == P(None, 'tensor', None)
  assert wo['adapters_task']['lora_b'].spec == P(None, None, 'fsdp')
