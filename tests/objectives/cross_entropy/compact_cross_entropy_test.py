"""Compares the compact cross-entropy with the plain cross-entropy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlflax.models import compile_targets
from xlflax.objectives.cross_entropy import (
  compact_cross_entropy,
  linear_cross_entropy,
)


def _case(dtype):
  keys = jax.random.split(jax.random.key(0), 5)
  return (
    jax.random.normal(keys[0], (6, 16), dtype),
    jax.random.normal(keys[1], (23, 16)),
    jax.random.normal(keys[2], (23,)),
    jax.random.randint(keys[3], (6,), 0, 23),
    jax.random.normal(keys[4], (6,)),  # gradient of the loss
  )


def _run(function, hidden, table, bias, labels, weights):
  def total(hidden, table, bias):
    loss, correct = function(hidden, table, bias, labels)
    return (loss * weights).sum(), (loss, correct)

  return jax.grad(total, argnums=(0, 1, 2), has_aux=True)(hidden, table, bias)


@pytest.mark.parametrize('dtype, atol', [('float32', 1e-5), ('bfloat16', 0.06)])
def test_loss_and_gradients_equal_plain_cross_entropy(dtype, atol):
  arrays = _case(dtype)
  got = jax.jit(_run, static_argnums=0)(
    compact_cross_entropy.cross_entropy, *arrays
  )
  want = jax.jit(_run, static_argnums=0)(
    linear_cross_entropy._unchunked, arrays[0].astype(jnp.float32), *arrays[1:]
  )
  for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    np.testing.assert_allclose(a.astype(jnp.float32), b, atol=atol)


def test_max_and_sum_of_extreme_logits():
  logits = jnp.asarray([[-1e9, 3.0, 3.0], [-jnp.inf, -jnp.inf, 1.0]])
  maximum, total = compact_cross_entropy.max_and_sum(logits)
  np.testing.assert_array_equal(maximum, [3, 1])
  np.testing.assert_array_equal(total, [2, 1])


@pytest.mark.parametrize(
  'dtype, platform, compact',
  [
    ('bfloat16', 'gpu', True),
    ('bfloat16', 'tpu', True),
    ('bfloat16', 'cpu', False),
    ('float32', 'gpu', False),
  ],
)
def test_compact_loss_is_used_for_bfloat16_on_accelerators(
  dtype, platform, compact
):
  with compile_targets.compiling_for(compile_targets.Target(platform)):
    assert linear_cross_entropy._is_compact(jnp.zeros(1, dtype)) is compact
