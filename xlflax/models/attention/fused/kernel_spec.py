"""Static options and input arrays of the attention kernels."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.models import dropout

# Score of masked keys. It is far below the initial value of the running
# maximum, so that its weight is 0 even for a query that attends to no key.
MASKED_SCORE = -1e30
INITIAL_MAXIMUM = -1e20
# Kernels compute powers of two, because devices have an instruction for them.
LOG2_E = 1 / math.log(2)


class Options(NamedTuple):
  """Static options of attention kernels, which are known at compile time.

  Attributes:
    scale: Factor that scales the attention scores.
    rate: Dropout rate for the attention probabilities.
    causal: Whether queries attend only to their own and earlier positions.
    heads: Total number N of query heads over all devices.
    length: Number T of queries, not counting padding.
    memory_length: Number S of keys, not counting padding.
    block: Pair (number of queries, number of keys) per block.
    interpret: Whether to run the kernel in interpret mode, which works on any
      device.
    platform: Platform that the kernels are written for, 'gpu' or 'tpu'.
  """

  scale: float
  rate: float
  causal: bool
  heads: int
  length: int
  memory_length: int
  block: tuple[int, int]
  interpret: bool
  platform: str


class Arrays(NamedTuple):
  """Input arrays of the kernels on one device.

  Attributes:
    query: Queries of shape [B, T, N, D].
    key: Keys of shape [B, S, K, D].
    value: Values of shape [B, S, K, D].
    bias: Bias added to the attention scores, float32 of shape [N, T, S], or
      None.
    query_segments: Segment ids of the queries, int32 of shape [B, T], or None.
    key_segments: Segment ids of the keys, int32 of shape [B, S], or None.
    key_words: Random key for dropout as two words, uint32 of shape [2]. None
      without dropout.
    window: Maximum distance between a query and a key (inclusive), int32 of
      shape [1], or None.
    row_bits: Random bits per query for dropout, int32 of shape [B, N, T],
      or None. `add_dropout_bits` sets them.
    column_bits: Random bits per key for dropout, int32 of shape [S], or
      None. `add_dropout_bits` sets them.
  """

  query: jax.Array
  key: jax.Array
  value: jax.Array
  bias: jax.Array | None
  query_segments: jax.Array | None
  key_segments: jax.Array | None
  key_words: jax.Array | None
  window: jax.Array | None
  row_bits: jax.Array | None = None
  column_bits: jax.Array | None = None


def block_mask(options: Options, rows, columns, segments, window):
  """Returns the attention mask between a query block and a key block.

  Args:
    options: Static options of the attention kernels.
    rows: Indices of the queries, int32 of shape [queries, 1].
    columns: Indices of the keys, int32 of shape [1, keys].
    segments: Segment ids of the queries, of shape [queries, 1], and of the
      keys, of shape [1, keys]. None if segments are not used.
    window: Maximum distance between a query and a key (inclusive), an int32
      scalar, or None.

  Returns:
    A bool array of shape [queries, keys], or None if nothing is masked.
  """
  conditions = []
  if segments is not None:
    # Padded keys have a segment of their own.
    conditions.append(segments[0] == segments[1])
  elif options.memory_length % options.block[1]:
    conditions.append(columns < options.memory_length)
  if options.causal:
    conditions.append(rows >= columns)
  if window is not None:
    conditions.append(jnp.abs(rows - columns) <= window)
  mask = None
  for condition in conditions:
    mask = condition if mask is None else mask & condition
  return mask


def add_dropout_bits(options: Options, arrays: Arrays, first_row, first_head):
  """Adds random bits for attention dropout to the inputs of one device.

  Args:
    options: Static options of the attention kernels.
    arrays: Inputs of the kernels on this device.
    first_row: Global batch index of the first sequence on this device, a
      uint32 scalar.
    first_head: Index of the first head on this device, a uint32 scalar.

  Returns:
    The arrays with `row_bits` and `column_bits`, or unchanged without dropout.
  """
  if arrays.key_words is None:
    return arrays
  batch, length, heads, _ = arrays.query.shape

  def indices(axis):
    return jax.lax.broadcasted_iota(jnp.uint32, (batch, heads, length), axis)

  head_index = (first_row + indices(0)) * np.uint32(options.heads)
  head_index += first_head + indices(1)
  query_index = head_index * np.uint32(length) + indices(2)
  return arrays._replace(
    row_bits=dropout.row_bits(arrays.key_words, query_index),
    column_bits=dropout.column_bits(arrays.key_words, options.memory_length),
  )


def output_gradient_products(options: Options, output, gradient) -> jax.Array:
  """Computes the dot products of attention outputs with their gradients.

  The backward kernels subtract these dot products from the gradients of the
  attention weights. The products are multiplied by 1 - rate, because the
  kernels apply the scale of dropout only to sums.

  Args:
    options: Static options of the attention kernels.
    output: Attention output of the forward pass, of shape [B, T, N, D].
    gradient: Gradient with respect to the output, of shape [B, T, N, D].

  Returns:
    A float32 array of shape [B, N, T].
  """
  products = jnp.einsum(
    'btnd,btnd->bnt', output, gradient, preferred_element_type=jnp.float32
  )
  return products * (1 - options.rate)


def gradient_scale(options: Options) -> float:
  """Returns the factor that kernels apply to query and key gradients.

  It is the product of the scales of attention scores and dropout.
  """
  return options.scale / (1 - options.rate)


def key_blocks(options: Options, i, count: int, window):
  """Returns the range of key blocks that a query block attends to.

  Args:
    options: Static options of the attention kernels.
    i: Index of the query block.
    count: Number of key blocks.
    window: Maximum distance between a query and a key, an int32 scalar, or
      None.

  Returns:
    The index of the first block and the index after the last block.
  """
  queries, keys = options.block
  first: Any = 0
  end: Any = count
  if options.causal:
    end = jnp.minimum(end, exact_quotient((i + 1) * queries - 1, keys) + 1)
  if window is not None:
    first = exact_quotient(jnp.maximum(i * queries - window, 0), keys)
    last = exact_quotient((i + 1) * queries - 1 + window, keys)
    end = jnp.minimum(end, last + 1)
  return first, end


def query_blocks(options: Options, j, count: int, window):
  """Returns the range of query blocks that attend to a key block.

  Args:
    options: Static options of the attention kernels.
    j: Index of the key block.
    count: Number of query blocks.
    window: Maximum distance between a query and a key, an int32 scalar, or
      None.

  Returns:
    The index of the first block and the index after the last block.
  """
  queries, keys = options.block
  first: Any = 0
  end: Any = count
  if options.causal:
    first = exact_quotient(j * keys, queries)
  if window is not None:
    first = jnp.maximum(
      first, exact_quotient(jnp.maximum(j * keys - window, 0), queries)
    )
    last = exact_quotient((j + 1) * keys - 1 + window, queries)
    end = jnp.minimum(end, last + 1)
  return first, end


def exact_quotient(number, divisor: int):
  """Returns the floor of the quotient of two non-negative numbers.

  The `//` operator also handles negative numbers, which requires an operation
  that cannot be compiled for a TPU that is not attached.

  Args:
    number: Non-negative dividend, an integer or an int32 scalar.
    divisor: Positive divisor.
  """
  if divisor == 1:
    return number
  return jax.lax.div(number, jnp.int32(divisor))
