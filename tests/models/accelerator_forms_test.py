"""Compares accelerator-specific programs with those of CPUs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import random_parameters
from tests.training import tiny
from xlflax.models import compile_targets, layers, scan_layers


def _run(model, params, batch):
  def loss(params):
    states = model.apply(
      {'params': params},
      batch['token_ids'],
      segment_ids=batch['segment_ids'],
      deterministic=False,
      rngs={'dropout': jax.random.key(3)},
    )
    return jnp.square(states).mean()

  return jax.value_and_grad(loss)(params)


_GPU, _TPU = (
  compile_targets.Target('gpu', (9, 0)),
  compile_targets.Target('tpu'),
)


@functools.cache
def _run_on_cpu():
  """Returns parameters, and loss and gradients computed for a CPU."""
  model = _model()
  params = random_parameters.draw_parameters(model, spread=0.1)
  return params, jax.jit(lambda p: _run(model, p, tiny.make_batch()))(params)


def _model(**options):
  return tiny.make_model(
    dropout_rate=0.1, attention_dropout_rate=0.1, **options
  )


@pytest.mark.slow
@pytest.mark.parametrize(
  'target, options',
  [
    (_GPU, {}),
    pytest.param(_GPU, dict(remat='minimal'), marks=pytest.mark.slow),
    pytest.param(_TPU, {}, marks=pytest.mark.slow),
  ],
)
def test_encoder_equals_the_cpu_program(target, options):
  """The program has unrolled layers, erf GELU, closed-form norms and barriers."""
  model, batch = _model(**options), tiny.make_batch()
  params, want = _run_on_cpu()
  with compile_targets.compiling_for(target):
    assert scan_layers.is_unrolled(model.config)
    program = jax.jit(lambda p: _run(model, p, batch)).lower(params)
  for got, expected in zip(
    *map(jax.tree.leaves, (program.compile()(params), want)), strict=True
  ):
    np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize('target', [_GPU, _TPU])
def test_layer_norm_gradient_is_exact_for_large_means(target):
  """The mean is 30 standard deviations; the formula is in float64."""
  keys = jax.random.split(jax.random.key(0), 2)
  states = 30 + jax.random.normal(keys[0], (8, 64))
  gradient = jax.random.normal(keys[1], (8, 64))
  norm = layers.LayerNorm(tiny.make_model().config)
  params = {'params': {'scale': jnp.ones(64), 'bias': jnp.zeros(64)}}

  def back(states):
    return jax.vjp(lambda x: norm.apply(params, x), states)[1](gradient)[0]

  with compile_targets.compiling_for(target):
    got = jax.jit(back).lower(states).compile()(states)
  x, dy = (np.asarray(a, np.float64) for a in (states, gradient))
  deviation = x.std(-1, keepdims=True)
  unit = (x - x.mean(-1, keepdims=True)) / deviation
  along = (dy * unit).mean(-1, keepdims=True)
  want = (dy - dy.mean(-1, keepdims=True) - unit * along) / deviation
  np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize(
  'options, platform, unrolled',
  [
    ({}, 'cpu', False),
    ({}, 'gpu', True),
    ({}, 'tpu', True),
    (dict(unroll_layers=False), 'gpu', False),
    (dict(unroll_layers=True), 'cpu', True),
    (dict(scan_layers=False), 'cpu', True),
  ],
)
def test_layers_are_unrolled_by_target_and_options(options, platform, unrolled):
  config = tiny.make_model(**options).config
  with compile_targets.compiling_for(compile_targets.Target(platform)):
    assert scan_layers.is_unrolled(config) is unrolled
