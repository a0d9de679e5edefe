"""Attention over segments, through one of several backends."""

import functools
import logging
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlflax import errors
from xlflax.models import config as model_config
from xlflax.models import dropout, targets
from xlflax.models.masked_scores import MASKED_SCORE

_Backend = model_config.AttentionBackend


def segment_mask(segment_ids: jax.Array) -> jax.Array:
  """Returns the mask in which positions attend to their own segment.

  Padding (segment 0) is a segment like any other, so no row of the mask is
  empty; no position of text sees it.

  Args:
    segment_ids: int32 [B, T].

  Returns:
    bool [B, 1, T, T]; the last axis is that of keys.
  """
  return segment_ids[:, None, :, None] == segment_ids[:, None, None, :]


def window_mask(length: int, window: int, mask: jax.Array | None) -> jax.Array:
  """Returns `mask` restricted to positions at most `window` apart.

  Args:
    length: T.
    window: how far a position sees, in either direction.
    mask: bool [B, 1, T, T], or None.

  Returns:
    bool [B, 1, T, T]; without `mask` [1, 1, T, T].
  """
  places = jnp.arange(length)
  near = jnp.abs(places[:, None] - places[None, :]) <= window
  near = near[None, None]
  if mask is None:
    return near
  return mask & jnp.broadcast_to(near, mask.shape)


def memory_mask(
  segment_ids: jax.Array | None,
  memory_segment_ids: jax.Array | None,
  *,
  length: int,
) -> jax.Array | None:
  """Returns the mask of cross-attention from a row to its paired row.

  Segment k of a packed row sees segment k of the paired row, or nothing if
  that row has no segment k. Before: segment_ids [[1, 2, 0]],
  memory_segment_ids [[1, 1, 2, 0]]; after: [[T, T, F, F], [F, F, T, F],
  [F, F, F, T]].

  Args:
    segment_ids: int32 [B, T]; None for one segment without padding.
    memory_segment_ids: int32 [B, S], 0 at padding; None if there is none and
      every position sees all of the memory.
    length: T.

  Returns:
    bool [B, 1, T, S], or None if everything is seen.
  """
  if memory_segment_ids is None:
    return None
  if segment_ids is None:
    segment_ids = jnp.ones((memory_segment_ids.shape[0], length), jnp.int32)
  return segment_ids[:, None, :, None] == memory_segment_ids[:, None, None, :]


def attend(
  query: jax.Array,
  key: jax.Array,
  value: jax.Array,
  mask: jax.Array | None,
  *,
  backend: _Backend,
  dropout_rate: float = 0.0,
  dropout_key: jax.Array | None = None,
) -> jax.Array:
  """softmax(q kᵀ / √D + mask) v, the softmax in float32.

  Args:
    query: [B, T, N, D].
    key: [B, S, K, D]; K divides N.
    value: [B, S, K, D].
    mask: bool [B or 1, 1, T, S], or None if everything is seen.
    backend: which implementation.
    dropout_rate: on probabilities; XLA only.
    dropout_key: key of the dropout; None without dropout.

  Returns:
    [B, T, N, D] in the dtype of `query`.

  Raises:
    ConfigError: the backend cannot do this on this machine.
  """
  rate = 0.0 if dropout_key is None else dropout_rate
  backend = resolve_backend(
    backend,
    Case(
      query.dtype.name,
      query.shape[-1],
      query.shape[1],
      mask is not None,
      rate,
      targets.current().capability,
      key.shape[1],
    ),
  )
  if rate:
    return _attend_with_dropout(
      query, key, value, mask, rate=rate, dropout_key=dropout_key
    )
  return jax.nn.dot_product_attention(
    query,
    key,
    value,
    mask=mask,
    implementation='cudnn' if backend is _Backend.CUDNN else 'xla',
  )


def _attend_with_dropout(query, key, value, mask, *, rate, dropout_key):
  """Computes `attend` with dropout on the probabilities."""
  repeats = query.shape[2] // key.shape[2]
  if repeats > 1:
    key, value = (jnp.repeat(x, repeats, axis=2) for x in (key, value))
  logits = jnp.einsum(
    'btnd,bsnd->bnts', query, key, preferred_element_type=jnp.float32
  )
  logits = logits * query.shape[-1] ** -0.5
  if mask is not None:
    logits = jnp.where(mask, logits, MASKED_SCORE)
  weights = jax.nn.softmax(logits, axis=-1).astype(value.dtype)
  weights = dropout.drop(dropout_key, weights, rate=rate)
  return jnp.einsum('bnts,bsnd->btnd', weights, value)


class Case(NamedTuple):
  """What the choice of a backend depends on.

  Attributes:
    dtype: of queries, keys and values.
    head_dim: width of a head.
    length: number of queries.
    masked: whether there is a mask.
    dropout_rate: on attention probabilities; 0 outside training.
    capability: compute capability of the GPU; None without an NVIDIA GPU.
    memory_length: number of keys; None if it is that of queries.
  """

  dtype: str
  head_dim: int
  length: int
  masked: bool
  dropout_rate: float
  capability: tuple[int, ...] | None
  memory_length: int | None = None


def resolve_backend(backend: _Backend, case: Case) -> _Backend:
  """Returns XLA or CUDNN: the configured one, or AUTO's choice (logged once).

  Raises:
    ConfigError: cuDNN was asked for where it cannot be used.
  """
  if backend is _Backend.XLA:
    return backend
  obstacle = _cudnn_obstacle(case)
  if backend is _Backend.AUTO:
    chosen = _Backend.XLA if obstacle else _Backend.CUDNN
    _log_choice(chosen, obstacle)
    return chosen
  if obstacle:
    raise errors.ConfigError(
      'cuDNN attention cannot be used here',
      got=obstacle[0],
      expected=obstacle[1],
      where='EncoderConfig.attention_backend',
      fix="change that, or set attention_backend to 'xla' or 'auto'",
    )
  return backend


@functools.lru_cache
def _log_choice(chosen: _Backend, obstacle: tuple[str, str] | None) -> None:
  reason = f' ({obstacle[0]}; cuDNN needs {obstacle[1]})' if obstacle else ''
  logging.getLogger(__name__).info(
    'Attention backend: %s%s.', str(chosen), reason
  )


def _cudnn_obstacle(case: Case) -> tuple[str, str] | None:
  """Returns (got, expected) of the first unmet condition of cuDNN."""
  if case.capability is None:
    return 'no NVIDIA GPU', 'one of compute capability 8.0 or later'
  if case.capability < (8, 0):
    return (
      f'compute capability {".".join(map(str, case.capability))}',
      '8.0 or later',
    )
  if case.dtype not in ('bfloat16', 'float16'):
    return f'dtype = {case.dtype}', "dtype = 'bfloat16'"
  if case.dropout_rate:
    return (
      f'attention_dropout_rate = {case.dropout_rate} in training',
      'attention_dropout_rate = 0',
    )
  if case.head_dim % 8 or case.head_dim > 128:
    return f'heads of width {case.head_dim}', 'a multiple of 8, at most 128'
  for length in (case.length, case.memory_length or 0):
    if case.masked and length % 2:
      return f'masked rows of {length} tokens', 'an even number'
  return None
