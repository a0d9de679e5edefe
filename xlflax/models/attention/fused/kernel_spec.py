"""What a kernel of attention is given: static options and arrays."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.models import dropout

# Scores that are not seen; below the least maximum, so that they weigh 0 even
# in a row that sees nothing.
UNSEEN = -1e30
LEAST = -1e20
# Kernels compute with powers of two, which devices have instructions for.
LOG2_E = 1 / math.log(2)


class Options(NamedTuple):
  """What is known when the kernel is compiled.

  Attributes:
    scale: of the products of queries and keys.
    rate: of dropout.
    causal: whether no query sees a later key.
    heads: N, of all devices.
    length: T, without what fills up the last block.
    memory_length: S, likewise.
    block: queries and keys of a block.
    interpret: whether the kernel is interpreted, on any device.
    platform: whose kernels: 'gpu' or 'tpu'.
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
  """What the kernels read; a device's part.

  Attributes:
    query: [B, T, N, D].
    key: [B, S, K, D].
    value: [B, S, K, D].
    bias: float32 [N, T, S], or None.
    query_segments: int32 [B, T], or None.
    key_segments: int32 [B, S], or None.
    words: uint32 [2], of dropout's key; None without dropout.
    window: int32 [1], or None.
    row_bits: int32 [B, N, T] of dropout, or None; see `with_bits`.
    column_bits: int32 [S], likewise.
  """

  query: jax.Array
  key: jax.Array
  value: jax.Array
  bias: jax.Array | None
  query_segments: jax.Array | None
  key_segments: jax.Array | None
  words: jax.Array | None
  window: jax.Array | None
  row_bits: jax.Array | None = None
  column_bits: jax.Array | None = None


def block_mask(options: Options, rows, columns, segments, window):
  """Returns bool [queries, keys] of a block, or None if it sees everything.

  Args:
    options: see `Options`.
    rows: int32 [queries, 1], their indices.
    columns: int32 [1, keys], their indices.
    segments: ([queries, 1], [1, keys]), or None.
    window: int32 [], or None.
  """
  parts = []
  if segments is not None:  # keys that fill up a block have a segment alone
    parts.append(segments[0] == segments[1])
  elif options.memory_length % options.block[1]:
    parts.append(columns < options.memory_length)
  if options.causal:
    parts.append(rows >= columns)
  if window is not None:
    parts.append(jnp.abs(rows - columns) <= window)
  combined = None
  for part in parts:
    combined = part if combined is None else combined & part
  return combined


def with_bits(options: Options, arrays: Arrays, first_row, first_head):
  """Adds dropout's bits of rows and columns to the arrays of a device's part.

  Args:
    options: see `Options`.
    arrays: see `Arrays`.
    first_row: uint32, the row of the whole batch that the part begins with.
    first_head: uint32, likewise.
  """
  if arrays.words is None:
    return arrays
  batch, length, heads, _ = arrays.query.shape

  def along(axis):
    return jax.lax.broadcasted_iota(jnp.uint32, (batch, heads, length), axis)

  plane = (first_row + along(0)) * np.uint32(options.heads)
  plane += first_head + along(1)
  index = plane * np.uint32(length) + along(2)
  return arrays._replace(
    row_bits=dropout.row_bits(arrays.words, index),
    column_bits=dropout.column_bits(arrays.words, options.memory_length),
  )


def output_gradient_products(options: Options, output, gradient) -> jax.Array:
  """float32 [B, N, T]: products of outputs and gradients, for backward passes.

  They are given as weights' gradients are in the kernels, which scale up for
  dropout only what they have summed.
  """
  products = jnp.einsum(
    'btnd,btnd->bnt', output, gradient, preferred_element_type=jnp.float32
  )
  return products * (1 - options.rate)


def gradient_scale(options: Options) -> float:
  """Of sums that the gradients of queries and keys are."""
  return options.scale / (1 - options.rate)


def key_blocks(options: Options, i, count: int, window):
  """Returns the first and the end of the blocks of keys that queries see.

  Args:
    options: see `Options`.
    i: the block of queries.
    count: the number of blocks of keys.
    window: int32 [], or None.
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
  """Returns the first and the end of the blocks of queries that see keys.

  Args:
    options: see `Options`.
    j: the block of keys.
    count: the number of blocks of queries.
    window: int32 [], or None.
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


def exact_quotient(number, by: int):
  """Returns the quotient of numbers that are not negative.

  Python's own asks for signs, which kernels of a TPU that is not there cannot.
  """
  if by == 1:
    return number
  return jax.lax.div(number, jnp.int32(by))
