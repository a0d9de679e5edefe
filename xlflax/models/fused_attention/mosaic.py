"""The kernels for TPUs, in Pallas for Mosaic: forward and backward.

The algorithm is that of `triton`. Heads lie before positions, and numbers a
query are columns, numbers a key rows, as a TPU's registers have two axes.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from xlflax.models.fused_attention import problem

_Arrays = problem.Arrays
_Options = problem.Options


def forward(options: _Options, arrays: _Arrays):
  """Returns the output [B, T, N, D] and log-sum-exp [B, N, T], float32."""
  batch, length, heads, width = arrays.query.shape
  shape = (batch, heads, length, width)
  output, normaliser = _call(
    _forward_kernel,
    options,
    arrays,
    {},
    block=0,
    out=[(shape, arrays.query.dtype), ((*shape[:3], 1), jnp.float32)],
    name='attention_forward',
  )
  return _positions_first(output), normaliser[..., 0]


def backward(options: _Options, arrays: _Arrays, output, normaliser, gradient):
  """Returns the gradients of query, key, value and None."""
  batch, length, heads, width = arrays.query.shape
  memory_length, groups = arrays.key.shape[1:3]
  delta = jnp.einsum(
    'btnd,btnd->bnt', output, gradient, preferred_element_type=jnp.float32
  )
  more = {
    'gradient': _heads_first(gradient),
    'normaliser': normaliser[..., None],
    'delta': delta[..., None],
  }
  (d_query,) = _call(
    _query_kernel,
    options,
    arrays,
    more,
    block=0,
    out=[((batch, heads, length, width), arrays.query.dtype)],
    name='attention_query_gradient',
  )
  shape = (batch, heads, memory_length, width)
  memory = _call(
    _memory_kernel,
    options,
    arrays,
    more,
    block=1,
    out=[(shape, arrays.key.dtype)] * 2,
    name='attention_memory_gradient',
  )
  d_key, d_value = (
    _positions_first(
      jnp.sum(x.reshape(batch, groups, -1, memory_length, width), axis=2)
    )
    for x in memory
  )
  return _positions_first(d_query), d_key, d_value, None


def _call(kernel, options, arrays, more, *, block, out, name):
  """Calls a kernel for each block of queries (0) or keys (1), row and head."""
  batch, length, heads, width = arrays.query.shape
  memory_length, groups = arrays.key.shape[1:3]
  repeats = heads // groups
  queries, keys = options.block
  t, s = (queries, memory_length) if block == 0 else (length, keys)
  of_t = (lambda i: i) if block == 0 else (lambda i: 0)
  of_s = (lambda i: i) if block == 1 else (lambda i: 0)
  spec = pl.BlockSpec
  by_query = spec((None, None, t, width), lambda b, n, i: (b, n, of_t(i), 0))
  by_key = spec(
    (None, None, s, width),
    lambda b, n, i: (b, problem.divide(n, repeats), of_s(i), 0),
  )
  column = spec((None, None, t, 1), lambda b, n, i: (b, n, of_t(i), 0))
  given = {
    'query': (_heads_first(arrays.query), by_query),
    'key': (_heads_first(arrays.key), by_key),
    'value': (_heads_first(arrays.value), by_key),
    'scalars': (arrays.scalars, spec(memory_space=pltpu.SMEM)),
  }
  if arrays.query_segments is not None:
    given['query_segments'] = (
      arrays.query_segments[:, :, None],
      spec((None, t, 1), lambda b, n, i: (b, of_t(i), 0)),
    )
    given['key_segments'] = (
      arrays.key_segments[:, None, :],
      spec((None, 1, s), lambda b, n, i: (b, 0, of_s(i))),
    )
  for key, array in more.items():
    given[key] = (array, by_query if key == 'gradient' else column)
  of_key = spec((None, None, s, width), lambda b, n, i: (b, n, of_s(i), 0))
  out_specs = [
    (by_query if shape[-1] > 1 else column) if block == 0 else of_key
    for shape, _ in out
  ]
  names = [*given, *(f'out_{i}' for i in range(len(out)))]
  windowed = arrays.windowed is not None

  def run(*references):
    kernel(options, dict(zip(names, references, strict=True)), windowed)

  return pl.pallas_call(
    run,
    grid=(
      batch,
      heads,
      (length if block == 0 else memory_length) // (t if block == 0 else s),
    ),
    in_specs=[spec for _, spec in given.values()],
    out_specs=out_specs,
    out_shape=[jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in out],
    name=name,
    interpret=options.interpret,
  )(*(array for array, _ in given.values()))


def _forward_kernel(options, refs, windowed):
  queries, keys = options.block
  query = refs['query'][...]
  row, head, block = (pl.program_id(axis) for axis in range(3))
  window = _window(refs, windowed)

  def body(j, carry):
    output, maximum, total = carry
    at = pl.ds(pl.multiple_of(j * keys, keys), keys)
    scores, keep = _scores(
      options,
      refs,
      (row, head),
      query,
      refs['key'][at, :],
      slice(None),
      at,
      block,
      j,
      window,
    )
    larger = jnp.maximum(maximum, jnp.max(scores, axis=1, keepdims=True))
    decay = jnp.exp(maximum - larger)
    weights = jnp.exp(scores - larger)
    total = total * decay + jnp.sum(weights, axis=1, keepdims=True)
    value = refs['value'][at, :]
    weights = _drop(keep, weights).astype(value.dtype)
    return output * decay + _dot(weights, value), larger, total

  first, end = problem.key_blocks(
    options, block, refs['key'].shape[0] // keys, window
  )
  output, maximum, total = jax.lax.fori_loop(
    first,
    end,
    body,
    (
      jnp.zeros(query.shape, jnp.float32),
      jnp.full((queries, 1), problem.LEAST, jnp.float32),
      jnp.zeros((queries, 1), jnp.float32),
    ),
  )
  total = jnp.maximum(total, 1e-30)
  output = output / (total * (1 - options.rate))
  refs['out_0'][...] = output.astype(refs['out_0'].dtype)
  refs['out_1'][...] = maximum + jnp.log(total)


def _query_kernel(options, refs, windowed):
  _, keys = options.block
  query, gradient = refs['query'][...], refs['gradient'][...]
  row, head, block = (pl.program_id(axis) for axis in range(3))
  window = _window(refs, windowed)

  def body(j, d_query):
    at = pl.ds(pl.multiple_of(j * keys, keys), keys)
    key = refs['key'][at, :]
    scores, keep = _scores(
      options, refs, (row, head), query, key, slice(None), at, block, j, window
    )
    weights = jnp.exp(scores - refs['normaliser'][...])
    d_weights = _drop(keep, _dot(gradient, refs['value'][at, :], (1, 1)))
    d_weights = d_weights * (1 / (1 - options.rate))
    d_scores = weights * (d_weights - refs['delta'][...])
    return d_query + _dot(d_scores.astype(key.dtype), key)

  first, end = problem.key_blocks(
    options, block, refs['key'].shape[0] // keys, window
  )
  zeros = jnp.zeros(query.shape, jnp.float32)
  d_query = jax.lax.fori_loop(first, end, body, zeros)
  refs['out_0'][...] = (d_query * options.scale).astype(refs['out_0'].dtype)


def _memory_kernel(options, refs, windowed):
  queries, _ = options.block
  key, value = refs['key'][...], refs['value'][...]
  row, head, block = (pl.program_id(axis) for axis in range(3))
  window = _window(refs, windowed)
  up = 1 / (1 - options.rate)

  def body(i, carry):
    d_key, d_value = carry
    at = pl.ds(pl.multiple_of(i * queries, queries), queries)
    query, gradient = refs['query'][at, :], refs['gradient'][at, :]
    scores, keep = _scores(
      options, refs, (row, head), query, key, at, slice(None), i, block, window
    )
    weights = jnp.exp(scores - refs['normaliser'][at, :])
    d_weights = _drop(keep, _dot(gradient, value, (1, 1))) * up
    dropped = (_drop(keep, weights) * up).astype(gradient.dtype)
    d_scores = weights * (d_weights - refs['delta'][at, :])
    d_value = d_value + _dot(dropped, gradient, (0, 0))
    d_key = d_key + _dot(d_scores.astype(query.dtype), query, (0, 0))
    return d_key, d_value

  first, end = problem.query_blocks(
    options, block, refs['query'].shape[0] // queries, window
  )
  zeros = jnp.zeros(key.shape, jnp.float32)
  d_key, d_value = jax.lax.fori_loop(first, end, body, (zeros, zeros))
  refs['out_0'][...] = (d_key * options.scale).astype(refs['out_0'].dtype)
  refs['out_1'][...] = d_value.astype(refs['out_1'].dtype)


def _scores(options, refs, place, query, key, at_query, at_key, i, j, window):
  """Scores float32 [queries, keys] of blocks i and j; what dropout keeps."""
  shape = options.block
  rows = i * shape[0] + jax.lax.broadcasted_iota(jnp.int32, shape, 0)
  columns = j * shape[1] + jax.lax.broadcasted_iota(jnp.int32, shape, 1)
  segments = None
  if 'query_segments' in refs:
    segments = (
      refs['query_segments'][at_query, :],
      refs['key_segments'][:, at_key],
    )
  scores = _dot(query, key, (1, 1)) * options.scale
  seen = problem.seen(options, rows, columns, segments, window)
  if seen is not None:
    scores = jnp.where(seen, scores, problem.UNSEEN)
  if not options.rate:
    return scores, None
  return scores, problem.kept(
    options, refs['scalars'], place[0], place[1], rows, columns
  )


def _drop(keep, array):
  return array if keep is None else jnp.where(keep, array, 0.0)


def _window(refs, windowed):
  return refs['scalars'][problem.WINDOW].astype(jnp.int32) if windowed else None


def _dot(a, b, contract: tuple[int, int] = (1, 0)) -> jax.Array:
  return jax.lax.dot_general(
    a,
    b,
    (((contract[0],), (contract[1],)), ((), ())),
    preferred_element_type=jnp.float32,
  )


def _heads_first(array: jax.Array) -> jax.Array:
  return jnp.swapaxes(array, 1, 2)


_positions_first = _heads_first
