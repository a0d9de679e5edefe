"""Functions that call the attention kernels for GPUs.

The block specs select the blocks of the arrays that each program reads and
writes.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from xlflax.models.attention.fused import kernel_spec
from xlflax.models.attention.fused import triton_kernels as kernels

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
  return _call(
    kernels.forward_kernel,
    options,
    arrays,
    {},
    grid=(length // options.block[0], batch, heads),
    block=0,
    out=[
      (arrays.query.shape, arrays.query.dtype, 'queries'),
      ((batch, heads, length), jnp.float32, 'query_row'),
    ],
    name='attention_forward',
  )


def run_backward(
  options: _Options, arrays: _Arrays, output, normalizer, gradient
):
  """Runs the attention backward-pass kernels.

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
    'gradient': gradient,
    'normalizer': normalizer,
    'delta': delta,
  }
  (d_query,) = _call(
    kernels.query_kernel,
    options,
    arrays,
    backward_inputs,
    grid=(length // options.block[0], batch, heads),
    block=0,
    out=[(arrays.query.shape, arrays.query.dtype, 'queries')],
    name='attention_query_gradient',
  )
  # The kernel returns a gradient for each query head. The gradients of heads
  # that share keys are summed below.
  shape = (batch, memory_length, heads, width)
  d_key, d_value = _call(
    kernels.memory_kernel,
    options,
    arrays,
    backward_inputs,
    grid=(memory_length // options.block[1], batch, heads),
    block=1,
    out=[(shape, arrays.key.dtype, 'keys')] * 2,
    name='attention_memory_gradient',
  )
  if groups != heads:
    d_key, d_value = (
      jnp.sum(x.reshape(*shape[:2], groups, -1, width), axis=3)
      for x in (d_key, d_value)
    )
  d_bias = None
  if arrays.bias is not None:
    d_bias = _bias_gradient(options, arrays, backward_inputs)
  return d_query, d_key, d_value, d_bias


def _bias_gradient(options, arrays, backward_inputs):
  """Returns the score gradients summed over the batch, float32 [N, T, S]."""
  batch, length, heads, width = arrays.query.shape
  memory_length = arrays.key.shape[1]
  grid = (length // options.block[0], memory_length // options.block[1], heads)
  (bias_gradient,) = _call(
    functools.partial(kernels.bias_kernel, batch=batch),
    options,
    arrays,
    backward_inputs,
    grid=grid,
    block=None,
    out=[((heads, length, memory_length), jnp.float32, 'bias_block')],
    name='attention_bias_gradient',
  )
  return bias_gradient


def _call(kernel, options, arrays, extra_inputs, *, grid, block, out, name):
  """Calls a kernel with a dictionary of references.

  Args:
    kernel: Kernel function, called with the options and a mapping from names to
      Pallas references.
    options: Static options of the attention kernels.
    arrays: Input arrays of the kernels, padded to complete blocks.
    extra_inputs: Mapping from names to additional input arrays.
    grid: Shape of the grid of programs. It is (blocks, batch, heads), except
      for `bias_kernel`.
    block: Type of the blocks along the grid's block axis: 0 for query blocks
      and 1 for key blocks. None for `bias_kernel`, whose grid has both axes.
    out: List with the shape, dtype and block spec name of each result.
    name: Name of the kernel in profiles.
  """
  inputs = {
    'query': arrays.query,
    'key': arrays.key,
    'value': arrays.value,
    'bias': arrays.bias,
    'query_segments': arrays.query_segments,
    'key_segments': arrays.key_segments,
    'window': arrays.window,
    'row_bits': arrays.row_bits,
    'column_bits': arrays.column_bits,
  } | extra_inputs
  if block is not None and arrays.query_segments is not None:
    inputs['has_segments'] = _has_segments(
      arrays.query_segments, arrays.key_segments
    )
  inputs = {key: value for key, value in inputs.items() if value is not None}
  specs = _block_specs(options, arrays, block)
  names = list(inputs) + [f'out_{i}' for i in range(len(out))]

  def run(*references):
    kernel(options, dict(zip(names, references, strict=True)))

  return pl.pallas_call(
    run,
    grid=grid,
    in_specs=[specs[_SPEC_NAMES[key]] for key in inputs],
    out_specs=[specs[spec_name] for _, _, spec_name in out],
    out_shape=[jax.ShapeDtypeStruct(shape, dtype) for shape, dtype, _ in out],
    name=name,
    interpret=options.interpret,
    compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=2),
  )(*inputs.values())


def _has_segments(query_segments, key_segments) -> jax.Array:
  """Returns 1 for sequences with several segments, int32 of shape [B].

  Padding is a segment of its own.
  """
  first = query_segments[:, :1]
  is_single = jnp.all(query_segments == first, axis=1)
  is_single &= jnp.all(key_segments == first, axis=1)
  return 1 - is_single.astype(jnp.int32)


# Name of each input -> name of its block spec in `_block_specs`.
_SPEC_NAMES = {
  'query': 'queries',
  'key': 'grouped_keys',
  'value': 'grouped_keys',
  'bias': 'bias',
  'query_segments': 'query_segments',
  'key_segments': 'key_segments',
  'window': 'window',
  'has_segments': 'sequence',
  'row_bits': 'query_row',
  'column_bits': 'columns',
  'gradient': 'queries',
  'normalizer': 'query_row',
  'delta': 'query_row',
}


def _block_specs(options: _Options, arrays: _Arrays, block: int | None):
  """Returns the block specs of a program (i, b, n) by name.

  Index i is a block, b a sequence and n a head.
  """
  batch, length, heads, width = arrays.query.shape
  memory_length, groups = arrays.key.shape[1:3]
  repeats = heads // groups
  queries, keys = options.block
  if block is None:
    return _bias_block_specs(options, arrays, repeats)
  t, s = (queries if block == 0 else length), (keys if block else memory_length)
  at_t = (lambda i: i) if block == 0 else (lambda i: 0)
  at_s = (lambda i: i) if block == 1 else (lambda i: 0)
  spec = pl.BlockSpec
  return {
    'queries': spec((None, t, None, width), lambda i, b, n: (b, at_t(i), n, 0)),
    'keys': spec((None, s, None, width), lambda i, b, n: (b, at_s(i), n, 0)),
    'grouped_keys': spec(
      (None, s, None, width), lambda i, b, n: (b, at_s(i), n // repeats, 0)
    ),
    'bias': spec((None, t, s), lambda i, b, n: (n, at_t(i), at_s(i))),
    'query_segments': spec((None, t), lambda i, b, n: (b, at_t(i))),
    'key_segments': spec((None, s), lambda i, b, n: (b, at_s(i))),
    'query_row': spec((None, None, t), lambda i, b, n: (b, n, at_t(i))),
    'columns': spec((s,), lambda i, b, n: (at_s(i),)),
    'window': spec((1,), lambda i, b, n: (0,)),
    'sequence': spec((1,), lambda i, b, n: (b,)),
  }


def _bias_block_specs(options: _Options, arrays: _Arrays, repeats: int):
  """Returns the block specs of a program (i, j, n) of `bias_kernel` by name.

  Index i is a block of queries, j a block of keys and n a head. The program
  loops over the batch.
  """
  batch, _, _, width = arrays.query.shape
  queries, keys = options.block
  spec = pl.BlockSpec
  return {
    'queries': spec(
      (batch, queries, None, width), lambda i, j, n: (0, i, n, 0)
    ),
    'grouped_keys': spec(
      (batch, keys, None, width), lambda i, j, n: (0, j, n // repeats, 0)
    ),
    'bias': spec((None, queries, keys), lambda i, j, n: (n, i, j)),
    'bias_block': spec((None, queries, keys), lambda i, j, n: (n, i, j)),
    'query_segments': spec((batch, queries), lambda i, j, n: (0, i)),
    'key_segments': spec((batch, keys), lambda i, j, n: (0, j)),
    'query_row': spec((batch, None, queries), lambda i, j, n: (0, n, i)),
    'columns': spec((keys,), lambda i, j, n: (j,)),
    'window': spec((1,), lambda i, j, n: (0,)),
  }
