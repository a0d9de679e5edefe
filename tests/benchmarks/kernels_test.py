"""Tests of attention backends and vocabulary heads at tiny sizes."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import attention, jitted, vocabulary_head


@pytest.fixture(scope='module')
def backends():
  return attention.compare_backends(
    attention.MODELS['tiny'],
    calls=1,
    variants=('xla', 'xla_dropout', 'cudnn', 'fused'),
  )


@pytest.mark.parametrize('variant', ['xla', 'fused'])
@pytest.mark.parametrize('error', attention.ERRORS)
def test_attention_backends_match_the_reference(backends, variant, error):
  """Compares outputs and gradients of packed and unpacked rows."""
  assert backends[variant][error] < 1e-5


def test_unavailable_backend_is_reported(backends):
  assert backends['cudnn'] == {'refused': 'no NVIDIA GPU'}
  text = jitted.format_table(backends, attention.ERRORS)
  assert '| cudnn | not run: no NVIDIA GPU |' in text
  assert math.isnan(backends['xla_dropout']['forward_error'])


def test_backend_without_segment_mask_has_large_errors(monkeypatch):
  monkeypatch.setattr(
    attention.attention_backends,
    'dot_product_attention',
    lambda q, k, v, mask, **options: attention._reference_attention(
      q, k, v, jnp.ones((1, 1, 1, 1), bool)
    ),
  )
  comparison = attention.compare_backends(
    attention.MODELS['tiny'], calls=1, variants=('xla',)
  )['xla']
  assert all(comparison[error] > 0.1 for error in attention.ERRORS)


def test_vocabulary_heads_match_the_plain_loss():
  sizes = vocabulary_head.MODELS['tiny']
  results = vocabulary_head.compare_variants(sizes, calls=1)
  assert list(results) == ['plain', 'whole', 'chunked_256']
  for figures in results.values():
    assert all(figures[error] < 1e-5 for error in vocabulary_head.ERRORS)
    assert figures['temporary_bytes'] > 0
  assert (
    results['chunked_256']['temporary_bytes']
    < results['plain']['temporary_bytes']
  )


def test_max_relative_error():
  assert jitted.max_relative_error([np.ones(2)], [np.full(2, 2.0)]) == 0.5
  assert (
    jitted.max_relative_error([np.array([np.nan])], [np.ones(1)]) == math.inf
  )
