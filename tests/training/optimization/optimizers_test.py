"""Tests of weight decay, frozen parameters and sharded optimizer states."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from tests.errors import assert_mentions, raises_error
from tests.slow import mark_slow
from tests.training import tiny
from xlflax.training import param_tree, train_state
from xlflax.training.devices import partitioning
from xlflax.training.optimization import optimizers, schedules
from xlflax.utils import errors

_EVERYTHING = dict(
  norm_position='pre', use_language_embeddings=True, type_vocab_size=2
)


@pytest.fixture(scope='module')
def params():
  """Parameters of an encoder with all components, set to one."""
  boxed = jax.eval_shape(
    lambda: train_state.init_params(
      tiny.make_model(**_EVERYTHING), tiny.make_mixture(), jax.random.key(0)
    )
  )
  return jax.tree.map(
    lambda x: jnp.ones(x.shape, x.dtype), nn.meta.unbox(boxed)
  )


def _step(optimizer, params, grads):
  """Returns the parameters after one update."""
  transform = optimizer.transform
  updates, _ = jax.jit(transform.update)(
    grads, jax.jit(transform.init)(params), params
  )
  return optax.apply_updates(params, updates)


def _zeros(tree):
  return jax.tree.map(jnp.zeros_like, tree)


def _moved(old, new):
  return {
    n
    for n, leaf in param_tree.flatten_params(new).items()
    if not np.array_equal(leaf, param_tree.flatten_params(old)[n])
  }


def test_biases_and_norms_are_not_decayed(params):
  """With a gradient of zero, only decayed parameters change."""
  optimizer = optimizers.AdamW(learning_rate=0.1, weight_decay=0.5)
  moved = _moved(params, _step(optimizer, params, _zeros(params)))
  assert moved == {
    n
    for n in param_tree.flatten_params(params)
    if n.endswith('/kernel')
    or n
    in (
      'model/embeddings/token',
      'model/embeddings/position',
      'model/embeddings/token_type',
      'model/embeddings/language',
    )
  }
  remaining = set(param_tree.flatten_params(params)) - moved
  assert {n.rsplit('/', 1)[-1] for n in remaining} == {
    'bias',
    'scale',
    'output_bias',
  }


def test_adafactor_does_not_decay_biases_and_norms():
  params = {
    'norm': {'scale': jnp.ones(3), 'bias': jnp.ones(3)},
    'dense': {'kernel': jnp.ones((3, 3)), 'bias': jnp.ones(3)},
  }
  optimizer = optimizers.Adafactor(learning_rate=0.1, weight_decay=0.5)
  assert _moved(params, _step(optimizer, params, _zeros(params))) == {
    'dense/kernel'
  }


def test_adamw_step_equals_a_value_computed_by_hand():
  """In the first step, the bias-corrected moments are g and g^2."""
  params = {'kernel': jnp.float32(2.0)}
  optimizer = optimizers.AdamW(
    learning_rate=0.1, eps=1e-30, weight_decay=0.01, clip_norm=None
  )
  new = _step(optimizer, params, {'kernel': jnp.float32(4.0)})
  assert float(new['kernel']) == pytest.approx(2 - 0.1 * (1 + 0.01 * 2))


def test_gradients_are_clipped_by_the_global_norm():
  """eps makes Adam's step depend on the size: g / (g + eps)."""
  params = {'a': jnp.float32(0.0), 'b': jnp.float32(0.0)}
  grads = {'a': jnp.float32(30.0), 'b': jnp.float32(40.0)}
  new = _step(
    optimizers.Adam(learning_rate=1.0, eps=1.0, clip_norm=1.0), params, grads
  )
  assert float(new['a']) == pytest.approx(-0.6 / 1.6, rel=1e-4)
  assert float(new['b']) == pytest.approx(-0.8 / 1.8, rel=1e-4)
  new = _step(optimizers.Adam(learning_rate=1.0, eps=1.0), params, grads)
  assert float(new['a']) == pytest.approx(-30 / 31, rel=1e-4)


@pytest.mark.parametrize('scale', [0.0, 1e-3, 1.0, 1e3])
def test_clipping_equals_that_of_optax(scale):
  grads = {'a': scale * jnp.arange(4.0), 'b': scale * jnp.ones((2, 3))}
  got, want = (
    transform.update(grads, transform.init(grads))[0]
    for transform in (
      optimizers.clip_by_global_norm(0.5),
      optax.clip_by_global_norm(0.5),
    )
  )
  for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    np.testing.assert_allclose(g, w, rtol=1e-6)


def _layers():
  return {
    name: {'kernel': jnp.ones((4, 4)), 'bias': jnp.ones(4)}
    for name in ('embeddings', 'first', 'second')
  }


def test_frozen_parameters_are_unchanged_and_have_no_state():
  optimizer = optimizers.AdamW(
    learning_rate=0.1, frozen=('embeddings/', 'second/bias')
  )
  transform, new = optimizer.transform, _layers()
  state = transform.init(new)
  update = jax.jit(transform.update)
  for _ in range(3):
    updates, state = update(_layers(), state, new)
    new = optax.apply_updates(new, updates)
  trained = {'first/kernel', 'first/bias', 'second/kernel'}
  assert _moved(_layers(), new) == trained
  names = [n for n in param_tree.flatten_params(state) if n.count('/') > 2]
  assert {
    '/'.join(n.split('/')[-2:]) for n in names if n.endswith(('kernel', 'bias'))
  } == trained


def test_trainable_patterns_freeze_the_rest():
  optimizer = optimizers.Adam(
    learning_rate=0.1, trainable=('first', 'second'), frozen=('bias',)
  )
  new = _step(optimizer, _layers(), _layers())
  assert _moved(_layers(), new) == {'first/kernel', 'second/kernel'}


def test_clipping_ignores_frozen_gradients():
  params = {'a': jnp.float32(0.0), 'b': jnp.float32(0.0)}
  grads = {'a': jnp.float32(0.5), 'b': jnp.float32(1000.0)}
  new = _step(
    optimizers.Adam(learning_rate=1.0, eps=1.0, clip_norm=1.0, frozen=('b',)),
    params,
    grads,
  )
  assert float(new['a']) == pytest.approx(-0.5 / 1.5, rel=1e-4)


def test_rate_at_returns_the_learning_rate():
  assert float(optimizers.Adam(learning_rate=0.25).rate_at(7)) == 0.25

  schedule = schedules.Linear(peak_value=1.5, total_steps=9, warmup_steps=3)
  assert optimizers.Adam(learning_rate=schedule).rate_at(3) == 1.5


def test_schedule_is_followed():
  params = {'w': jnp.float32(0.0)}
  optimizer = optimizers.Adam(
    learning_rate=schedules.Piecewise(values=(0.0, 1.0), boundaries=(1,)),
    eps=1e-30,
  )
  state = optimizer.transform.init(params)
  grads = {'w': jnp.float32(3.0)}
  updates, state = optimizer.transform.update(grads, state, params)
  assert float(updates['w']) == 0.0
  updates, state = optimizer.transform.update(grads, state, params)
  assert float(updates['w']) == pytest.approx(-1.0, rel=1e-4)


@pytest.mark.parametrize(
  'make', [optimizers.AdamW, optimizers.Adam, optimizers.Adafactor]
)
def test_overridden_rates_equal_separate_optimizers(make):
  """Each parameter is updated as if all parameters had its rate."""
  shape = (3, 4)
  params = {
    'model': {'kernel': jnp.ones(shape)},
    'heads': {
      'a': {'kernel': jnp.ones(shape)},
      'b': {'kernel': jnp.ones(shape)},
    },
  }
  grads = jax.tree.map(
    lambda x: jnp.arange(x.size, dtype=x.dtype).reshape(x.shape), params
  )
  options = {} if make is optimizers.Adam else {'weight_decay': 0.1}

  def moved(rate, **more):
    return _step(make(learning_rate=rate, **options, **more), params, grads)

  mixed = moved(
    0.1,
    learning_rate_overrides=(
      ('^heads/a', schedules.Constant(peak_value=0.3)),
      ('^heads/', 0.2),
    ),
  )
  expected = {
    'model': moved(0.1)['model'],
    'heads': {'a': moved(0.3)['heads']['a'], 'b': moved(0.2)['heads']['b']},
  }
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), mixed, expected
  )
  assert not np.allclose(
    mixed['heads']['a']['kernel'], mixed['heads']['b']['kernel']
  )


def test_overridden_rates_with_frozen_parameters_and_clipping():
  params = {'a': jnp.float32(1.0), 'b': jnp.float32(1.0), 'c': jnp.ones([])}
  optimizer = optimizers.AdamW(
    learning_rate=0.1,
    weight_decay=0.0,
    frozen=('c',),
    learning_rate_overrides=(('b', 0.0),),
  )
  new = _step(optimizer, params, jax.tree.map(lambda x: 9 * x, params))
  assert float(new['a']) == pytest.approx(0.9, rel=1e-4)
  assert float(new['b']) == float(new['c']) == 1.0
  with raises_error(errors.ConfigError, where='Adam.learning_rate_overrides'):
    optimizers.Adam(
      learning_rate=0.1, learning_rate_overrides=(('none', 1.0),)
    ).check(params)


@pytest.mark.parametrize('field', ['trainable', 'frozen', 'no_decay'])
def test_pattern_without_a_match_is_rejected(field, params):
  optimizer = optimizers.AdamW(learning_rate=0.1, **{field: ('no_such',)})
  with pytest.raises(errors.ConfigError) as error:
    optimizer.check(params)
  text = str(error.value)
  assert 'Got: no_such' in text
  assert 'model/embeddings/language' in text
  assert f'Where: AdamW.{field}' in text


@pytest.mark.parametrize(
  'cls', [optimizers.AdamW, optimizers.StableAdamW, optimizers.Muon]
)
def test_patterns_without_weight_decay_may_not_match_in_small_models(cls):
  """For example, a model without biases, or without norms."""
  params = {'model': {'layers': {'kernel': jnp.ones([2, 4, 4])}}}
  cls(learning_rate=0.1).check(params)
  cls(learning_rate=0.1, no_decay=('bias', '_norm/|norm/', 'layers')).check(
    params
  )
  with raises_error(
    errors.ConfigError,
    got='LayerNorm.weight',
    where=f'{cls.__name__}.no_decay',
    mentions='model/layers/kernel',
  ):
    cls(learning_rate=0.1, no_decay=('bias', 'LayerNorm.weight')).check(params)


def test_invalid_regular_expression_is_rejected(params):
  optimizer = optimizers.AdamW(learning_rate=0.1, frozen=('(',))
  with raises_error(errors.ConfigError, got='(', where='AdamW.frozen'):
    optimizer.check(params)


def test_freezing_all_parameters_is_rejected(params):
  optimizer = optimizers.AdamW(learning_rate=0.1, frozen=('model',))
  with raises_error(
    errors.ConfigError, mentions=('trainable=()', "frozen=('model',)")
  ):
    optimizer.check(params)


def _state_shardings(optimizer):
  partitioner = partitioning.Partitioner(fsdp=2, tensor=2)
  return tiny.make_factory(
    optimizer=optimizer, partitioner=partitioner
  ).shardings


def test_moments_are_sharded_like_their_parameters():
  shardings = _state_shardings(
    optimizers.AdamW(learning_rate=0.1, frozen=('output_bias',))
  )
  expected_shardings = param_tree.flatten_params(shardings.params)
  state = param_tree.flatten_params(shardings.opt_state)
  for moment in ('mu', 'nu'):
    for name, sharding in expected_shardings.items():
      matching = [s for n, s in state.items() if n.endswith(f'{moment}/{name}')]
      assert matching == ([] if 'output_bias' in name else [sharding]), name
  counts = [s for n, s in state.items() if 'model/' not in n]
  assert counts and all(s.is_fully_replicated for s in counts)


def test_sharded_adafactor_equals_one_device():
  """Compares two steps on one device and on a (2, 2, 2) mesh."""
  optimizer = optimizers.Adafactor(learning_rate=0.1, min_dim_size_to_factor=16)
  params = {
    'table': jnp.arange(64 * 16.0).reshape(64, 16) / 1000,
    'bias': jnp.ones(64),
  }
  partitioner = partitioning.Partitioner(fsdp=2, tensor=2)
  shardings = partitioner.shardings(
    {
      'table': nn.LogicallyPartitioned(params['table'], ('vocab', 'embed')),
      'bias': nn.LogicallyPartitioned(params['bias'], ('vocab',)),
    }
  )
  state = optimizer.transform.init(params)
  of_state = optimizers.state_shardings(
    state, params, shardings, partitioner.replicated
  )

  def two_steps(params, state):
    for _ in range(2):
      updates, state = optimizer.transform.update(params, state, params)
      params = optax.apply_updates(params, updates)
    return params, state

  alone, _ = jax.jit(two_steps)(params, state)
  sharded, state = jax.jit(two_steps, out_shardings=(shardings, of_state))(
    jax.device_put(params, shardings), jax.device_put(state, of_state)
  )
  assert sharded['table'].sharding.shard_shape((64, 16)) == (32, 8)
  names = param_tree.flatten_params(state)
  assert [
    leaf.shape
    for n, leaf in names.items()
    if n.endswith(('v_row/table', 'v_col/table'))
  ] == [(16,), (64,)]
  assert [
    leaf.sharding for n, leaf in names.items() if n.endswith('v/bias')
  ] == [shardings['bias']]
  for name, leaf in alone.items():
    np.testing.assert_allclose(leaf, sharded[name], rtol=1e-5)


def _gradients(params):
  """Returns random gradients with unit variance."""
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32), params
  )


def _encoder_params(loop):
  boxed = jax.eval_shape(
    lambda: train_state.init_params(
      tiny.make_model(scan_layers=loop == 'scan', **_EVERYTHING),
      tiny.make_mixture(),
      jax.random.key(0),
    )
  )
  return jax.tree.map(
    lambda x: jnp.zeros(x.shape, x.dtype), nn.meta.unbox(boxed)
  )


_SHAPES = {
  'query': (16, 16),
  'key': (16, 16),
  'value': (16, 16),
  'output': (16, 16),
  'wi': (16, 32),
  'wo': (32, 16),
}


def _matrices(named):
  """Returns the kernels of layers as matrices [..., inputs, outputs] by name."""
  matrices = {}
  for name, leaf in named.items():
    kind = name.split('/')[-2]
    if '/layers' in name and name.endswith('kernel'):
      matrices[name] = np.asarray(leaf).reshape(-1, *_SHAPES[kind])
  return matrices


@pytest.fixture(scope='module')
def muon_steps():
  """Returns a function of 'scan' or 'unroll' that runs the first step of Muon."""
  optimizer = optimizers.Muon(
    learning_rate=1.0, clip_norm=None, ns_steps=12, eps=1e-30
  )

  @functools.cache
  def make(loop):
    zeros = _encoder_params(loop)
    grads = _gradients(zeros)
    return zeros, grads, _step(optimizer, zeros, grads)

  return make


@pytest.mark.parametrize('loop', mark_slow(['scan', 'unroll'], slow=['unroll']))
def test_muon_step_is_the_orthogonal_factor_of_the_gradient(muon_steps, loop):
  """U V^T of the gradient's decomposition, times 0.2 sqrt(largest side).

  Jordan's coefficients leave singular values between 0.68 and 1.14.
  """
  _, grads, new = muon_steps(loop)
  steps = _matrices(param_tree.flatten_params(new))
  assert len(steps) == 6 * (1 if loop == 'scan' else 2)
  for name, matrices in _matrices(param_tree.flatten_params(grads)).items():
    for gradient, step in zip(matrices, steps[name], strict=True):
      u, _, v = np.linalg.svd(gradient, full_matrices=False)
      step = -step / (0.2 * np.sqrt(max(step.shape)))
      diagonal = u.T @ step @ v.T  # diagonal if the singular vectors are equal
      np.testing.assert_allclose(
        diagonal - np.diag(np.diag(diagonal)), 0.0, atol=2e-3
      )
      assert 0.65 < np.diag(diagonal).min() <= np.diag(diagonal).max() < 1.2, (
        name
      )


def test_muon_updates_other_parameters_like_adamw(muon_steps):
  zeros, grads, new = muon_steps('scan')
  adamw = optimizers.AdamW(learning_rate=1.0, clip_norm=None, eps=1e-30)
  expected = param_tree.flatten_params(_step(adamw, zeros, grads))
  named = param_tree.flatten_params(new)
  remaining = set(named) - set(_matrices(named))
  assert {'model/embeddings/token', 'model/head_dense/kernel'} <= remaining
  for name in remaining:
    np.testing.assert_allclose(named[name], expected[name], rtol=1e-5)


def test_muon_treats_language_specific_matrices_separately():
  name = 'model/language_specific/layers/attention/key/kernel'
  axes = optimizers._matrix_axes(name, jnp.zeros((3, 2, 8, 2, 4)))
  assert axes.reduction_axis == (2,) and axes.output_axis == (3, 4)
  name = 'model/language_specific/layers_0/attention/output/kernel'
  axes = optimizers._matrix_axes(name, jnp.zeros((3, 2, 4, 8)))
  assert axes.reduction_axis == (1, 2) and axes.output_axis == (3,)
  name = 'heads/pos/layers/layer_0/attention/query/kernel'
  axes = optimizers._matrix_axes(name, jnp.zeros((8, 2, 4)))
  assert axes.reduction_axis == (0,) and axes.output_axis == (1, 2)


@pytest.mark.parametrize(
  'optimizer',
  [
    optimizers.Muon(learning_rate=0.1),
    pytest.param(
      optimizers.StableAdamW(learning_rate=0.1), marks=pytest.mark.slow
    ),
  ],
)
def test_sharded_steps_with_frozen_parameters_equal_one_device(optimizer):
  optimizer = dataclasses.replace(optimizer, frozen=('embeddings/token$',))
  factory = tiny.make_factory(
    optimizer=optimizer, partitioner=partitioning.Partitioner(fsdp=2, tensor=2)
  )
  expected_shardings = param_tree.flatten_params(factory.shardings.params)
  moments = {
    n: s
    for n, s in param_tree.flatten_params(factory.shardings.opt_state).items()
    if '/mu/' in n
  }
  assert len(moments) == len(expected_shardings) - 1
  for n, sharding in moments.items():
    assert sharding == expected_shardings[n.split('/mu/')[1]], n
  params = jax.tree.map(
    lambda x: jnp.ones(x.shape, x.dtype), factory.abstract.params
  )
  grads = _gradients(params)
  alone = _step(optimizer, params, grads)
  transform = optimizer.transform
  updates, _ = jax.jit(
    transform.update, out_shardings=(factory.shardings.params, None)
  )(
    jax.device_put(grads, factory.shardings.params),
    jax.device_put(transform.init(params), factory.shardings.opt_state),
    jax.device_put(params, factory.shardings.params),
  )
  sharded = param_tree.flatten_params(optax.apply_updates(params, updates))
  for n, leaf in param_tree.flatten_params(alone).items():
    np.testing.assert_allclose(leaf, sharded[n], atol=2e-5, err_msg=n)
  np.testing.assert_array_equal(alone['model']['embeddings']['token'], 1.0)


def test_stable_adamw_clips_steps_with_growing_gradients():
  """The expected step for gradients 1 and 3 is computed by hand."""
  optimizer = optimizers.StableAdamW(
    learning_rate=0.1, b1=0.0, b2=0.99, weight_decay=0.5, eps=1e-6
  )
  params = {'kernel': jnp.full(4, 2.0)}
  transform = optimizer.transform
  state = transform.init(params)
  ones = jax.tree.map(jnp.ones_like, params)
  updates, state = transform.update(ones, state, params)
  np.testing.assert_allclose(updates['kernel'], -0.1 * (1 + 0.5 * 2), rtol=1e-5)
  three = jax.tree.map(lambda x: 3 * x, ones)
  updates, _ = transform.update(three, state, params)
  moment = (0.99 * 0.01 * 1 + 0.01 * 9) / (1 - 0.99**2)
  rms = (9 / moment) ** 0.5
  expected_step = -0.1 / rms * (3 / moment**0.5 + 0.5 * 2)
  assert rms > 1
  np.testing.assert_allclose(updates['kernel'], expected_step, rtol=1e-5)


def test_stable_adamw_clips_scanned_layers_separately():
  """The step of a layer does not depend on the gradient of another layer."""
  optimizer = optimizers.StableAdamW(learning_rate=0.1, weight_decay=0.0)
  scanned = {'layers': {'kernel': jnp.zeros((2, 3))}}
  apart = {f'layers_{i}': {'kernel': jnp.zeros(3)} for i in range(2)}

  def steps(params, gradients):
    state = optimizer.transform.init(params)
    for g in gradients:
      updates, state = optimizer.transform.update(g, state, params)
    return jax.tree.leaves(updates)

  layer_gradients = [np.ones((2, 3)), np.array([[9.0] * 3, [1.0] * 3])]
  (together,) = steps(
    scanned, [{'layers': {'kernel': jnp.float32(g)}} for g in layer_gradients]
  )
  alone = steps(
    apart,
    [
      {f'layers_{i}': {'kernel': jnp.float32(g[i])} for i in range(2)}
      for g in layer_gradients
    ],
  )
  np.testing.assert_allclose(together, np.stack(alone), rtol=1e-6)
  assert abs(together[0, 0]) < abs(together[1, 0])


def test_adafactor_decay_is_scaled_by_the_learning_rate():
  """The decay is 0 at a rate of 0 and 0.05 at a rate of 0.1."""
  params = {'dense': {'kernel': jnp.ones((3, 3))}}
  for rate, size in ((0.0, 1.0), (0.1, 0.95)):
    optimizer = optimizers.Adafactor(learning_rate=rate, weight_decay=0.5)
    moved = _step(optimizer, params, _zeros(params))
    np.testing.assert_allclose(moved['dense']['kernel'], size, rtol=1e-6)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _UserOptimizer(optimizers.Optimizer):
  """A user-defined optimizer, whose transformation a function creates."""

  create: Callable

  def make(self, rate):
    return self.create(rate)


_LINEAR = schedules.Linear(peak_value=0.1, total_steps=8)


@pytest.mark.parametrize(
  'create, rate, got',
  [
    (optax.scale_by_schedule, 0.1, "'float' object is not callable"),
    (lambda rate: optax.scale(-rate), _LINEAR, 'Linear'),
    (optax.scale, _LINEAR, 'Linear'),
  ],
)
def test_wrong_type_of_rate_is_reported_with_a_fix(create, rate, got):
  optimizer = _UserOptimizer(learning_rate=rate, create=create, clip_norm=1.0)
  params = {'w': jnp.ones(2)}
  with raises_error(errors.ConfigError, mentions='_UserOptimizer') as caught:
    _step(optimizer, params, params)
  assert got in caught.value.got
  assert 'optimizers_test.py' in caught.value.where
  assert 'optax.scale_by_learning_rate(rate)' in caught.value.fix
  assert isinstance(caught.value.__cause__, TypeError)


def test_exception_in_a_transformation_is_reported_with_the_optimizer():
  def fail(params):
    return 1 / 0

  optimizer = _UserOptimizer(
    learning_rate=0.1,
    create=lambda rate: optax.GradientTransformation(fail, fail),
    learning_rate_overrides=(('w', 0.2),),
  )
  with raises_error(
    errors.ConfigError, mentions=('`_UserOptimizer.make`', 'ZeroDivisionError')
  ) as caught:
    optimizer.transform.init({'w': jnp.ones(2), 'b': jnp.ones(2)})
  assert_mentions(caught.value.where, '`return 1 / 0`')


@pytest.mark.parametrize(
  'result, got', [(None, 'None'), (optax.sgd, 'sgd'), ((0, 1), '(0, 1)')]
)
def test_make_must_return_a_transformation(result, got):
  optimizer = _UserOptimizer(learning_rate=0.1, create=lambda rate: result)
  with raises_error(
    errors.ConfigError,
    expected='an optax.GradientTransformation',
    mentions=('`_UserOptimizer.make`', got),
  ) as caught:
    _ = optimizer.transform
  assert_mentions(caught.value.where, 'optimizers_test.py', 'def make')


def _accumulate(rate):
  return optax.MultiSteps(optax.adam(rate), every_k_schedule=4)


@pytest.mark.parametrize(
  'create',
  [
    _accumulate,
    lambda rate: _accumulate(rate).gradient_transformation(),
    lambda rate: optax.chain(
      optax.clip(1.0), _accumulate(rate).gradient_transformation()
    ),
    lambda rate: optax.masked(
      _accumulate(rate).gradient_transformation(), {'w': True}
    ),
  ],
  ids=['object', 'transformation', 'chain', 'masked'],
)
def test_accumulation_inside_an_optimizer_is_rejected(create):
  """Its schedule would count the accumulated steps instead of the run's."""
  optimizer = _UserOptimizer(learning_rate=_LINEAR, create=create)
  with raises_error(
    errors.ConfigError,
    mentions=(
      '`_UserOptimizer.make`',
      'optax.MultiSteps',
      'Trainer.gradient_accumulation_steps',
      'optimizers_test.py',
    ),
  ):
    jax.eval_shape(optimizer.transform.init, {'w': jnp.ones(2)})


def test_accumulation_with_a_constant_learning_rate_is_accepted():
  optimizer = _UserOptimizer(
    learning_rate=0.1,
    create=lambda rate: _accumulate(rate).gradient_transformation(),
  )
  jax.eval_shape(optimizer.transform.init, {'w': jnp.ones(2)})


@pytest.mark.parametrize('rate', [0.1, _LINEAR], ids=['constant', 'schedule'])
def test_user_optimizer_equals_its_transformation(rate):
  optimizer = _UserOptimizer(learning_rate=rate, create=optax.adam)
  params = {'w': jnp.arange(3.0)}
  expected = _step(optimizers.Adam(learning_rate=rate), params, params)
  np.testing.assert_array_equal(
    _step(optimizer, params, params)['w'], expected['w']
  )
