"""Attention of one device: blocks filled up, gradients by the kernels."""

import functools

import jax
import jax.numpy as jnp

from xlflax.models.attention.fused import kernel_spec

_BLOCK = 64
_LANES = 128  # of a TPU's register
_TPU_BLOCK = 512
_LEAST_BLOCK = 16  # of a matrix product in Triton


def block_sizes(
  length: int, memory_length: int, platform: str
) -> tuple[int, int]:
  """Returns the sizes of a block of queries and of one of keys."""
  block = _tpu_block if platform == 'tpu' else _block
  return block(length), block(memory_length)


def _tpu_block(length: int) -> int:
  """The largest block that fills a row up by no more than a quarter."""
  block = _TPU_BLOCK
  while block > _LANES and -(-length // block) * block * 4 > 5 * length:
    block //= 2
  return block


def _block(length: int) -> int:
  block = _LEAST_BLOCK
  while block < min(length, _BLOCK):
    block *= 2
  return block


def attention_forward(options: kernel_spec.Options, arrays: kernel_spec.Arrays):
  """Returns the output [B, T, N, D] and log-sum-exp [B, N, T]."""
  output, normaliser = _kernels(options).run_forward(
    options, _filled(options, arrays)
  )
  length = options.length
  return output[:, :length], normaliser[:, :, :length]


def attention_backward(
  options: kernel_spec.Options,
  arrays: kernel_spec.Arrays,
  output: jax.Array,
  normaliser: jax.Array,
  gradient: jax.Array,
):
  """Returns the gradients of query, key, value and bias (None without)."""
  length, memory_length = options.length, options.memory_length
  fill = functools.partial(_fill, size=options.block[0])
  d_query, d_key, d_value, d_bias = _kernels(options).run_backward(
    options,
    _filled(options, arrays),
    fill(output, axis=1),
    fill(normaliser, axis=2),
    fill(gradient, axis=1),
  )
  return (
    d_query[:, :length],
    d_key[:, :memory_length],
    d_value[:, :memory_length],
    None if d_bias is None else d_bias[:, :length, :memory_length],
  )


def _kernels(options: kernel_spec.Options):
  """Returns the module of kernels; Pallas is imported where it is used."""
  if options.platform == 'tpu':
    from xlflax.models.attention.fused import tpu_attention

    return tpu_attention
  from xlflax.models.attention.fused import gpu_attention

  return gpu_attention


def _filled(options, arrays: kernel_spec.Arrays) -> kernel_spec.Arrays:
  """Fills rows up to whole blocks, with keys of a segment of their own."""
  queries, keys = options.block
  bias = arrays.bias
  if bias is not None:
    bias = _fill(_fill(bias, size=queries, axis=1), size=keys, axis=2)
  return arrays._replace(
    query=_fill(arrays.query, size=queries, axis=1),
    key=_fill(arrays.key, size=keys, axis=1),
    value=_fill(arrays.value, size=keys, axis=1),
    bias=bias,
    query_segments=_fill(arrays.query_segments, size=queries, axis=1),
    key_segments=_fill(arrays.key_segments, size=keys, axis=1, value=-1),
    row_bits=_fill(arrays.row_bits, size=queries, axis=2),
    column_bits=_fill(arrays.column_bits, size=keys, axis=0),
  )


def _fill(array, *, size: int, axis: int, value: int = 0):
  """Fills an axis up to a multiple of `size`."""
  if array is None or array.shape[axis] % size == 0:
    return array
  widths = [(0, 0)] * array.ndim
  widths[axis] = (0, -array.shape[axis] % size)
  return jnp.pad(array, widths, constant_values=value)
