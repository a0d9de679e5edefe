"""Dot-product attention with a choice of implementations (backends).

Shapes use these letters: B is the batch size, T the number of queries, S the
number of keys, N the number of query heads, K the number of key and value
heads, and D the width of a head.
"""

import functools
import logging
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlflax.models import compile_targets, dropout, encoder_config
from xlflax.models.attention import fused, masks
from xlflax.models.attention.masks import MASKED_SCORE
from xlflax.utils import errors

_Backend = encoder_config.AttentionBackend
# Location of an unsupported backend in error messages.
_BACKEND_LOCATION = 'EncoderConfig.attention_backend'


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
  """Computes softmax(scale q kᵀ + bias + mask) v, with a float32 softmax.

  Args:
    query: Queries of shape [B, T, N, D].
    key: Keys of shape [B, S, K, D], where K divides N.
    value: Values of shape [B, S, K, D].
    mask: Attention mask, a `Mask` or a bool array of shape [B or 1, 1, T, S].
      If None, every query attends to every key.
    backend: Attention backend to use. AUTO selects a backend that supports the
      arguments.
    bias: Bias added to the attention scores, float32 of shape [1, N, T, S], or
      None.
    scale: Factor by which the scores are multiplied. If None, it is 1 / √D.
    dropout_rate: Dropout rate for the attention probabilities. cuDNN does not
      support dropout.
    dropout_key: Random key for dropout. If None, dropout is not applied.

  Returns:
    An array of shape [B, T, N, D] and the dtype of `query`. A query that
    attends to no key yields zeros.

  Raises:
    ConfigError: If the backend does not support the arguments on this device.
  """
  rate = 0.0 if dropout_key is None else dropout_rate
  case = Case.from_arrays(query, key, mask, bias=bias, dropout_rate=rate)
  resolved_backend = resolve_backend(backend, case)

  if resolved_backend is _Backend.FUSED:
    # `_fused_limitation` excludes arrays.
    assert mask is None or isinstance(mask, masks.Mask)
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
    context = _unfused_attention(
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
      implementation=('cudnn' if resolved_backend is _Backend.CUDNN else 'xla'),
    )

  if attention_mask is None or (
    isinstance(mask, masks.Mask) and mask.sees_itself
  ):
    return context
  # Set queries without any visible key to zero. Shape: [B or 1, T, 1, 1].
  has_visible_keys = jnp.any(attention_mask, axis=-1)[:, 0, :, None, None]
  return jnp.where(has_visible_keys, context, jnp.zeros_like(context))


def _unfused_attention(
  query, key, value, mask, *, bias, scale, rate, dropout_key
):
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
  """Properties of an attention call that determine which backends support it.

  Attributes:
    dtype: Data type of queries, keys and values.
    head_dim: Width of an attention head.
    length: Number of queries per sequence.
    masked: Whether the call has an attention mask.
    dropout_rate: Dropout rate for the attention probabilities. It is 0 outside
      of training.
    capability: Compute capability of the GPU. None without an NVIDIA GPU.
    memory_length: Number of keys per sequence. If None, it equals the number of
      queries.
    platform: Platform of the device, 'cpu', 'gpu' or 'tpu'.
    biased: Whether a bias is added to the attention scores.
    dense: Whether the mask is an arbitrary array instead of a `Mask`.
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
  def from_arrays(
    cls, query, key, mask, *, bias, dropout_rate: float
  ) -> 'Case':
    """Creates the description of an attention call from its arrays.

    Args:
      query: Queries of shape [B, T, N, D].
      key: Keys of shape [B, S, K, D].
      mask: Attention mask: a `Mask`, a bool array, or None.
      bias: Bias added to the attention scores, float32 of shape [1, N, T, S],
        or None.
      dropout_rate: Dropout rate for the attention probabilities.
    """
    target = compile_targets.current_target()
    return cls(
      dtype=query.dtype.name,
      head_dim=query.shape[-1],
      length=query.shape[1],
      masked=mask is not None,
      dropout_rate=dropout_rate,
      capability=target.capability,
      memory_length=key.shape[1],
      platform=target.platform,
      biased=bias is not None,
      dense=isinstance(mask, jax.Array),
    )


# Unsupported property of an attention call, and the property that the backend
# requires.
_Limitation = tuple[str, str]


def resolve_backend(backend: _Backend, case: Case) -> _Backend:
  """Returns the configured backend, or the backend selected by AUTO.

  Each selection is logged once.

  Args:
    backend: Configured attention backend.
    case: Properties of the attention call.

  Raises:
    ConfigError: If the configured backend does not support the call's
      properties.
  """
  if backend is _Backend.XLA:
    return backend
  if backend is _Backend.AUTO:
    return _select_backend(case)
  limitation = _LIMITATIONS[backend](case)
  if limitation:
    value, expected = limitation
    raise errors.ConfigError(
      f'{_TITLES[backend]} attention does not support the model or the device',
      got=value,
      expected=expected,
      where=_BACKEND_LOCATION,
      fix="Change the unsupported setting, or set attention_backend to 'xla' "
      "or 'auto'.",
    )
  return backend


def _select_backend(case: Case) -> _Backend:
  """Returns cuDNN if it supports the case, else fused attention, else XLA."""
  rejected: list[tuple[str, _Limitation]] = []
  for backend, find_limitation in _LIMITATIONS.items():
    limitation = find_limitation(case)
    if backend is _Backend.FUSED and case.platform == 'cpu':
      # On CPUs, the fused kernels are only interpreted.
      limitation = 'a CPU', 'a GPU or a TPU'
    if limitation is None:
      _log_backend(backend, tuple(rejected))
      return backend
    rejected.append((_TITLES[backend], limitation))
  _log_backend(_Backend.XLA, tuple(rejected))
  return _Backend.XLA


@functools.lru_cache
def _log_backend(
  backend: _Backend, rejected: tuple[tuple[str, _Limitation], ...]
) -> None:
  """Logs the selected backend and the limitations of the rejected ones."""
  reasons = '; '.join(
    f'{title} attention requires {expected}, got {value}'
    for title, (value, expected) in rejected
  )
  logging.getLogger(__name__).info(
    'Attention backend: %s%s.', str(backend), f' ({reasons})' if reasons else ''
  )


def _gpu_limitation(case: Case) -> _Limitation | None:
  """Returns the first requirement of GPU kernels that is not met."""
  if case.capability is None:
    return 'no NVIDIA GPU', 'a GPU of compute capability 8.0 or later'
  if case.capability < (8, 0):
    return (
      f'compute capability {".".join(map(str, case.capability))}',
      'compute capability 8.0 or later',
    )
  if case.dtype not in ('bfloat16', 'float16'):
    return f'dtype={case.dtype!r}', "dtype='bfloat16'"
  return None


def _cudnn_limitation(case: Case) -> _Limitation | None:
  """Returns the first requirement of cuDNN that is not met.

  cuDNN supports dropout, but with an internal counter that its forward and
  backward kernels both advance. In a scan over layers, the two passes would
  draw different masks, which would also differ from the masks of other
  backends.
  """
  limitation = _gpu_limitation(case)
  if limitation:
    return limitation
  if case.biased:
    return 'relative position biases', 'no biases'
  if case.dropout_rate:
    return (
      f'attention_dropout_rate={case.dropout_rate} in training',
      'attention_dropout_rate=0',
    )
  if case.head_dim % 8 or case.head_dim > 128:
    return (
      f'heads of width {case.head_dim}',
      'a head width that is a multiple of 8 and at most 128',
    )
  for length in (case.length, case.memory_length or 0):
    if case.masked and length % 2:
      return (
        f'masked sequences of {length} tokens',
        'an even number of tokens per masked sequence',
      )
  return None


def _fused_limitation(case: Case) -> _Limitation | None:
  """Returns the first requirement of the fused kernels that is not met."""
  if case.platform == 'gpu' and (limitation := _gpu_limitation(case)):
    return limitation
  if case.platform == 'tpu' and case.dtype != 'bfloat16':
    return f'dtype={case.dtype!r}', "dtype='bfloat16'"
  if case.dense:
    return 'a mask as an array', 'segments, a window or no mask'
  if case.head_dim not in (16, 32, 64, 128):
    return (
      f'heads of width {case.head_dim}',
      'a head width of 16, 32, 64 or 128',
    )
  return None


_LIMITATIONS = {
  _Backend.CUDNN: _cudnn_limitation,
  _Backend.FUSED: _fused_limitation,
}
_TITLES = {_Backend.CUDNN: 'cuDNN', _Backend.FUSED: 'Fused'}
