"""Recomputed functions: same values and gradients, fewer residuals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlflax.models import activations, compile_targets, custom_vjp


def _function(x, scale):
  return jnp.sin(jnp.exp(x) * scale)


def test_recomputed_function_has_equal_values_and_gradients():
  x = jnp.linspace(-1.0, 1.0, 7)
  scale = jnp.linspace(1.0, 2.0, 7)
  wrapped = custom_vjp.recompute_in_backward(_function)
  np.testing.assert_array_equal(wrapped(x, scale), _function(x, scale))
  got = jax.grad(lambda *a: wrapped(*a).sum(), argnums=(0, 1))(x, scale)
  want = jax.grad(lambda *a: _function(*a).sum(), argnums=(0, 1))(x, scale)
  jax.tree.map(np.testing.assert_array_equal, got, want)


def test_only_arguments_are_residuals():
  x = jnp.linspace(-1.0, 1.0, 7)
  _, pull = jax.vjp(activations.activation_function('gelu'), x)
  residuals = [leaf for leaf in jax.tree.leaves(pull) if leaf.shape == x.shape]
  assert len(residuals) == 1
  np.testing.assert_array_equal(residuals[0], x)


@pytest.mark.parametrize('name', ['gelu', 'silu', 'relu'])
def test_activation_with_bias_stores_only_the_product(name):
  x = jnp.linspace(-2.0, 2.0, 12).reshape(3, 4)
  bias = jnp.arange(4.0)[None]
  activation = activations.activation_function(name)
  outputs, pull = jax.vjp(custom_vjp.recompute_with_bias(activation), x, bias)
  want, pull_plain = jax.vjp(lambda x, b: activation(x + b), x, bias)
  np.testing.assert_array_equal(outputs, want)
  for got, expected in zip(pull(outputs), pull_plain(outputs), strict=True):
    np.testing.assert_allclose(got, expected, rtol=1e-6)
  residuals = [leaf for leaf in jax.tree.leaves(pull) if leaf.shape == x.shape]
  assert len(residuals) == 1
  np.testing.assert_array_equal(residuals[0], x)


@pytest.mark.parametrize(
  'target, num_barriers',
  [
    (compile_targets.Target('gpu', (9, 0)), 1),
    (compile_targets.Target('gpu'), 0),
    (compile_targets.Target('tpu'), 0),
    (compile_targets.Target('cpu'), 0),
  ],
)
def test_split_for_accumulation_sums_the_gradients(target, num_barriers):
  """With x² and x³, the gradient is 2x + 3x²."""

  def function(x):
    first, second = custom_vjp.split_for_accumulation(x)
    return (first**2).sum() + (second**3).sum()

  x = jnp.linspace(-1.0, 1.0, 7)
  with compile_targets.compiling_for(target):
    jaxpr = jax.make_jaxpr(jax.grad(lambda x: function(x)))(x)
    gradient = jax.grad(lambda x: function(x))(x)
  assert str(jaxpr).count('optimization_barrier') == num_barriers
  np.testing.assert_allclose(gradient, 2 * x + 3 * x**2, atol=1e-6)
