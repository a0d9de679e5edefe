"""Forward and backward attention kernels for TPUs in Pallas (Mosaic).

The algorithm is the same as in `triton_kernels`, but on transposed score blocks
of shape [keys, queries]. The values per query (maximum, sum or delta) of a
block are then stored in a row. If they were stored in a column, each value
would fill 128 lanes of a register. Outputs and the gradients of the queries are
accumulated transposed as well, with shape [D, queries]. The argument
`block_index` of a kernel is its sequence, head and block.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from xlflax.models import dropout
from xlflax.models.attention.fused import kernel_spec

_ALL = slice(None)


def forward_kernel(options, refs, block_index) -> None:
  """Computes the output and the log-sum-exp for one query block.

  The log-sum-exp is a row of shape [1, queries].
  """
  queries, keys = options.block
  query = refs['query'][...]

  def body(j, carry):
    output, maximum, total = carry
    at = pl.ds(pl.multiple_of(j * keys, keys), keys)
    scores = _scores(
      options, refs, query, refs['key'][at, :], (_ALL, at), (block_index[2], j)
    )
    new_maximum = jnp.maximum(maximum, jnp.max(scores, axis=0, keepdims=True))
    decay = jnp.exp2(maximum - new_maximum)
    weights = jnp.exp2(scores - new_maximum)
    total = total * decay + jnp.sum(weights, axis=0, keepdims=True)
    value = refs['value'][at, :]
    (weights,) = _drop(options, refs, (_ALL, at), weights)
    weights = weights.astype(value.dtype)
    output = output * decay + _dot(value, weights, (0, 0))
    return output, new_maximum, total

  first, end = kernel_spec.key_blocks(
    options, block_index[2], refs['key'].shape[0] // keys, _window(refs)
  )
  output, maximum, total = jax.lax.fori_loop(
    first,
    end,
    body,
    (
      jnp.zeros(query.shape[::-1], jnp.float32),
      jnp.full((1, queries), kernel_spec.INITIAL_MAXIMUM, jnp.float32),
      jnp.zeros((1, queries), jnp.float32),
    ),
  )
  total = jnp.maximum(total, 1e-30)
  output = output / (total * (1 - options.rate))
  refs['out_0'][...] = output.T.astype(refs['out_0'].dtype)
  refs['out_1'][...] = maximum / kernel_spec.LOG2_E + jnp.log(total)


def gradient_kernel(options, refs, block_index) -> None:
  """Computes gradients of queries, keys and values for one key block.

  The gradients of the queries are accumulated in `sums`, of shape [D, queries].
  Without a bias, `sums` accumulates over all key blocks and is written after
  the last block. With a bias, the next program processes a different sequence
  and adds to the same block of the bias. `sums` is then written for each key
  block.
  """
  queries, _ = options.block
  key, value = refs['key'][...], refs['value'][...]
  sums, d_bias = refs['sums'], refs.get('out_3')
  writes_each_block = d_bias is not None

  @pl.when(writes_each_block or block_index[2] == 0)
  def _clear():
    sums[...] = jnp.zeros(sums.shape, sums.dtype)

  if d_bias is not None:

    @pl.when(block_index[0] == 0)
    def _clear_bias():
      d_bias[...] = jnp.zeros(d_bias.shape, d_bias.dtype)

  def body(i, carry):
    d_key, d_value = carry
    at = pl.ds(pl.multiple_of(i * queries, queries), queries)
    query, gradient = refs['query'][at, :], refs['gradient'][at, :]
    scores = _scores(options, refs, query, key, (at, _ALL), (i, block_index[2]))
    weights = jnp.exp2(scores - refs['normalizer'][:, at])
    d_weights = _dot(value, gradient, (1, 1))
    d_weights, dropped = _drop(options, refs, (at, _ALL), d_weights, weights)
    d_scores = weights * (d_weights - refs['delta'][:, at])
    if d_bias is not None:
      d_bias[:, at] += d_scores
    d_scores = d_scores.astype(query.dtype)
    d_value = d_value + _dot(dropped.astype(gradient.dtype), gradient)
    sums[:, at] += _dot(key, d_scores, (0, 0))
    return d_key + _dot(d_scores, query), d_value

  first, end = kernel_spec.query_blocks(
    options, block_index[2], refs['query'].shape[0] // queries, _window(refs)
  )
  zeros = jnp.zeros(key.shape, jnp.float32)
  d_key, d_value = jax.lax.fori_loop(first, end, body, (zeros, zeros))
  refs['out_0'][...] = (d_key * kernel_spec.gradient_scale(options)).astype(
    refs['out_0'].dtype
  )
  d_value = d_value / (1 - options.rate)
  refs['out_1'][...] = d_value.astype(refs['out_1'].dtype)

  @pl.when(writes_each_block or block_index[2] == pl.num_programs(2) - 1)
  def _write():
    d_query = (sums[...] * kernel_spec.gradient_scale(options)).T
    refs['out_2'][...] = d_query.astype(refs['out_2'].dtype)


def _scores(options, refs, query, key, slices, blocks) -> jax.Array:
  """Returns the scores of a block times log2(e), float32 [keys, queries].

  Args:
    options: Static options of the attention kernels.
    refs: Mapping from the names of the kernel's arrays to Pallas references.
    query: Queries of shape [queries, D].
    key: Keys of shape [keys, D].
    slices: Pair of slices that select the block of queries and the block of
      keys within the arrays of `refs`.
    blocks: Pair (index of the query block, index of the key block).
  """
  queries, keys = options.block
  scores = _dot(key, query, (1, 1)) * (options.scale * kernel_spec.LOG2_E)
  if 'bias' in refs:
    scores = scores + refs['bias'][slices[::-1]] * kernel_spec.LOG2_E
  rows, columns = (
    blocks[i] * options.block[i]
    + jax.lax.broadcasted_iota(jnp.int32, (keys, queries), 1 - i)
    for i in (0, 1)
  )
  segments = None
  if 'query_segments' in refs:
    segments = (
      refs['query_segments'][:, slices[0]],
      refs['key_segments'][slices[1], :],
    )
  mask = kernel_spec.block_mask(options, rows, columns, segments, _window(refs))
  if mask is None:
    return scores
  return jnp.where(mask, scores, kernel_spec.MASKED_SCORE)


def _drop(options, refs, slices, *arrays):
  """Applies a dropout mask to arrays without rescaling the kept elements."""
  if 'row_bits' not in refs:
    return arrays
  keep = dropout.pair_keep_mask(
    refs['row_bits'][:, slices[0]],
    refs['column_bits'][slices[1], :],
    rate=options.rate,
  )
  return tuple(jnp.where(keep, array, 0.0) for array in arrays)


def _window(refs):
  """Returns the window as a scalar, or None."""
  return refs['window'][0] if 'window' in refs else None


def _dot(a, b, contract: tuple[int, int] = (1, 0)) -> jax.Array:
  """Returns a float32 matrix product over one axis of each matrix."""
  return jax.lax.dot_general(
    a,
    b,
    (((contract[0],), (contract[1],)), ((), ())),
    preferred_element_type=jnp.float32,
  )
