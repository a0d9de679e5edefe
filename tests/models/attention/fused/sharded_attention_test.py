"""Compares interpreted fused attention with plain attention."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.slow import mark_slow
from xlflax.models.attention import attention_backends, masks
from xlflax.models.attention.fused import attention_vjp, tpu_attention
from xlflax.models.encoder_config import AttentionBackend
from xlflax.training.devices import partitioning

_SEGMENTS = np.repeat([[1, 1, 2, 3, 3], [1, 2, 2, 0, 0]], 16, axis=1)


def _arrays(*, length, memory_length, heads=2, groups=2, rows=2, dtype=None):
  keys = jax.random.split(jax.random.key(0), 5)
  shapes = [
    (rows, length, heads, 16),
    (rows, memory_length, groups, 16),
    (rows, memory_length, groups, 16),
    (rows, length, heads, 16),  # gradient of the output
    (1, heads, length, memory_length),
  ]
  *arrays, bias = [
    jax.random.normal(key, shape)
    for key, shape in zip(keys, shapes, strict=True)
  ]
  return [x.astype(dtype or x.dtype) for x in arrays], bias


def _run(backend, arrays, bias, mask, **options):
  """Returns the output and the gradients of query, key, value and bias."""
  *inputs, gradient = arrays

  def attend(inputs, bias):
    return attention_backends.dot_product_attention(
      *inputs, mask, backend=AttentionBackend(backend), bias=bias, **options
    )

  output, back = jax.vjp(attend, inputs, bias)
  return output, back(gradient)


def _compare(arrays, bias, mask, *, tolerance=1e-5, **options):
  def both(arrays, bias, mask):
    fused = _run('fused', arrays, bias, mask, **options)
    exact = [x.astype(jnp.float32) for x in arrays]
    return fused, _run('xla', exact, bias, mask, **options)

  fused, plain = jax.jit(both)(arrays, bias, mask)
  for got, want in zip(*map(jax.tree.leaves, (fused, plain)), strict=True):
    bound = tolerance * max(1, np.abs(want).max())
    np.testing.assert_allclose(got.astype(jnp.float32), want, atol=bound)
  return fused


_DROPOUT = dict(dropout_rate=0.2, dropout_key=jax.random.key(7))


@pytest.fixture(params=mark_slow(['gpu', 'tpu'], slow=['tpu']))
def kernels(request, monkeypatch):
  """Fixture that selects the kernels of GPUs or TPUs."""
  if request.param == 'tpu':
    monkeypatch.setattr(
      attention_vjp, '_kernels', lambda options: tpu_attention
    )


def test_packed_sequences_with_dropout_window_and_shared_keys(kernels):
  arrays, _ = _arrays(length=80, memory_length=80, groups=1)
  mask = masks.make_self_attention_mask(jnp.asarray(_SEGMENTS)).replace(
    window=9
  )
  _compare(arrays, None, mask, **_DROPOUT)


@pytest.mark.parametrize('causal', mark_slow([False, True], slow=[False]))
def test_sequences_with_one_or_several_segments(kernels, causal):
  """On GPUs, kernels compare segments only for the second and third sequence.

  The last sequence consists of padding.
  """
  arrays, _ = _arrays(length=64, memory_length=64, rows=4)
  segments = np.repeat([[1, 1], [1, 2], [1, 0], [0, 0]], 32, axis=1)
  mask = masks.make_self_attention_mask(jnp.asarray(segments), causal=causal)
  output, _ = _compare(arrays, None, mask, **_DROPOUT)
  without_segments, _ = _compare(
    arrays, None, masks.Mask(causal=causal), **_DROPOUT
  )
  np.testing.assert_allclose(output[0], without_segments[0], atol=1e-6)
  assert not np.allclose(output[1], without_segments[1])


def test_causal_attention_with_a_bias_and_dropout(kernels):
  arrays, bias = _arrays(length=80, memory_length=80)
  mask = masks.make_self_attention_mask(jnp.asarray(_SEGMENTS), causal=True)
  _compare(arrays, bias, mask, scale=1.0, **_DROPOUT)


def test_cross_attention_with_fully_masked_queries(kernels):
  arrays, _ = _arrays(length=40, memory_length=72)
  memory = np.where(_SEGMENTS[:, :72] == 2, 4, _SEGMENTS[:, :72])
  mask = masks.make_cross_attention_mask(
    jnp.asarray(_SEGMENTS[:, :40]), jnp.asarray(memory), length=40
  )
  fused, _ = _compare(arrays, None, mask, **_DROPOUT)
  blind = _SEGMENTS[:, :40] == 2
  assert blind.any() and not np.asarray(fused)[blind].any()


def test_full_sequences_in_bfloat16(kernels):
  """The tolerance is 2 % of the largest value of plain attention."""
  arrays, _ = _arrays(length=48, memory_length=48, dtype=jnp.bfloat16)
  _compare(arrays, None, None, tolerance=2e-2)


@pytest.mark.slow
def test_packed_sequences_with_dropout_and_bias_in_bfloat16(kernels):
  arrays, bias = _arrays(length=80, memory_length=80, dtype=jnp.bfloat16)
  mask = masks.make_self_attention_mask(jnp.asarray(_SEGMENTS))
  _compare(arrays, bias, mask, tolerance=2e-2, **_DROPOUT)


def test_packed_sequences_equal_padded_sequences(kernels):
  """Compares outputs and gradients."""
  arrays, _ = _arrays(length=32, memory_length=32, rows=1)

  def alone(array):
    first, second = array[:, :20], array[:, 20:]
    rows = [
      jnp.pad(x, ((0, 0), (0, 20 - x.shape[1]), (0, 0), (0, 0)))
      for x in (first, second)
    ]
    return jnp.concatenate(rows)

  def run(arrays, segments):
    mask = masks.make_self_attention_mask(jnp.asarray(segments))
    output, (gradients, _) = _run('fused', arrays, None, mask)
    return output, *gradients

  together = jax.jit(lambda: run(arrays, [[1] * 20 + [2] * 12]))()
  rows = [alone(x) for x in arrays]
  apart = jax.jit(lambda: run(rows, [[1] * 20, [1] * 12 + [0] * 8]))()
  for packed, padded in zip(together, apart, strict=True):
    np.testing.assert_allclose(packed[0, :20], padded[0], atol=1e-5)
    np.testing.assert_allclose(packed[0, 20:], padded[1, :12], atol=1e-5)


def test_eight_devices_equal_one(kernels):
  """Sequences and heads are sharded; the bias gradient is summed."""
  partitioner = partitioning.Partitioner(data=2, fsdp=2, tensor=2)
  arrays, bias = _arrays(length=32, memory_length=32, rows=4)
  segments = jnp.asarray(np.repeat([[1, 2], [1, 1], [1, 0], [2, 3]], 16, 1))
  mask = masks.make_self_attention_mask(segments)

  def fused(arrays, bias, mask):
    return _run('fused', arrays, bias, mask, **_DROPOUT)

  with partitioner.scope():
    split = jax.jit(fused)(
      jax.device_put(arrays, partitioner.batch_sharding), bias, mask
    )
  assert len(split[0].sharding.device_set) == 8
  plain = jax.jit(_run, static_argnums=0, static_argnames='dropout_rate')(
    'xla', arrays, bias, mask, **_DROPOUT
  )
  for got, want in zip(*map(jax.tree.leaves, (split, plain)), strict=True):
    bound = 1e-5 * max(1, np.abs(want).max())
    np.testing.assert_allclose(got, want, atol=bound)
