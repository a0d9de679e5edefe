"""Functions that call the attention kernels for TPUs.

The block specs select the blocks of the arrays that each program reads and
writes. The axis of heads comes before the axis of positions, because the
registers of a TPU have two axes.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from xlflax.models.attention.fused import kernel_spec
from xlflax.models.attention.fused import mosaic_kernels as kernels

_Arrays = kernel_spec.Arrays
_Options = kernel_spec.Options


def run_forward(options: _Options, arrays: _Arrays):
  """Runs the attention forward-pass kernel.

  Args:
    options: Static options of the attention kernels.
    arrays: Input arrays of the kernels, padded to complete blocks.

  Returns:
    The output of shape [B, T, N, D] and the log-sum-exp of the scores, float32
    of shape [B, N, T].
  """
  batch, length, heads, width = arrays.query.shape
  shape = (batch, heads, length, width)
  output, normalizer = _call(
    kernels.forward_kernel,
    options,
    arrays,
    {},
    block=0,
    out=[
      (shape, arrays.query.dtype, 'query'),
      ((batch, heads, 1, length), jnp.float32, 'row'),
    ],
    name='attention_forward_heads_first',
  )
  return _positions_first(output), normalizer[:, :, 0]


def run_backward(
  options: _Options, arrays: _Arrays, output, normalizer, gradient
):
  """Runs the attention backward-pass kernel.

  Args:
    options: Static options of the attention kernels.
    arrays: Input arrays of the kernels, padded to complete blocks.
    output: Attention output of the forward pass, of shape [B, T, N, D].
    normalizer: Log-sum-exp of the scores in the forward pass, float32 of shape
      [B, N, T].
    gradient: Gradient with respect to the output, of shape [B, T, N, D].

  Returns:
    The gradients of query, key, value and bias. The last one is None if there
    is no bias.
  """
  batch, length, heads, width = arrays.query.shape
  memory_length, groups = arrays.key.shape[1:3]
  delta = kernel_spec.output_gradient_products(options, output, gradient)
  backward_inputs = {
    'gradient': _heads_first(gradient),
    'normalizer': normalizer[:, :, None] * kernel_spec.LOG2_E,
    'delta': delta[:, :, None],
  }
  # The kernel returns a gradient for each query head. The gradients of heads
  # that share keys are summed below. If there is a bias, the kernel
  # also returns a gradient of the queries for each block of keys.
  shape = (batch, heads, memory_length, width)
  num_partial_sums = (
    1 if arrays.bias is None else memory_length // options.block[1]
  )
  out: list[Any] = [
    (shape, arrays.key.dtype, 'memory'),
    (shape, arrays.key.dtype, 'memory'),
    (
      (num_partial_sums, batch, heads, length, width),
      arrays.query.dtype if num_partial_sums == 1 else jnp.float32,
      'partial_sum',
    ),
  ]
  if arrays.bias is not None:
    out.append(((heads, memory_length, length), jnp.float32, 'bias'))
  d_key, d_value, d_query, *d_bias = _call(
    kernels.gradient_kernel,
    options,
    arrays,
    backward_inputs,
    block=1,
    out=out,
    name='attention_gradients_heads_first',
    sums_shape=(width, length),
  )
  d_key, d_value = (
    _positions_first(
      jnp.sum(x.reshape(batch, groups, -1, memory_length, width), axis=2)
    )
    for x in (d_key, d_value)
  )
  d_query = jnp.sum(d_query, axis=0).astype(arrays.query.dtype)
  return (
    _positions_first(d_query),
    d_key,
    d_value,
    jnp.swapaxes(d_bias[0], 1, 2) / (1 - options.rate) if d_bias else None,
  )


def _call(
  kernel, options, arrays, extra_inputs, *, block, out, name, sums_shape=None
):
  """Calls a kernel for each block of queries or keys, sequence and head.

  If there is a bias, the sequence is the last axis of the grid. A block of the
  bias and its gradient then stay on the chip for all sequences. The last axis
  runs in order on one core. If a chip has two cores, the other axes are divided
  between the cores.

  Args:
    kernel: Kernel that is called with the options, the array references (`Ref`)
      by name, and the block index (sequence, head, block).
    options: Static options of the attention kernels.
    arrays: Input arrays of the kernels, padded to complete blocks.
    extra_inputs: Mapping from names to additional input arrays.
    block: Type of the blocks along the grid's block axis: 0 for query blocks
      and 1 for key blocks.
    out: List with the shape, dtype and block spec name of each result.
    name: Name of the kernel in profiles.
    sums_shape: Shape of a float32 scratch buffer that is kept between blocks.
      If None, the kernel has no such buffer.
  """
  batch_last = arrays.bias is not None
  specs = _block_specs(options, arrays, block, batch_last)
  inputs = _common_inputs(arrays) | {
    key: (array, 'query' if key == 'gradient' else 'row')
    for key, array in extra_inputs.items()
  }
  names = [*inputs, *(f'out_{i}' for i in range(len(out)))]
  if sums_shape:
    names.append('sums')

  def run(*references):
    ids = [pl.program_id(i) for i in range(3)]
    block_index = (ids[2], ids[0], ids[1]) if batch_last else tuple(ids)
    kernel(options, dict(zip(names, references, strict=True)), block_index)

  batch, length, heads, _ = arrays.query.shape
  num_blocks = (length, arrays.key.shape[1])[block] // options.block[block]
  return pl.pallas_call(
    run,
    grid=(
      (heads, num_blocks, batch) if batch_last else (batch, heads, num_blocks)
    ),
    in_specs=[specs[spec_name] for _, spec_name in inputs.values()],
    out_specs=[specs[spec_name] for _, _, spec_name in out],
    out_shape=[jax.ShapeDtypeStruct(shape, dtype) for shape, dtype, _ in out],
    scratch_shapes=(
      [pltpu.VMEM(sums_shape, jnp.float32)] if sums_shape else []
    ),
    compiler_params=pltpu.CompilerParams(
      dimension_semantics=('parallel', 'parallel', 'arbitrary')
    ),
    name=name,
    interpret=options.interpret,
  )(*(array for array, _ in inputs.values()))


def _common_inputs(arrays: _Arrays):
  """Returns the inputs of all kernels: name -> (array, block spec name)."""
  inputs = {
    'query': (_heads_first(arrays.query), 'query'),
    'key': (_heads_first(arrays.key), 'key'),
    'value': (_heads_first(arrays.value), 'key'),
  }
  if arrays.window is not None:
    inputs['window'] = arrays.window, 'window'
  if arrays.bias is not None:
    inputs['bias'] = jnp.swapaxes(arrays.bias, 1, 2), 'bias'
  if arrays.query_segments is not None and arrays.key_segments is not None:
    inputs['query_segments'] = arrays.query_segments[:, None], 'query_segments'
    inputs['key_segments'] = arrays.key_segments[:, :, None], 'key_segments'
  if arrays.row_bits is not None and arrays.column_bits is not None:
    inputs['row_bits'] = arrays.row_bits[:, :, None], 'row'
    inputs['column_bits'] = arrays.column_bits[:, None], 'column'
  return inputs


def _block_specs(options, arrays, block, batch_last):
  """Returns the block specs of a program by name.

  The index functions take a sequence b, a head n and a block i.
  """
  _, length, heads, width = arrays.query.shape
  memory_length, groups = arrays.key.shape[1:3]
  repeats = heads // groups
  queries, keys = options.block
  t, s = (queries, memory_length) if block == 0 else (length, keys)
  at_t = (lambda i: i) if block == 0 else (lambda i: 0)
  at_s = (lambda i: i) if block == 1 else (lambda i: 0)

  def spec(shape, index):
    def index_map(*ids):
      b, n, i = (ids[2], ids[0], ids[1]) if batch_last else ids
      return index(b, n, i)

    return pl.BlockSpec(shape, index_map)

  return {
    'query': spec((None, None, t, width), lambda b, n, i: (b, n, at_t(i), 0)),
    'key': spec(
      (None, None, s, width),
      lambda b, n, i: (b, kernel_spec.exact_quotient(n, repeats), at_s(i), 0),
    ),
    'partial_sum': spec(
      (None, None, None, t, width),
      lambda b, n, i: (i if batch_last else 0, b, n, 0, 0),
    ),
    'memory': spec((None, None, s, width), lambda b, n, i: (b, n, at_s(i), 0)),
    'row': spec((None, None, 1, t), lambda b, n, i: (b, n, 0, at_t(i))),
    'column': spec((s, 1), lambda b, n, i: (at_s(i), 0)),
    'bias': spec((None, s, t), lambda b, n, i: (n, at_s(i), at_t(i))),
    'query_segments': spec((None, 1, t), lambda b, n, i: (b, 0, at_t(i))),
    'key_segments': spec((None, s, 1), lambda b, n, i: (b, at_s(i), 0)),
    'window': pl.BlockSpec(memory_space=pltpu.SMEM),
  }


def _heads_first(array: jax.Array) -> jax.Array:
  """Swaps the axes of positions and heads of an array [B, T, N, D]."""
  return jnp.swapaxes(array, 1, 2)


def _positions_first(array: jax.Array) -> jax.Array:
  """Swaps the axes of heads and positions of an array [B, N, T, D]."""
  return jnp.swapaxes(array, 1, 2)
