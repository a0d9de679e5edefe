"""Attention over segments, through one of several backends."""

import functools
import logging

import jax
import jax.numpy as jnp

from xlflax import errors
from xlflax.models import config as model_config
from xlflax.models import dropout

_Backend = model_config.AttentionBackend
_MASKED = -1e30


def segment_mask(segment_ids: jax.Array) -> jax.Array:
  """Which position attends to which: those of one segment to each other.

  Padding (segment 0) makes a segment like any other, so no row of the mask is
  empty; no position of text sees it.

  Args:
    segment_ids: int32 [B, T].

  Returns:
    bool [B, 1, T, T]; the last axis is that of keys.
  """
  return segment_ids[:, None, :, None] == segment_ids[:, None, None, :]


def attend(query: jax.Array, key: jax.Array, value: jax.Array,
           mask: jax.Array | None, *, backend: _Backend,
           dropout_rate: float = 0.0,
           dropout_key: jax.Array | None = None) -> jax.Array:
  """softmax(q kᵀ / √D + mask) v, the softmax in float32.

  Args:
    query: [B, T, N, D].
    key: [B, S, N, D].
    value: [B, S, N, D].
    mask: bool [B, 1, T, S], or None if everything is seen.
    backend: which implementation.
    dropout_rate: on probabilities; XLA only.
    dropout_key: key of the dropout; None without dropout.

  Returns:
    [B, T, N, D] in the dtype of `query`.

  Raises:
    ConfigError: the backend cannot do this on this machine.
  """
  backend = resolve_backend(
      backend, dtype=query.dtype.name, head_dim=query.shape[-1],
      dropout_rate=dropout_rate if dropout_key is not None else 0.0,
      platform=jax.default_backend())
  if backend is _Backend.CUDNN:
    return jax.nn.dot_product_attention(
        query, key, value, mask=mask, implementation='cudnn')
  if dropout_key is None or not dropout_rate:
    return jax.nn.dot_product_attention(
        query, key, value, mask=mask, implementation='xla')
  return _attend_with_dropout(query, key, value, mask, rate=dropout_rate,
                              dropout_key=dropout_key)


def _attend_with_dropout(query, key, value, mask, *, rate, dropout_key):
  """As `attend`, with dropout on the probabilities."""
  logits = jnp.einsum('btnd,bsnd->bnts', query, key,
                      preferred_element_type=jnp.float32)
  logits = logits * query.shape[-1] ** -0.5
  if mask is not None:
    logits = jnp.where(mask, logits, _MASKED)
  weights = jax.nn.softmax(logits, axis=-1).astype(value.dtype)
  weights = dropout.drop(dropout_key, weights, rate=rate)
  return jnp.einsum('bnts,bsnd->btnd', weights, value)


def resolve_backend(backend: _Backend, *, dtype: str, head_dim: int,
                    dropout_rate: float, platform: str) -> _Backend:
  """XLA or CUDNN: the backend asked for, or AUTO's choice (logged once).

  Raises:
    ConfigError: cuDNN was asked for where it cannot be used.
  """
  if backend is _Backend.XLA:
    return backend
  obstacle = _cudnn_obstacle(dtype, head_dim, dropout_rate, platform)
  if backend is _Backend.AUTO:
    chosen = _Backend.XLA if obstacle else _Backend.CUDNN
    _log_choice(chosen, obstacle)
    return chosen
  if obstacle:
    raise errors.ConfigError(
        'cuDNN attention cannot be used here', got=obstacle[0],
        expected=obstacle[1], where='EncoderConfig.attention_backend',
        fix="change that, or set attention_backend to 'xla' or 'auto'")
  return backend


@functools.lru_cache
def _log_choice(chosen: _Backend, obstacle: tuple[str, str] | None) -> None:
  reason = f' ({obstacle[0]}; cuDNN needs {obstacle[1]})' if obstacle else ''
  logging.getLogger(__name__).info(
      'Attention backend: %s%s.', str(chosen), reason)


def _cudnn_obstacle(dtype: str, head_dim: int, dropout_rate: float,
                    platform: str) -> tuple[str, str] | None:
  """(got, expected) of the first condition of cuDNN's that is not met."""
  if platform not in ('gpu', 'cuda'):
    return f'the platform {platform}', 'an NVIDIA GPU'
  if dtype not in ('bfloat16', 'float16'):
    return f'dtype = {dtype}', "dtype = 'bfloat16'"
  if dropout_rate:
    return (f'attention_dropout_rate = {dropout_rate} in training',
            'attention_dropout_rate = 0')
  if head_dim % 8 or head_dim > 128:
    return f'heads of width {head_dim}', 'a multiple of 8, at most 128'
  return None
