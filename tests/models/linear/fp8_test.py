"""Compares matrix multiplications in eight bits with those in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import raises_error
from tests.training import tiny
from xlflax.models import compile_targets
from xlflax.models.linear import fp8
from xlflax.training.devices import flops
from xlflax.utils import errors


def _factors():
  keys = jax.random.split(jax.random.key(0), 3)
  inputs = 30 * jax.random.normal(keys[0], (4, 8, 2, 16))
  weights = 1e-3 * jax.random.normal(keys[1], (2, 16, 24))
  return inputs, weights, jax.random.normal(keys[2], (4, 8, 24)) * 1e-6


def _error(got, want):
  """Returns the root mean square error relative to `want`."""
  return float(
    jnp.sqrt(jnp.mean(jnp.square(got - want)) / jnp.mean(jnp.square(want)))
  )


def test_matmuls_and_gradients_are_close():
  """The formats have three mantissa bits, and two for gradients."""
  inputs, weights, gradient = _factors()
  got, back = jax.vjp(lambda x, w: fp8.fp8_matmul(x, w, 2), inputs, weights)
  want, plain = jax.vjp(lambda x, w: jnp.tensordot(x, w, 2), inputs, weights)
  assert 1e-3 < _error(got, want) < 0.05
  for a, b in zip(back(gradient), plain(gradient), strict=True):
    assert a.shape == b.shape
    assert 1e-3 < _error(a, b) < 0.1


def test_values_representable_in_eight_bits_are_exact():
  """The values are small integers with the same maximum."""
  rng = np.random.default_rng(0)
  inputs = jnp.asarray(rng.integers(-7, 8, (5, 6)), jnp.float32).at[0, 0].set(7)
  weights = jnp.asarray(rng.integers(-7, 8, (6, 3)), jnp.float32)
  weights = weights.at[0, 0].set(7)
  got = fp8.fp8_matmul(inputs, weights, 1)
  np.testing.assert_allclose(got, inputs @ weights, rtol=1e-6)


@pytest.mark.parametrize('value', [0.0, 1e30, 1e-30])
def test_extreme_values_are_scaled(value):
  inputs = jnp.full((2, 4), value)
  outputs = fp8.fp8_matmul(inputs, jnp.eye(4), 1)
  np.testing.assert_allclose(outputs, inputs, rtol=1e-6)


def test_matmul_keeps_the_dtype():
  inputs, weights, _ = _factors()
  outputs = fp8.fp8_matmul(
    inputs.astype(jnp.bfloat16), weights.astype(jnp.bfloat16), 2
  )
  assert outputs.dtype == jnp.bfloat16


@pytest.mark.parametrize(
  'target',
  [compile_targets.Target('tpu'), compile_targets.Target('gpu', (8, 0))],
)
def test_unsupported_devices_are_rejected(target):
  with (
    compile_targets.compiling_for(target),
    raises_error(errors.ConfigError, mentions='fp8'),
  ):
    fp8.fp8_matmul(jnp.ones((2, 3)), jnp.ones((3, 4)), 1)


def test_model_layers_use_fp8_matmuls():
  """A layer has six matmuls: query, key, value, output and two of the MLP."""
  model = tiny.make_model(num_layers=1, matmul_precision='fp8')
  batch = tiny.make_batch()
  traced = jax.make_jaxpr(
    lambda key: model.init_with_output(key, batch['token_ids'])[0]
  )(jax.random.key(0))
  outputs = [
    e
    for e in flops.iterate_equations(traced.jaxpr)
    if e.primitive.name == 'dot_general'
    and all(v.aval.dtype == jnp.float8_e4m3fn for v in e.invars)
  ]
  assert len(outputs) >= 6
