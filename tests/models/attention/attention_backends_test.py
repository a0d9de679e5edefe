"""Attention backends: values, selection and errors."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.models import compile_targets
from xlflax.models.attention import attention_backends, masks
from xlflax.models.encoder_config import AttentionBackend
from xlflax.utils import errors

_HOPPER = attention_backends.Case(
  dtype='bfloat16',
  head_dim=64,
  length=128,
  masked=True,
  dropout_rate=0.0,
  capability=(9, 0),
)


def _inputs():
  keys = jax.random.split(jax.random.key(0), 3)
  return [jax.random.normal(key, (2, 5, 3, 4)) for key in keys]


def _numpy_attention(query, key, value, mask):
  """Computes softmax attention in NumPy, one head at a time."""
  query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
  output = np.zeros_like(query)
  for b in range(query.shape[0]):
    for n in range(query.shape[2]):
      scores = query[b, :, n] @ key[b, :, n].T / np.sqrt(query.shape[-1])
      weights = np.where(mask[b, 0], np.exp(scores), 0)
      weights /= weights.sum(-1, keepdims=True)
      output[b, :, n] = weights @ value[b, :, n]
  return output


def test_cross_attention_equals_numpy():
  query, *memory = _inputs()
  query = query[:, :3]
  mask = masks.make_cross_attention_mask(
    jnp.asarray([[1, 2, 2], [1, 1, 1]]),
    jnp.asarray([[1, 1, 2, 2, 2], [1, 1, 1, 0, 0]]),
    length=3,
  )
  got = attention_backends.dot_product_attention(
    query, *memory, mask, backend=AttentionBackend.XLA
  )
  want = _numpy_attention(query, *memory, mask.array(3, 5))
  np.testing.assert_allclose(got, want, atol=1e-5)


def test_self_attention_equals_numpy():
  inputs = _inputs()
  segments = jnp.asarray([[1, 1, 2, 2, 2], [1, 1, 1, 0, 0]])
  mask = masks.make_self_attention_mask(segments)
  got = attention_backends.dot_product_attention(
    *inputs, mask, backend=AttentionBackend.XLA
  )
  want = _numpy_attention(*inputs, mask.array(5, 5))
  np.testing.assert_allclose(got, want, atol=1e-5)


def test_attention_with_dropout_has_the_same_mean():
  inputs = _inputs()
  mask = masks.make_self_attention_mask(jnp.asarray([[1, 1, 2, 2, 2]] * 2))

  def attend(**options):
    return attention_backends.dot_product_attention(
      *inputs, mask, backend=AttentionBackend.XLA, **options
    )

  key = jax.random.key(1)
  # At a rate near zero, nothing is dropped.
  np.testing.assert_allclose(
    attend(dropout_rate=1e-9, dropout_key=key), attend(), atol=1e-6
  )
  # Dropout does not change the mean.
  batched = jax.vmap(lambda k: attend(dropout_rate=0.3, dropout_key=k))(
    jax.random.split(key, 4000)
  )
  assert np.abs(batched[0] - attend()).max() > 0.1
  np.testing.assert_allclose(batched.mean(0), attend(), atol=0.1)


def test_auto_selects_cudnn_and_logs_once(caplog):
  attention_backends._log_backend.cache_clear()
  with caplog.at_level(
    logging.INFO, logger='xlflax.models.attention.attention_backends'
  ):
    for _ in range(3):
      chosen = attention_backends.resolve_backend(
        AttentionBackend.AUTO, _HOPPER
      )
      assert chosen is AttentionBackend.CUDNN
  (record,) = caplog.records
  assert_mentions(record.getMessage(), 'cudnn')


@pytest.mark.parametrize(
  'change, value',
  [
    (dict(capability=None), 'NVIDIA'),
    (dict(capability=(7, 5)), '7.5'),
    (dict(dtype='float32'), 'float32'),
    (dict(head_dim=12), 12),
    (dict(head_dim=256), 256),
  ],
)
def test_cudnn_never_falls_back_silently(change, value, caplog):
  case = _HOPPER._replace(**change)
  with raises_error(
    errors.ConfigError,
    where='EncoderConfig.attention_backend',
    mentions=(value, 'xla'),
  ):
    attention_backends.resolve_backend(AttentionBackend.CUDNN, case)
  attention_backends._log_backend.cache_clear()
  with caplog.at_level(
    logging.INFO, logger='xlflax.models.attention.attention_backends'
  ):
    chosen = attention_backends.resolve_backend(AttentionBackend.AUTO, case)
  assert chosen is AttentionBackend.XLA
  assert_mentions(caplog.text, value)
  assert (
    attention_backends.resolve_backend(AttentionBackend.XLA, case)
    is AttentionBackend.XLA
  )


@pytest.mark.parametrize(
  'change, value',
  [
    (dict(dropout_rate=0.1), 'attention_dropout_rate=0.1'),
    (dict(biased=True), 'biases'),
    (dict(length=127), 127),
    (dict(memory_length=125), 125),
  ],
)
def test_auto_selects_fused_kernels_without_cudnn_support(
  change, value, caplog
):
  case = _HOPPER._replace(**change)
  with raises_error(errors.ConfigError, mentions=value):
    attention_backends.resolve_backend(AttentionBackend.CUDNN, case)
  attention_backends._log_backend.cache_clear()
  with caplog.at_level(
    logging.INFO, logger='xlflax.models.attention.attention_backends'
  ):
    chosen = attention_backends.resolve_backend(AttentionBackend.AUTO, case)
  assert chosen is AttentionBackend.FUSED
  assert_mentions(caplog.text, value)


@pytest.mark.parametrize(
  'platform, chosen',
  [('tpu', AttentionBackend.FUSED), ('cpu', AttentionBackend.XLA)],
)
def test_auto_backend_of_tpus_and_cpus(platform, chosen):
  case = _HOPPER._replace(
    capability=None, dropout_rate=0.1, platform=platform, biased=True
  )
  assert chosen is attention_backends.resolve_backend(
    AttentionBackend.AUTO, case
  )


@pytest.mark.parametrize(
  'change, values',
  [
    (dict(capability=(7, 5)), ('7.5', 'EncoderConfig.attention_backend')),
    (dict(dtype='float32'), ('float32', 'EncoderConfig.attention_backend')),
    (dict(dense=True), 'EncoderConfig.attention_backend'),
    (dict(head_dim=96), (96, 'EncoderConfig.attention_backend')),
    (
      dict(dtype='float32', platform='tpu'),
      ('float32', 'EncoderConfig.attention_backend'),
    ),
  ],
)
def test_unsupported_options_of_fused_kernels_raise(change, values):
  with raises_error(errors.ConfigError, mentions=values):
    attention_backends.resolve_backend(
      AttentionBackend.FUSED, _HOPPER._replace(**change)
    )


def test_case_from_arrays_uses_the_compile_target():
  query, key, value = (x.astype(jnp.bfloat16) for x in _inputs())
  with compile_targets.compiling_for(compile_targets.Target('gpu', (9, 0))):
    case = attention_backends.Case.from_arrays(
      query, key[:, :3], jnp.ones((2, 1, 5, 3)), bias=None, dropout_rate=0.1
    )
  assert case == attention_backends.Case(
    'bfloat16', 4, 5, True, 0.1, (9, 0), 3, 'gpu', False, True
  )


def test_cudnn_on_a_cpu_is_rejected():
  with raises_error(
    errors.ConfigError,
    where='EncoderConfig.attention_backend',
    mentions=('NVIDIA', 'GPU'),
  ):
    attention_backends.dot_product_attention(
      *_inputs(), None, backend=AttentionBackend.CUDNN
    )
