"""Cross-entropy against a tied vocabulary table, whole or in chunks.

In chunks, the forward pass goes over parts of the vocabulary with a running
maximum and sum of exponentials (online log-sum-exp, Milakov & Gimelshein
2018). Only the logits of one part exist at a time, and the backward pass
recomputes them. On a CPU they are kept, and the parts only serve to fit its
cache, which is faster than the whole. Matrix products take the dtype of
`hidden` and accumulate in float32.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from xlflax.models import compile_targets
from xlflax.models.linear import dense
from xlflax.objectives.cross_entropy import compact_cross_entropy
from xlflax.objectives.losses import TokenLoss

# On a CPU, more float32 logits than the first number are computed in parts of
# about the second one: 64 MB and 4 MB (docs/performance.md).
_CPU_WHOLE_LOGITS = 2**24
_CPU_PART_LOGITS = 2**20


class _Chunks(NamedTuple):
  """How a table of `rows` rows is split into `num_parts` parts of `size` rows.

  With several groups, the table is that many equal groups of rows, and part i
  has the i-th run of size / groups rows of each group: every part then takes
  the same share of each shard of a table whose rows are sharded, and no shard
  is sent to another device. It needs num_parts * size = rows. With one group,
  part i starts at row i * size, and the last part is moved back to end at the
  last row.
  """

  rows: int
  num_parts: int
  size: int
  groups: int

  @property
  def _run(self) -> int:
    return self.size // self.groups

  def _start(self, i):
    return jnp.minimum(i * self.size, self.rows - self.size)

  def _grouped(self, array):
    return array.reshape(
      (self.groups, self.num_parts, self._run) + array.shape[1:]
    )

  def read(self, array, i):
    """Part i of `array [rows, ...]`: [size, ...]."""
    if self.groups == 1:
      return lax.dynamic_slice_in_dim(array, self._start(i), self.size)
    part = lax.dynamic_index_in_dim(
      self._grouped(array), i, axis=1, keepdims=False
    )
    return part.reshape((self.size,) + array.shape[1:])

  def write(self, array, value, i):
    """`array [rows, ...]` with `value [size, ...]` in part i.

    To be called from the last part to the first: rows that the last part
    shares with the one before it get that one's value.
    """
    value = value.astype(array.dtype)
    if self.groups == 1:
      return lax.dynamic_update_slice_in_dim(
        array, value, self._start(i), axis=0
      )
    value = value.reshape((self.groups, self._run) + array.shape[1:])
    return lax.dynamic_update_index_in_dim(
      self._grouped(array), value, i, axis=1
    ).reshape(array.shape)

  def fresh(self, i):
    """bool [size]: the rows of part i that no earlier part had."""
    if self.groups > 1:
      return jnp.ones(self.size, bool)
    return self._start(i) + jnp.arange(self.size) >= i * self.size

  def locate(self, labels, i) -> tuple[jax.Array, jax.Array]:
    """(is the label in part i, its index there), both shaped as `labels`."""
    if self.groups == 1:
      index = labels - self._start(i)
      inside = (labels >= i * self.size) & (index < self.size)
      return inside, jnp.clip(index, 0, self.size - 1)
    runs, offset = labels // self._run, labels % self._run
    inside = runs % self.num_parts == i
    return inside, runs // self.num_parts * self._run + offset


def _chunks_of(rows: int, chunk_size: int, *, sharded: bool) -> _Chunks:
  """Chooses parts of at most `chunk_size` rows, in groups if maybe sharded.

  Among the counts of parts that divide `rows`, up to twice the smallest
  possible one, that which allows the most groups is taken: powers of two up
  to 64. Where none does, and for a table on one device, there is one group,
  which is the fastest to read.
  """
  min_chunks = -(-rows // chunk_size)
  if not sharded:
    return _Chunks(rows, min_chunks, chunk_size, 1)
  groups = {
    count: math.gcd(rows // count, 64)
    for count in range(min_chunks, 2 * min_chunks)
    if rows % count == 0
  }
  count = max(groups, key=lambda c: (groups[c], -c), default=min_chunks)
  if groups.get(count, 1) == 1:
    return _Chunks(rows, min_chunks, chunk_size, 1)
  return _Chunks(rows, count, rows // count, groups[count])


def _matmul(a, b, contract: tuple[int, int]) -> jax.Array:
  """Product over one axis of each, accumulated in float32."""
  return lax.dot_general(
    a,
    b,
    (((contract[0],), (contract[1],)), ((), ())),
    preferred_element_type=jnp.float32,
  )


def _logits(hidden, table, bias) -> jax.Array:
  logits = _matmul(hidden, table.astype(hidden.dtype), (1, 1))
  return logits + bias.astype(jnp.float32)[None, :]


def _pick(logits, index) -> jax.Array:
  return jnp.take_along_axis(logits, index[:, None], axis=1)[:, 0]


def _chunk_logits(hidden, table, bias, chunks: _Chunks, i) -> jax.Array:
  """Logits [N, size] of part i, -inf at rows that an earlier part had."""
  logits = _logits(hidden, chunks.read(table, i), chunks.read(bias, i))
  return jnp.where(chunks.fresh(i)[None, :], logits, -jnp.inf)


def _logits_gradient(logits, normaliser, present, index, cotangent, dtype):
  """d loss / d logits [N, size]: (softmax - one-hot) * cotangent [N]."""
  columns = jnp.arange(logits.shape[1], dtype=index.dtype)
  hit = present[:, None] & (columns[None, :] == index[:, None])
  difference = jnp.exp(logits - normaliser[:, None]) - hit
  return (difference * cotangent[:, None]).astype(dtype)


def _part_gradients(gradient, hidden, table):
  """Float32 gradients of one part's hidden, table and bias.

  The columns of `gradient` are summed by a product: on a CPU that takes a
  tenth of the time of XLA's sum.
  """
  ones = jnp.ones_like(gradient[:, :1])
  return (
    _matmul(gradient, table.astype(hidden.dtype), (1, 0)),
    _matmul(gradient, hidden, (0, 0)),
    _matmul(ones, gradient, (0, 0))[0],
  )


def _output(normaliser, label_logit, maximum) -> TokenLoss:
  return TokenLoss(
    normaliser - label_logit, (label_logit >= maximum).astype(jnp.float32)
  )


@jax.custom_vjp
def _whole(hidden, table, bias, labels) -> TokenLoss:
  return _whole_forward(hidden, table, bias, labels)[0]


def _whole_forward(hidden, table, bias, labels):
  logits = _logits(hidden, table, bias)
  maximum = jnp.max(logits, axis=1)
  total = jnp.sum(jnp.exp(logits - maximum[:, None]), axis=1)
  normaliser = maximum + jnp.log(total)
  output = _output(normaliser, _pick(logits, labels), maximum)
  return output, (hidden, table, bias, labels, logits, normaliser)


def _whole_backward(saved, cotangent: TokenLoss):
  hidden, table, bias, labels, logits, normaliser = saved
  gradient = _logits_gradient(
    logits, normaliser, labels >= 0, labels, cotangent.loss, hidden.dtype
  )
  parts = _part_gradients(gradient, hidden, table)
  return (
    parts[0].astype(hidden.dtype),
    parts[1].astype(table.dtype),
    parts[2].astype(bias.dtype),
    None,
  )


_whole.defvjp(_whole_forward, _whole_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _chunked(
  chunks: _Chunks, keep: bool, hidden, table, bias, labels
) -> TokenLoss:
  """Computes in chunks; keeps their logits for the backward pass if `keep`."""
  return _chunked_forward(chunks, keep, hidden, table, bias, labels)[0]


def _chunked_forward(chunks, keep, hidden, table, bias, labels):
  def body(carry, i):
    maximum, total, label_logit = carry
    logits = _chunk_logits(hidden, table, bias, chunks, i)
    larger = jnp.maximum(maximum, jnp.max(logits, axis=1))
    total = total * jnp.exp(maximum - larger)
    total += jnp.sum(jnp.exp(logits - larger[:, None]), axis=1)
    present, index = chunks.locate(labels, i)
    label_logit = jnp.where(present, _pick(logits, index), label_logit)
    return (larger, total, label_logit), logits if keep else None

  zeros = jnp.zeros(labels.shape, jnp.float32)
  (maximum, total, label_logit), kept_logits = lax.scan(
    body, (zeros - jnp.inf, zeros, zeros), jnp.arange(chunks.num_parts)
  )
  normaliser = maximum + jnp.log(total)
  output = _output(normaliser, label_logit, maximum)
  return output, (hidden, table, bias, labels, normaliser, kept_logits)


def _chunked_backward(chunks: _Chunks, keep, saved, cotangent: TokenLoss):
  hidden, table, bias, labels, normaliser, kept_logits = saved

  def body(carry, inputs):
    i, logits = inputs
    d_hidden, d_table, d_bias = carry
    if not keep:
      logits = _chunk_logits(hidden, table, bias, chunks, i)
    gradient = _logits_gradient(
      logits,
      normaliser,
      *chunks.locate(labels, i),
      cotangent.loss,
      hidden.dtype,
    )
    parts = _part_gradients(gradient, hidden, chunks.read(table, i))
    return (
      d_hidden + parts[0],
      chunks.write(d_table, parts[1], i),
      chunks.write(d_bias, parts[2], i),
    ), None

  start = (
    jnp.zeros(hidden.shape, jnp.float32),
    jnp.zeros_like(table),
    jnp.zeros_like(bias),
  )
  gradients, _ = lax.scan(
    body, start, (jnp.arange(chunks.num_parts), kept_logits), reverse=True
  )
  return gradients[0].astype(hidden.dtype), gradients[1], gradients[2], None


_chunked.defvjp(_chunked_forward, _chunked_backward)


def _cpu_chunk_size(num_labels: int, rows: int) -> int | None:
  """Returns the rows of a part if parts with kept logits are faster."""
  if (
    compile_targets.current_target().platform != 'cpu'
    or num_labels * rows <= _CPU_WHOLE_LOGITS
  ):
    return None
  return max(_CPU_PART_LOGITS // num_labels, 256)


def _is_compact(hidden) -> bool:
  on_cpu = compile_targets.current_target().platform == 'cpu'
  return hidden.dtype == jnp.bfloat16 and not on_cpu


def linear_cross_entropy(
  hidden: jax.Array,
  table: jax.Array,
  bias: jax.Array,
  labels: jax.Array,
  *,
  chunk_size: int | None = None,
) -> TokenLoss:
  """-log softmax(hidden table^T + bias)[label] per row, in nats.

  Args:
    hidden: [N, H]; its dtype is that of the matrix products.
    table: [V, H], cast to the dtype of `hidden` part by part.
    bias: [V].
    labels: int [N] in 0 .. V - 1.
    chunk_size: None keeps the logits [N, V] for the backward pass, in float32
      or, of a bfloat16 model on an accelerator, in bfloat16;
      a number of vocabulary rows keeps at most [N, chunk_size] at a time and
      computes them twice. V need not be a multiple of it. Over a table that
      is sharded over V, choose V with many small factors (a multiple of 128).

  Returns:
    Loss and correctness, float32 [N] each.
  """
  rows, keep = table.shape[0], chunk_size is None
  if keep and _is_compact(hidden):
    return compact_cross_entropy.cross_entropy(hidden, table, bias, labels)
  if keep:
    chunk_size = _cpu_chunk_size(labels.shape[0], rows)
  if chunk_size is None or chunk_size >= rows:
    return _whole(hidden, table, bias, labels)
  if dense.on_several_accelerators():
    table = table.astype(hidden.dtype)  # as it has travelled
  chunks = _chunks_of(rows, chunk_size, sharded=jax.device_count() > 1)
  return _chunked(chunks, keep, hidden, table, bias, labels)
