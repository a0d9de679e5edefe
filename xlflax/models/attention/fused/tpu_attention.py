"""Calls of the kernels for TPUs: which part of the arrays a program sees.

Heads lie before positions, as a TPU's registers have two axes.
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
  """Returns the output [B, T, N, D] and log-sum-exp [B, N, T], float32."""
  batch, length, heads, width = arrays.query.shape
  shape = (batch, heads, length, width)
  output, normaliser = _call(
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
  return _positions_first(output), normaliser[:, :, 0]


def run_backward(
  options: _Options, arrays: _Arrays, output, normaliser, gradient
):
  """Returns the gradients of query, key, value and bias (None without)."""
  batch, length, heads, width = arrays.query.shape
  memory_length, groups = arrays.key.shape[1:3]
  delta = kernel_spec.output_gradient_products(options, output, gradient)
  more = {
    'gradient': _heads_first(gradient),
    'normaliser': normaliser[:, :, None] * kernel_spec.LOG2_E,
    'delta': delta[:, :, None],
  }
  # One gradient for each query head; heads that share keys are summed below.
  shape = (batch, heads, memory_length, width)
  parts = 1 if arrays.bias is None else memory_length // options.block[1]
  out: list[Any] = [
    (shape, arrays.key.dtype, 'memory'),
    (shape, arrays.key.dtype, 'memory'),
    (
      (parts, batch, heads, length, width),
      arrays.query.dtype if parts == 1 else jnp.float32,
      'part',
    ),
  ]
  if arrays.bias is not None:
    out.append(((heads, memory_length, length), jnp.float32, 'bias'))
  d_key, d_value, d_query, *d_bias = _call(
    kernels.gradient_kernel,
    options,
    arrays,
    more,
    block=1,
    out=out,
    name='attention_gradients_heads_first',
    sums=(width, length),
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


def _call(kernel, options, arrays, more, *, block, out, name, sums=None):
  """Calls a kernel for each block of queries (0) or keys (1), row and head.

  Where there is a bias, rows come last: a part of the bias then stays on the
  chip for all of them, and so does its gradient. What comes last runs in order
  on one core; a chip with two shares the rest.

  Args:
    kernel: (options, references by name, place) -> None.
    options: see `Options`.
    arrays: see `Arrays`.
    more: further inputs by name.
    block: which blocks the grid goes over.
    out: shape, dtype and kind (of `_specs`) of each result.
    name: of the kernel, in profiles.
    sums: shape of float32 sums that are kept from block to block.
  """
  rows_last = arrays.bias is not None
  specs = _specs(options, arrays, block, rows_last)
  inputs = _given(arrays) | {
    key: (array, 'query' if key == 'gradient' else 'row')
    for key, array in more.items()
  }
  names = [*inputs, *(f'out_{i}' for i in range(len(out)))]
  names += ['sums'] if sums else []

  def run(*references):
    ids = [pl.program_id(i) for i in range(3)]
    block_index = (ids[2], ids[0], ids[1]) if rows_last else tuple(ids)
    kernel(options, dict(zip(names, references, strict=True)), block_index)

  batch, length, heads, _ = arrays.query.shape
  size = (length, arrays.key.shape[1])[block] // options.block[block]
  return pl.pallas_call(
    run,
    grid=(heads, size, batch) if rows_last else (batch, heads, size),
    in_specs=[specs[kind] for _, kind in inputs.values()],
    out_specs=[specs[kind] for _, _, kind in out],
    out_shape=[jax.ShapeDtypeStruct(shape, dtype) for shape, dtype, _ in out],
    scratch_shapes=[pltpu.VMEM(sums, jnp.float32)] if sums else [],
    compiler_params=pltpu.CompilerParams(
      dimension_semantics=('parallel', 'parallel', 'arbitrary')
    ),
    name=name,
    interpret=options.interpret,
  )(*(array for array, _ in inputs.values()))


def _given(arrays: _Arrays):
  """Name -> (array, kind) of what all kernels read."""
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


def _specs(options, arrays, block, rows_last):
  """Kind of array -> the part that a program sees."""
  _, length, heads, width = arrays.query.shape
  memory_length, groups = arrays.key.shape[1:3]
  repeats = heads // groups
  queries, keys = options.block
  t, s = (queries, memory_length) if block == 0 else (length, keys)
  of_t, of_s = (_index(block == 0), _index(block == 1))

  def spec(shape, index):
    def at(*ids):
      b, n, i = (ids[2], ids[0], ids[1]) if rows_last else ids
      return index(b, n, i)

    return pl.BlockSpec(shape, at)

  return {
    'query': spec((None, None, t, width), lambda b, n, i: (b, n, of_t(i), 0)),
    'key': spec(
      (None, None, s, width),
      lambda b, n, i: (b, kernel_spec.exact_quotient(n, repeats), of_s(i), 0),
    ),
    'part': spec(
      (None, None, None, t, width),
      lambda b, n, i: (i if rows_last else 0, b, n, 0, 0),
    ),
    'memory': spec((None, None, s, width), lambda b, n, i: (b, n, of_s(i), 0)),
    'row': spec((None, None, 1, t), lambda b, n, i: (b, n, 0, of_t(i))),
    'column': spec((s, 1), lambda b, n, i: (of_s(i), 0)),
    'bias': spec((None, s, t), lambda b, n, i: (n, of_s(i), of_t(i))),
    'query_segments': spec((None, 1, t), lambda b, n, i: (b, 0, of_t(i))),
    'key_segments': spec((None, s, 1), lambda b, n, i: (b, of_s(i), 0)),
    'window': pl.BlockSpec(memory_space=pltpu.SMEM),
  }


def _index(moves: bool):
  """The index of a block along an axis that the grid goes over, or not."""
  return (lambda i: i) if moves else (lambda i: 0)


def _heads_first(array: jax.Array) -> jax.Array:
  return jnp.swapaxes(array, 1, 2)


_positions_first = _heads_first
