"""Forward and backward passes of fused attention on a single device.

Queries and keys are padded to complete blocks before the kernels run.
"""

import functools

import jax
import jax.numpy as jnp

from xlflax.models.attention.fused import kernel_spec

_MAX_GPU_BLOCK = 64
_MIN_GPU_BLOCK = 16  # Smallest matrix multiplication in Triton.
_MAX_TPU_BLOCK = 512
_MIN_TPU_BLOCK = 128  # Number of lanes of a TPU register.


def block_sizes(
  length: int, memory_length: int, platform: str
) -> tuple[int, int]:
  """Returns the numbers of queries and keys per block.

  Args:
    length: Number of queries.
    memory_length: Number of keys.
    platform: 'tpu' for the TPU kernels. Any other value selects the GPU
      kernels.
  """
  block_size = _tpu_block_size if platform == 'tpu' else _gpu_block_size
  return block_size(length), block_size(memory_length)


def _tpu_block_size(length: int) -> int:
  """Returns the largest block size that adds at most 25 % padding."""
  block = _MAX_TPU_BLOCK
  while block > _MIN_TPU_BLOCK:
    padded_length = -(-length // block) * block
    if padded_length * 4 <= 5 * length:
      break
    block //= 2
  return block


def _gpu_block_size(length: int) -> int:
  """Returns the smallest power of two >= `length`, within limits."""
  block = _MIN_GPU_BLOCK
  while block < min(length, _MAX_GPU_BLOCK):
    block *= 2
  return block


def attention_forward(options: kernel_spec.Options, arrays: kernel_spec.Arrays):
  """Computes attention with the fused GPU or TPU kernels.

  Args:
    options: Static options of the attention kernels.
    arrays: Input arrays of the kernels: queries, keys, values, and optionally
      the bias, segment ids, window and dropout key.

  Returns:
    The output of shape [B, T, N, D] and the log-sum-exp of the scores, float32
    of shape [B, N, T].
  """
  output, normalizer = _kernels(options).run_forward(
    options, _pad_arrays(options, arrays)
  )
  length = options.length
  return output[:, :length], normalizer[:, :, :length]


def attention_backward(
  options: kernel_spec.Options,
  arrays: kernel_spec.Arrays,
  output: jax.Array,
  normalizer: jax.Array,
  gradient: jax.Array,
):
  """Computes attention gradients with the fused GPU or TPU kernels.

  Args:
    options: Static options of the attention kernels.
    arrays: Input arrays of the kernels: queries, keys, values, and optionally
      the bias, segment ids, window and dropout key.
    output: Attention output of the forward pass, of shape [B, T, N, D].
    normalizer: Log-sum-exp of the scores in the forward pass, float32 of shape
      [B, N, T].
    gradient: Gradient with respect to the output, of shape [B, T, N, D].

  Returns:
    The gradients of query, key, value and bias. The last one is None if there
    is no bias.
  """
  length, memory_length = options.length, options.memory_length
  pad = functools.partial(_pad_to_multiple, size=options.block[0])
  d_query, d_key, d_value, d_bias = _kernels(options).run_backward(
    options,
    _pad_arrays(options, arrays),
    pad(output, axis=1),
    pad(normalizer, axis=2),
    pad(gradient, axis=1),
  )
  return (
    d_query[:, :length],
    d_key[:, :memory_length],
    d_value[:, :memory_length],
    None if d_bias is None else d_bias[:, :length, :memory_length],
  )


def _kernels(options: kernel_spec.Options):
  """Returns the module that runs the kernels. Pallas is imported on demand."""
  if options.platform == 'tpu':
    from xlflax.models.attention.fused import tpu_attention

    return tpu_attention
  from xlflax.models.attention.fused import gpu_attention

  return gpu_attention


def _pad_arrays(options, arrays: kernel_spec.Arrays) -> kernel_spec.Arrays:
  """Pads queries and keys to complete blocks.

  The padded keys get a segment that no query has.
  """
  queries, keys = options.block
  bias = arrays.bias
  if bias is not None:
    bias = _pad_to_multiple(
      _pad_to_multiple(bias, size=queries, axis=1), size=keys, axis=2
    )
  return arrays._replace(
    query=_pad_to_multiple(arrays.query, size=queries, axis=1),
    key=_pad_to_multiple(arrays.key, size=keys, axis=1),
    value=_pad_to_multiple(arrays.value, size=keys, axis=1),
    bias=bias,
    query_segments=_pad_to_multiple(
      arrays.query_segments, size=queries, axis=1
    ),
    key_segments=_pad_to_multiple(
      arrays.key_segments, size=keys, axis=1, value=-1
    ),
    row_bits=_pad_to_multiple(arrays.row_bits, size=queries, axis=2),
    column_bits=_pad_to_multiple(arrays.column_bits, size=keys, axis=0),
  )


def _pad_to_multiple(array, *, size: int, axis: int, value: int = 0):
  """Pads an axis to a multiple of `size`."""
  if array is None or array.shape[axis] % size == 0:
    return array
  widths = [(0, 0)] * array.ndim
  widths[axis] = (0, -array.shape[axis] % size)
  return jnp.pad(array, widths, constant_values=value)
