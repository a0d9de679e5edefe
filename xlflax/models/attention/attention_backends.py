"""Attention over segments, through one of several backends."""

import functools
import logging
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlflax.models import compile_targets, dropout
from xlflax.models import encoder_config as model_config
from xlflax.models.attention import fused, masks
from xlflax.models.attention.masks import MASKED_SCORE
from xlflax.utils import errors

_Backend = model_config.AttentionBackend


def dot_product_attention(
  query: jax.Array,
  key: jax.Array,
  value: jax.Array,
  mask: masks.Mask | jax.Array | None,
  *,
  backend: _Backend,
  bias: jax.Array | None = None,
  scale: float | None = None,
  dropout_rate: float = 0.0,
  dropout_key: jax.Array | None = None,
) -> jax.Array:
  """softmax(scale q kᵀ + bias + mask) v, the softmax in float32.

  Args:
    query: [B, T, N, D].
    key: [B, S, K, D]; K divides N.
    value: [B, S, K, D].
    mask: a `Mask` or bool [B or 1, 1, T, S]; None if everything is seen.
    backend: which implementation.
    bias: float32 [1, N, T, S], or None.
    scale: of the products; None for 1 / √D.
    dropout_rate: on probabilities; not cuDNN.
    dropout_key: key of the dropout; None without dropout.

  Returns:
    [B, T, N, D] in the dtype of `query`. A query that sees nothing reads
    zeros.

  Raises:
    ConfigError: the backend cannot do this on this machine.
  """
  rate = 0.0 if dropout_key is None else dropout_rate
  chosen = resolve_backend(
    backend, Case.of(query, key, mask, bias=bias, dropout_rate=rate)
  )
  if chosen is _Backend.FUSED:
    assert mask is None or isinstance(mask, masks.Mask)  # see its obstacles
    return fused.sharded_attention(
      query,
      key,
      value,
      mask,
      bias=bias,
      scale=query.shape[-1] ** -0.5 if scale is None else scale,
      dropout_rate=rate,
      dropout_key=dropout_key,
    )
  attention_mask = masks.mask_array(mask, query.shape[1], key.shape[1])
  if rate or bias is not None or scale is not None:
    context = _plain(
      query,
      key,
      value,
      attention_mask,
      bias=bias,
      scale=scale,
      rate=rate,
      dropout_key=dropout_key,
    )
  else:
    context = jax.nn.dot_product_attention(
      query,
      key,
      value,
      mask=attention_mask,
      implementation='cudnn' if chosen is _Backend.CUDNN else 'xla',
    )
  if attention_mask is None or (
    isinstance(mask, masks.Mask) and mask.sees_itself
  ):
    return context
  sees = jnp.any(attention_mask, axis=-1)[
    :, 0, :, None, None
  ]  # [B or 1, T, 1, 1]
  return jnp.where(sees, context, jnp.zeros_like(context))


def _plain(query, key, value, mask, *, bias, scale, rate, dropout_key):
  """Computes `dot_product_attention` with all scores in memory."""
  repeats = query.shape[2] // key.shape[2]
  if repeats > 1:
    key, value = (jnp.repeat(x, repeats, axis=2) for x in (key, value))
  logits = jnp.einsum(
    'btnd,bsnd->bnts', query, key, preferred_element_type=jnp.float32
  )
  if scale != 1:
    logits = logits * (query.shape[-1] ** -0.5 if scale is None else scale)
  if bias is not None:
    logits = logits + jnp.broadcast_to(bias, logits.shape)
  if mask is not None:
    logits = jnp.where(mask, logits, MASKED_SCORE)
  weights = jax.nn.softmax(logits, axis=-1).astype(value.dtype)
  if rate:
    weights = dropout.drop_weights(dropout_key, weights, rate=rate)
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
    platform: 'cpu', 'gpu' or 'tpu'.
    biased: whether a bias is added to the scores.
    dense: whether the mask is an array of any content, not a `Mask`.
  """

  dtype: str
  head_dim: int
  length: int
  masked: bool
  dropout_rate: float
  capability: tuple[int, ...] | None
  memory_length: int | None = None
  platform: str = 'gpu'
  biased: bool = False
  dense: bool = False

  @classmethod
  def of(cls, query, key, mask, *, bias, dropout_rate: float) -> 'Case':
    """The case of `dot_product_attention`'s arguments on the current target."""
    target = compile_targets.current_target()
    return cls(
      query.dtype.name,
      query.shape[-1],
      query.shape[1],
      mask is not None,
      dropout_rate,
      target.capability,
      key.shape[1],
      target.platform,
      bias is not None,
      isinstance(mask, jax.Array),
    )


# What keeps a backend from a case, and what it needs instead.
_Obstacle = tuple[str, str]


def resolve_backend(backend: _Backend, case: Case) -> _Backend:
  """Returns the configured backend, or AUTO's choice, which is logged once.

  Raises:
    ConfigError: a backend was asked for where it cannot be used.
  """
  if backend is _Backend.XLA:
    return backend
  if backend is _Backend.AUTO:
    return _automatic(case)
  obstacle = _OBSTACLES[backend](case)
  if obstacle:
    raise errors.ConfigError(
      f'{_TITLES[backend]} attention cannot be used here',
      got=obstacle[0],
      expected=obstacle[1],
      where='EncoderConfig.attention_backend',
      fix="change that, or set attention_backend to 'xla' or 'auto'",
    )
  return backend


def _automatic(case: Case) -> _Backend:
  """Returns cuDNN if it supports the case, else fused attention, else XLA."""
  passed_over: list[tuple[str, _Obstacle]] = []
  for backend, obstacle_of in _OBSTACLES.items():
    obstacle = obstacle_of(case)
    if backend is _Backend.FUSED and case.platform == 'cpu':
      obstacle = 'a CPU', 'a GPU or a TPU'
    if obstacle is None:
      _log_choice(backend, tuple(passed_over))
      return backend
    passed_over.append((_TITLES[backend], obstacle))
  _log_choice(_Backend.XLA, tuple(passed_over))
  return _Backend.XLA


@functools.lru_cache
def _log_choice(
  chosen: _Backend, passed_over: tuple[tuple[str, _Obstacle], ...]
) -> None:
  reasons = '; '.join(
    f'{got}: {title} needs {expected}' for title, (got, expected) in passed_over
  )
  logging.getLogger(__name__).info(
    'Attention backend: %s%s.', str(chosen), f' ({reasons})' if reasons else ''
  )


def _gpu_obstacle(case: Case) -> _Obstacle | None:
  if case.capability is None:
    return 'no NVIDIA GPU', 'one of compute capability 8.0 or later'
  if case.capability < (8, 0):
    return (
      f'compute capability {".".join(map(str, case.capability))}',
      '8.0 or later',
    )
  if case.dtype not in ('bfloat16', 'float16'):
    return f'dtype = {case.dtype}', "dtype = 'bfloat16'"
  return None


def _cudnn_obstacle(case: Case) -> _Obstacle | None:
  """Returns (got, expected) of the first unmet condition of cuDNN.

  cuDNN has dropout, with a counter of its own that its forward and backward
  kernels each advance: under a scan over layers they would draw different
  masks, and the mask would not be that of the other backends.
  """
  obstacle = _gpu_obstacle(case)
  if obstacle:
    return obstacle
  if case.biased:
    return 'relative position biases', 'none'
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


def _fused_obstacle(case: Case) -> _Obstacle | None:
  """Returns (got, expected) of the first unmet condition of our kernels."""
  if case.platform == 'gpu' and (obstacle := _gpu_obstacle(case)):
    return obstacle
  if case.platform == 'tpu' and case.dtype != 'bfloat16':
    return f'dtype = {case.dtype}', "dtype = 'bfloat16'"
  if case.dense:
    return 'a mask as an array', 'segments, a window or none'
  if case.head_dim not in (16, 32, 64, 128):
    return f'heads of width {case.head_dim}', '16, 32, 64 or 128'
  return None


_OBSTACLES = {_Backend.CUDNN: _cudnn_obstacle, _Backend.FUSED: _fused_obstacle}
_TITLES = {_Backend.CUDNN: 'cuDNN', _Backend.FUSED: 'Fused'}
