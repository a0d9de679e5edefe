"""Recomputed functions: same values and gradients, fewer residuals."""

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.models import activations, recompute


def _function(x, scale):
  return jnp.sin(jnp.exp(x) * scale)


def test_values_and_gradients_are_the_functions():
  x = jnp.linspace(-1.0, 1.0, 7)
  scale = jnp.linspace(1.0, 2.0, 7)
  wrapped = recompute.recomputed(_function)
  np.testing.assert_array_equal(wrapped(x, scale), _function(x, scale))
  got = jax.grad(lambda *a: wrapped(*a).sum(), argnums=(0, 1))(x, scale)
  want = jax.grad(lambda *a: _function(*a).sum(), argnums=(0, 1))(x, scale)
  jax.tree.map(np.testing.assert_array_equal, got, want)


def test_only_arguments_are_kept():
  x = jnp.linspace(-1.0, 1.0, 7)
  _, pull = jax.vjp(activations.function('gelu'), x)
  kept = [leaf for leaf in jax.tree.leaves(pull) if leaf.shape == x.shape]
  assert len(kept) == 1
  np.testing.assert_array_equal(kept[0], x)
