"""Forward and backward attention kernels for GPUs in Pallas (Triton).

Each program of the forward kernel processes a query block of one head. It loops
over the key blocks with a running maximum and sum (Dao et al. 2022). The
backward pass computes the scores again: once for the gradient of the queries,
once for the gradients of keys and values and, if there is a bias, once for the
gradient of the bias.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from xlflax.models import compile_targets, dropout
from xlflax.models.attention.fused import kernel_spec


class _Scores:
  """Scores of a block of queries and a block of keys.

  The indices of queries are `rows`, int32 of shape [queries, 1]. The indices of
  keys are `columns`, int32 of shape [1, keys].

  Attributes:
    options: Static options of the attention kernels.
    window: Maximum distance between a query and a key, an int32 scalar, or
      None.
    factor: Factor that converts the results of the method `scores` to attention
      scores. The caller must multiply by it.
  """

  def __init__(self, options, refs):
    self.options = options
    self.window = refs['window'][0] if 'window' in refs else None
    self.factor = 1.0 if 'bias' in refs else options.scale

  def scores(self, query, key, bias, segments, rows, columns):
    """Computes attention scores [queries, keys], divided by `factor`.

    The scores are float32.
    """
    scores = _dot(query, key.T)
    if bias is not None:
      scores = scores * self.options.scale + bias
    mask = kernel_spec.block_mask(
      self.options, rows, columns, segments, self.window
    )
    if mask is None:
      return scores
    return jnp.where(mask, scores, kernel_spec.MASKED_SCORE)

  def weights(self, scores, normalizer):
    """Computes the attention weights from scores and their log-sum-exp.

    The weights are exp(factor scores - normalizer / log2(e)).

    Args:
      scores: Result of the method `scores`, float32 of shape [queries, keys].
      normalizer: Log-sum-exp of each query's scaled scores, times log2(e),
        float32 of shape [queries].

    Returns:
      Attention weights, float32 of shape [queries, keys].
    """
    factor = self.factor * kernel_spec.LOG2_E
    offset = jnp.broadcast_to(-normalizer[:, None], scores.shape)
    if (
      self.options.interpret
      or compile_targets.current_target().capability is None
    ):
      return jnp.exp2(scores * factor + offset)
    # The assembly code has two instructions. `exp2` compiles to three more
    # instructions, which handle subnormal results.
    (attention_weights,) = plgpu.elementwise_inline_asm(
      f'fma.rn.ftz.f32 $0, $1, {factor:.9e}, $2; ex2.approx.ftz.f32 $0, $0;',
      args=[scores, offset],
      constraints='=&f,f,f',
      pack=1,
      result_shape_dtypes=[jax.ShapeDtypeStruct(scores.shape, jnp.float32)],
    )
    return attention_weights

  def drop(self, row_bits, column_bits, *arrays):
    """Applies a dropout mask to arrays without rescaling the kept elements."""
    if row_bits is None:
      return arrays
    keep = dropout.pair_keep_mask(
      row_bits[:, None], column_bits[None, :], rate=self.options.rate
    )
    return tuple(jnp.where(keep, array, 0.0) for array in arrays)


def forward_kernel(options, refs) -> None:
  """Computes the output and the log-sum-exp for one query block."""
  i = pl.program_id(0)
  score = _Scores(options, refs)
  queries, keys = options.block
  query = refs['query'][...]
  rows = _indices(i, queries)[:, None]
  query_segments = _read_optional(refs, 'query_segments', slice(None))
  row_bits = _read_optional(refs, 'row_bits', slice(None))

  def body(j, carry, *, has_segments):
    output, maximum, total = carry
    at = pl.ds(j * keys, keys)
    columns = _indices(j, keys)[None, :]
    scores = score.scores(
      query,
      refs['key'][at, :],
      refs['bias'][:, at] if 'bias' in refs else None,
      _segment_pair(query_segments, _read_optional(refs, 'key_segments', at))
      if has_segments
      else None,
      rows,
      columns,
    )
    new_maximum = jnp.maximum(maximum, jnp.max(scores, axis=1))
    factor = score.factor * kernel_spec.LOG2_E
    decay = jnp.exp2((maximum - new_maximum) * factor)
    weights = score.weights(scores, new_maximum * factor)
    total = total * decay + jnp.sum(weights, axis=1)
    (weights,) = score.drop(
      row_bits, _read_optional(refs, 'column_bits', at), weights
    )
    value = refs['value'][at, :]
    output = output * decay[:, None] + _dot(weights.astype(value.dtype), value)
    return output, new_maximum, total

  first, end = kernel_spec.key_blocks(
    options, i, refs['key'].shape[0] // keys, score.window
  )
  output, maximum, total = _loop_over_blocks(
    refs,
    first,
    end,
    body,
    (
      jnp.zeros(query.shape, jnp.float32),
      jnp.full((queries,), kernel_spec.INITIAL_MAXIMUM, jnp.float32),
      jnp.zeros((queries,), jnp.float32),
    ),
  )
  # The sum is 0 for queries that attend to no key.
  total = jnp.maximum(total, 1e-30)
  output = output / (total * (1 - options.rate))[:, None]
  refs['out_0'][...] = output.astype(refs['out_0'].dtype)
  refs['out_1'][...] = maximum * score.factor + jnp.log(total)


def query_kernel(options, refs) -> None:
  """Computes the gradient with respect to one block of queries."""
  i = pl.program_id(0)
  score = _Scores(options, refs)
  queries, keys = options.block
  query, gradient = refs['query'][...], refs['gradient'][...]
  normalizer = refs['normalizer'][...] * kernel_spec.LOG2_E
  delta = refs['delta'][...]
  rows = _indices(i, queries)[:, None]
  query_segments = _read_optional(refs, 'query_segments', slice(None))
  row_bits = _read_optional(refs, 'row_bits', slice(None))

  def body(j, d_query, *, has_segments):
    at = pl.ds(j * keys, keys)
    key, columns = refs['key'][at, :], _indices(j, keys)[None, :]
    scores = score.scores(
      query,
      key,
      refs['bias'][:, at] if 'bias' in refs else None,
      _segment_pair(query_segments, _read_optional(refs, 'key_segments', at))
      if has_segments
      else None,
      rows,
      columns,
    )
    weights = score.weights(scores, normalizer)
    d_weights = _dot(gradient, refs['value'][at, :].T)
    (d_weights,) = score.drop(
      row_bits, _read_optional(refs, 'column_bits', at), d_weights
    )
    d_scores = weights * (d_weights - delta[:, None])
    return d_query + _dot(d_scores.astype(key.dtype), key)

  first, end = kernel_spec.key_blocks(
    options, i, refs['key'].shape[0] // keys, score.window
  )
  d_query = _loop_over_blocks(
    refs, first, end, body, jnp.zeros(query.shape, jnp.float32)
  )
  refs['out_0'][...] = (d_query * kernel_spec.gradient_scale(options)).astype(
    refs['out_0'].dtype
  )


def memory_kernel(options, refs) -> None:
  """Computes the gradients for one block of keys and values."""
  j = pl.program_id(0)
  score = _Scores(options, refs)
  queries, keys = options.block
  key, value = refs['key'][...], refs['value'][...]
  columns = _indices(j, keys)[None, :]
  key_segments = _read_optional(refs, 'key_segments', slice(None))
  column_bits = _read_optional(refs, 'column_bits', slice(None))

  def body(i, carry, *, has_segments):
    d_key, d_value = carry
    at = pl.ds(i * queries, queries)
    query, gradient = refs['query'][at, :], refs['gradient'][at, :]
    rows = _indices(i, queries)[:, None]
    scores = score.scores(
      query,
      key,
      refs['bias'][at, :] if 'bias' in refs else None,
      _segment_pair(_read_optional(refs, 'query_segments', at), key_segments)
      if has_segments
      else None,
      rows,
      columns,
    )
    normalizer = refs['normalizer'][at] * kernel_spec.LOG2_E
    weights = score.weights(scores, normalizer)
    d_weights = _dot(gradient, value.T)
    d_weights, dropped = score.drop(
      _read_optional(refs, 'row_bits', at), column_bits, d_weights, weights
    )
    d_scores = weights * (d_weights - refs['delta'][at][:, None])
    d_value = d_value + _dot(dropped.astype(gradient.dtype).T, gradient)
    return d_key + _dot(d_scores.astype(query.dtype).T, query), d_value

  first, end = kernel_spec.query_blocks(
    options, j, refs['query'].shape[0] // queries, score.window
  )
  zeros = jnp.zeros(key.shape, jnp.float32)
  d_key, d_value = _loop_over_blocks(refs, first, end, body, (zeros, zeros))
  refs['out_0'][...] = (d_key * kernel_spec.gradient_scale(options)).astype(
    refs['out_0'].dtype
  )
  d_value = d_value / (1 - options.rate)
  refs['out_1'][...] = d_value.astype(refs['out_1'].dtype)


def bias_kernel(options, refs, *, batch: int) -> None:
  """Computes one block of the gradient with respect to the attention bias."""
  i, j = pl.program_id(0), pl.program_id(1)
  queries, keys = options.block
  score = _Scores(options, refs)
  rows, columns = _indices(i, queries)[:, None], _indices(j, keys)[None, :]
  bias = refs['bias'][...]

  def body(row, d_bias):
    scores = score.scores(
      refs['query'][row],
      refs['key'][row],
      bias,
      _segment_pair(
        _read_optional(refs, 'query_segments', row),
        _read_optional(refs, 'key_segments', row),
      ),
      rows,
      columns,
    )
    normalizer = refs['normalizer'][row] * kernel_spec.LOG2_E
    weights = score.weights(scores, normalizer)
    d_weights = _dot(refs['gradient'][row], refs['value'][row].T)
    (d_weights,) = score.drop(
      _read_optional(refs, 'row_bits', row),
      _read_optional(refs, 'column_bits', slice(None)),
      d_weights,
    )
    return d_bias + weights * (d_weights - refs['delta'][row][:, None])

  d_bias = jax.lax.fori_loop(
    0, batch, body, jnp.zeros((queries, keys), jnp.float32)
  )
  refs['out_0'][...] = d_bias / (1 - options.rate)


def _loop_over_blocks(refs, first, end, body, initial):
  """Runs the loop of a kernel, without a segment mask if there is one segment.

  A kernel contains two loops and executes one of them. Comparing the segments
  takes about a sixth of the instructions of a loop.

  Args:
    refs: Mapping from the names of the kernel's arrays to Pallas references.
    first: Index of the first block.
    end: Index after the last block.
    body: Function of the block index and the loop variables that returns the
      new loop variables. Its keyword `has_segments` tells whether to mask
      segments.
    initial: Initial values of the loop variables.
  """

  def run(has_segments, carry):
    loop_body = functools.partial(body, has_segments=has_segments)
    return jax.lax.fori_loop(first, end, loop_body, carry)

  if 'has_segments' not in refs:
    return run(True, initial)
  return jax.lax.cond(
    refs['has_segments'][0] > 0,
    functools.partial(run, True),
    functools.partial(run, False),
    initial,
  )


def _dot(a, b) -> jax.Array:
  """Returns a float32 matrix product."""
  return jnp.dot(a, b, preferred_element_type=jnp.float32)


def _indices(block, size: int) -> jax.Array:
  """Returns the indices of the elements of a block, int32 of shape [size]."""
  return block * size + jnp.arange(size, dtype=jnp.int32)


def _read_optional(refs, name: str, index):
  """Returns elements of a reference, or None if `refs` does not contain it."""
  return refs[name][index] if name in refs else None


def _segment_pair(query_segments, key_segments):
  """Returns segments of shapes [queries, 1] and [1, keys], or None."""
  if query_segments is None:
    return None
  return query_segments[:, None], key_segments[None, :]
