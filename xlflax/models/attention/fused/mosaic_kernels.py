"""The kernels for TPUs, in Pallas for Mosaic: forward and backward.

The algorithm is that of `triton_kernels`, on transposed blocks of scores, [keys,
queries]: what each query has one number of (maximum and sum, delta) is a row
there, where a column would fill 128 lanes for each number. Outputs and queries'
gradients are summed transposed as well, [D, queries]. A kernel is given its
block's place: row of the batch, head, number.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from xlflax.models import dropout
from xlflax.models.attention.fused import kernel_spec

_WHOLE = slice(None)


def forward_kernel(options, refs, place) -> None:
  """Writes the output of a block of queries, and log-sum-exp as a row."""
  queries, keys = options.block
  query = refs['query'][...]

  def body(j, carry):
    output, maximum, total = carry
    at = pl.ds(pl.multiple_of(j * keys, keys), keys)
    scores = _scores(
      options, refs, query, refs['key'][at, :], (_WHOLE, at), (place[2], j)
    )
    larger = jnp.maximum(maximum, jnp.max(scores, axis=0, keepdims=True))
    decay = jnp.exp2(maximum - larger)
    weights = jnp.exp2(scores - larger)
    total = total * decay + jnp.sum(weights, axis=0, keepdims=True)
    value = refs['value'][at, :]
    (weights,) = _drop(options, refs, (_WHOLE, at), weights)
    weights = weights.astype(value.dtype)
    return output * decay + _dot(value, weights, (0, 0)), larger, total

  first, end = kernel_spec.key_blocks(
    options, place[2], refs['key'].shape[0] // keys, _window(refs)
  )
  output, maximum, total = jax.lax.fori_loop(
    first,
    end,
    body,
    (
      jnp.zeros(query.shape[::-1], jnp.float32),
      jnp.full((1, queries), kernel_spec.LEAST, jnp.float32),
      jnp.zeros((1, queries), jnp.float32),
    ),
  )
  total = jnp.maximum(total, 1e-30)
  output = output / (total * (1 - options.rate))
  refs['out_0'][...] = output.T.astype(refs['out_0'].dtype)
  refs['out_1'][...] = maximum / kernel_spec.LOG2_E + jnp.log(total)


def gradient_kernel(options, refs, place) -> None:
  """Writes the gradients of a block of keys and values, and of the queries.

  Those of the queries are added up in `sums` [D, queries], over all blocks of
  keys and written with the last; where there is a bias, over this one, as the
  next program is of another row and adds to the same part of the bias.
  """
  queries, _ = options.block
  key, value = refs['key'][...], refs['value'][...]
  sums, d_bias = refs['sums'], refs.get('out_3')
  alone = d_bias is not None

  @pl.when(alone or place[2] == 0)
  def _clear():
    sums[...] = jnp.zeros(sums.shape, sums.dtype)

  if d_bias is not None:

    @pl.when(place[0] == 0)
    def _clear_bias():
      d_bias[...] = jnp.zeros(d_bias.shape, d_bias.dtype)

  def body(i, carry):
    d_key, d_value = carry
    at = pl.ds(pl.multiple_of(i * queries, queries), queries)
    query, gradient = refs['query'][at, :], refs['gradient'][at, :]
    scores = _scores(options, refs, query, key, (at, _WHOLE), (i, place[2]))
    weights = jnp.exp2(scores - refs['normaliser'][:, at])
    d_weights = _dot(value, gradient, (1, 1))
    d_weights, dropped = _drop(options, refs, (at, _WHOLE), d_weights, weights)
    d_scores = weights * (d_weights - refs['delta'][:, at])
    if d_bias is not None:
      d_bias[:, at] += d_scores
    d_scores = d_scores.astype(query.dtype)
    d_value = d_value + _dot(dropped.astype(gradient.dtype), gradient)
    sums[:, at] += _dot(key, d_scores, (0, 0))
    return d_key + _dot(d_scores, query), d_value

  first, end = kernel_spec.query_blocks(
    options, place[2], refs['query'].shape[0] // queries, _window(refs)
  )
  zeros = jnp.zeros(key.shape, jnp.float32)
  d_key, d_value = jax.lax.fori_loop(first, end, body, (zeros, zeros))
  refs['out_0'][...] = (d_key * kernel_spec.gradient_scale(options)).astype(
    refs['out_0'].dtype
  )
  d_value = d_value / (1 - options.rate)
  refs['out_1'][...] = d_value.astype(refs['out_1'].dtype)

  @pl.when(alone or place[2] == pl.num_programs(2) - 1)
  def _write():
    d_query = (sums[...] * kernel_spec.gradient_scale(options)).T
    refs['out_2'][...] = d_query.astype(refs['out_2'].dtype)


def _scores(options, refs, query, key, at, blocks) -> jax.Array:
  """Scores of a block times log2(e), float32 [keys, queries].

  Args:
    options: see `Options`.
    refs: name -> reference.
    query: [queries, D].
    key: [keys, D].
    at: where they lie in the parts of queries and of keys.
    blocks: their numbers.
  """
  queries, keys = options.block
  scores = _dot(key, query, (1, 1)) * (options.scale * kernel_spec.LOG2_E)
  if 'bias' in refs:
    scores = scores + refs['bias'][at[::-1]] * kernel_spec.LOG2_E
  rows, columns = (
    blocks[i] * options.block[i]
    + jax.lax.broadcasted_iota(jnp.int32, (keys, queries), 1 - i)
    for i in (0, 1)
  )
  segments = None
  if 'query_segments' in refs:
    of_queries = refs['query_segments'][:, at[0]]
    segments = of_queries, refs['key_segments'][at[1], :]
  visible = kernel_spec.block_mask(
    options, rows, columns, segments, _window(refs)
  )
  return (
    scores
    if visible is None
    else jnp.where(visible, scores, kernel_spec.UNSEEN)
  )


def _drop(options, refs, at, *arrays):
  """Sets what dropout drops to zero; what is kept is scaled elsewhere."""
  if 'row_bits' not in refs:
    return arrays
  keep = dropout.pair_kept(
    refs['row_bits'][:, at[0]], refs['column_bits'][at[1], :], rate=options.rate
  )
  return tuple(jnp.where(keep, array, 0.0) for array in arrays)


def _window(refs):
  return refs['window'][0] if 'window' in refs else None


def _dot(a, b, contract: tuple[int, int] = (1, 0)) -> jax.Array:
  return jax.lax.dot_general(
    a,
    b,
    (((contract[0],), (contract[1],)), ((), ())),
    preferred_element_type=jnp.float32,
  )
