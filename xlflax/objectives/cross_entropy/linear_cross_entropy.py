"""Cross-entropy over a tied embedding table, computed at once or in chunks.

If the loss is computed in chunks, the forward pass iterates over slices of the
vocabulary with a running maximum and sum of exponentials (online log-sum-exp,
Milakov & Gimelshein 2018). Only the logits of one chunk exist at a time, and
the backward pass recomputes them. On a CPU, the logits are kept, and chunks are
used so that the logits fit in the processor's cache, which is faster than
computing all logits at once. Matmuls have the dtype of `hidden` and accumulate
in float32.
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

# On a CPU, up to 2^24 float32 logits (64 MB) are computed at once. More logits
# are computed in chunks of about 2^20 (4 MB). See
# docs/measured/compiled_steps.md.
_CPU_MAX_UNCHUNKED_LOGITS = 2**24
_CPU_CHUNK_LOGITS = 2**20


class _Chunks(NamedTuple):
  """Division of a table into chunks of rows.

  With several groups, the table is divided into `groups` equal groups of rows,
  and chunk i contains the i-th run of size / groups rows of each group. If the
  rows of the table are sharded, every chunk then contains an equal number of
  rows of each shard, and no shard is sent to another device. This requires
  num_chunks * size = rows.

  With one group, chunk i starts at row i * size. The last chunk is moved back
  to end at the last row.

  Attributes:
    rows: Number of rows in the embedding table.
    num_chunks: Number of chunks into which the rows are divided.
    size: Number of table rows in each chunk.
    groups: Number of equal groups into which the rows are divided. A chunk
      contains the same number of rows of each group.
  """

  rows: int
  num_chunks: int
  size: int
  groups: int

  @property
  def _run(self) -> int:
    """The number of consecutive rows that a chunk reads from each group."""
    return self.size // self.groups

  def _start(self, i):
    """Returns the first row of chunk i if there is a single group."""
    return jnp.minimum(i * self.size, self.rows - self.size)

  def _grouped(self, array):
    """Reshapes [rows, ...] to [groups, num_chunks, run, ...]."""
    return array.reshape(
      (self.groups, self.num_chunks, self._run) + array.shape[1:]
    )

  def read(self, array, i):
    """Returns chunk i, of shape [size, ...], of an array [rows, ...]."""
    if self.groups == 1:
      return lax.dynamic_slice_in_dim(array, self._start(i), self.size)
    chunk = lax.dynamic_index_in_dim(
      self._grouped(array), i, axis=1, keepdims=False
    )
    return chunk.reshape((self.size,) + array.shape[1:])

  def write(self, array, value, i):
    """Returns a copy of `array` in which `value` replaces the rows of chunk i.

    Chunks must be written from the last to the first. Rows that the last chunk
    shares with the preceding one then get the value of the preceding one.
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

  def is_new(self, i):
    """Returns a mask of the rows in chunk i that are not in an earlier chunk.

    The last chunk can overlap with the chunk before it.
    """
    if self.groups > 1:
      return jnp.ones(self.size, bool)
    return self._start(i) + jnp.arange(self.size) >= i * self.size

  def locate(self, labels, i) -> tuple[jax.Array, jax.Array]:
    """Returns whether each label is in chunk i, and its index in that chunk.

    Both arrays have the shape of `labels`.
    """
    if self.groups == 1:
      index = labels - self._start(i)
      in_chunk = (labels >= i * self.size) & (index < self.size)
      return in_chunk, jnp.clip(index, 0, self.size - 1)
    runs, offset = labels // self._run, labels % self._run
    in_chunk = runs % self.num_chunks == i
    return in_chunk, runs // self.num_chunks * self._run + offset


def _plan_chunks(rows: int, chunk_size: int, *, sharded: bool) -> _Chunks:
  """Chooses chunks of at most `chunk_size` rows.

  For a sharded table, the number of chunks must divide `rows` and be less than
  twice the smallest possible number. Among these numbers, the function chooses
  the number that allows the most groups, where the number of groups is a power
  of two up to 64. If no such number exists, or if the table is on one device, a
  single group is used, which is the fastest to read.
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
  """Contracts one axis of each operand and accumulates in float32."""
  return lax.dot_general(
    a,
    b,
    (((contract[0],), (contract[1],)), ((), ())),
    preferred_element_type=jnp.float32,
  )


def _compute_logits(hidden, table, bias) -> jax.Array:
  """Returns float32 logits [N, V] of hidden states [N, H]."""
  logits = _matmul(hidden, table.astype(hidden.dtype), (1, 1))
  return logits + bias.astype(jnp.float32)[None, :]


def _select(logits, index) -> jax.Array:
  """Selects one logit per row of [N, V], at the columns [N]."""
  return jnp.take_along_axis(logits, index[:, None], axis=1)[:, 0]


def _chunk_logits(hidden, table, bias, chunks: _Chunks, i) -> jax.Array:
  """Returns logits [N, size] of chunk i, -inf at rows of an earlier chunk."""
  logits = _compute_logits(hidden, chunks.read(table, i), chunks.read(bias, i))
  return jnp.where(chunks.is_new(i)[None, :], logits, -jnp.inf)


def _logits_gradient(logits, normalizer, present, index, cotangent, dtype):
  """Returns the gradient of the loss with respect to the logits, [N, size].

  d loss / d logits = (softmax - one_hot) * cotangent
  """
  columns = jnp.arange(logits.shape[1], dtype=index.dtype)
  one_hot = present[:, None] & (columns[None, :] == index[:, None])
  difference = jnp.exp(logits - normalizer[:, None]) - one_hot
  return (difference * cotangent[:, None]).astype(dtype)


def _chunk_gradients(gradient, hidden, table):
  """Returns the float32 gradients of hidden, table and bias for one chunk.

  The columns of `gradient` are summed by a matmul. On a CPU, this takes a tenth
  of the time of XLA's sum.
  """
  ones = jnp.ones_like(gradient[:, :1])
  return (
    _matmul(gradient, table.astype(hidden.dtype), (1, 0)),
    _matmul(gradient, hidden, (0, 0)),
    _matmul(ones, gradient, (0, 0))[0],
  )


def _output(normalizer, label_logit, maximum) -> TokenLoss:
  """Returns loss and correctness from the log-sum-exp and the maximum."""
  return TokenLoss(
    normalizer - label_logit, (label_logit >= maximum).astype(jnp.float32)
  )


@jax.custom_vjp
def _unchunked(hidden, table, bias, labels) -> TokenLoss:
  """Computes the loss from all logits, which the backward pass reuses."""
  return _unchunked_forward(hidden, table, bias, labels)[0]


def _unchunked_forward(hidden, table, bias, labels):
  logits = _compute_logits(hidden, table, bias)
  maximum = jnp.max(logits, axis=1)
  total = jnp.sum(jnp.exp(logits - maximum[:, None]), axis=1)
  normalizer = maximum + jnp.log(total)
  output = _output(normalizer, _select(logits, labels), maximum)
  return output, (hidden, table, bias, labels, logits, normalizer)


def _unchunked_backward(saved, cotangent: TokenLoss):
  hidden, table, bias, labels, logits, normalizer = saved
  gradient = _logits_gradient(
    logits, normalizer, labels >= 0, labels, cotangent.loss, hidden.dtype
  )
  d_hidden, d_table, d_bias = _chunk_gradients(gradient, hidden, table)
  return (
    d_hidden.astype(hidden.dtype),
    d_table.astype(table.dtype),
    d_bias.astype(bias.dtype),
    None,
  )


_unchunked.defvjp(_unchunked_forward, _unchunked_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _chunked(
  chunks: _Chunks, keep: bool, hidden, table, bias, labels
) -> TokenLoss:
  """Computes the loss in chunks.

  Args:
    chunks: Division of the embedding table's rows into chunks.
    keep: Whether to store the logits for the backward pass.
    hidden: Hidden states of shape [N, H].
    table: Embedding table of shape [V, H].
    bias: Output bias of shape [V].
    labels: Correct token ids, an integer array of shape [N].
  """
  return _chunked_forward(chunks, keep, hidden, table, bias, labels)[0]


def _chunked_forward(chunks, keep, hidden, table, bias, labels):
  def body(carry, i):
    maximum, total, label_logit = carry
    logits = _chunk_logits(hidden, table, bias, chunks, i)
    larger = jnp.maximum(maximum, jnp.max(logits, axis=1))
    total = total * jnp.exp(maximum - larger)
    total += jnp.sum(jnp.exp(logits - larger[:, None]), axis=1)
    present, index = chunks.locate(labels, i)
    label_logit = jnp.where(present, _select(logits, index), label_logit)
    return (larger, total, label_logit), logits if keep else None

  zeros = jnp.zeros(labels.shape, jnp.float32)
  (maximum, total, label_logit), kept_logits = lax.scan(
    body, (zeros - jnp.inf, zeros, zeros), jnp.arange(chunks.num_chunks)
  )
  normalizer = maximum + jnp.log(total)
  output = _output(normalizer, label_logit, maximum)
  return output, (hidden, table, bias, labels, normalizer, kept_logits)


def _chunked_backward(chunks: _Chunks, keep, saved, cotangent: TokenLoss):
  hidden, table, bias, labels, normalizer, kept_logits = saved

  def body(carry, inputs):
    i, logits = inputs
    d_hidden, d_table, d_bias = carry
    if not keep:
      logits = _chunk_logits(hidden, table, bias, chunks, i)
    gradient = _logits_gradient(
      logits,
      normalizer,
      *chunks.locate(labels, i),
      cotangent.loss,
      hidden.dtype,
    )
    hidden_part, table_chunk, bias_chunk = _chunk_gradients(
      gradient, hidden, chunks.read(table, i)
    )
    return (
      d_hidden + hidden_part,
      chunks.write(d_table, table_chunk, i),
      chunks.write(d_bias, bias_chunk, i),
    ), None

  start = (
    jnp.zeros(hidden.shape, jnp.float32),
    jnp.zeros_like(table),
    jnp.zeros_like(bias),
  )
  gradients, _ = lax.scan(
    body, start, (jnp.arange(chunks.num_chunks), kept_logits), reverse=True
  )
  return gradients[0].astype(hidden.dtype), gradients[1], gradients[2], None


_chunked.defvjp(_chunked_forward, _chunked_backward)


def _cpu_chunk_size(num_labels: int, rows: int) -> int | None:
  """Returns the chunk size if chunks are faster on this device, else None."""
  if (
    compile_targets.current_target().platform != 'cpu'
    or num_labels * rows <= _CPU_MAX_UNCHUNKED_LOGITS
  ):
    return None
  return max(_CPU_CHUNK_LOGITS // num_labels, 256)


def _is_compact(hidden) -> bool:
  """Returns whether `compact_cross_entropy` applies: bfloat16, not on a CPU."""
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
  """Computes the softmax cross-entropy of a linear layer in nats.

    loss = -log softmax(hidden table^T + bias)[label]

  Args:
    hidden: Hidden states of shape [N, H]. Their dtype is also used for the
      matmuls.
    table: Embedding table of shape [V, H], cast to the dtype of `hidden` chunk
      by chunk.
    bias: Output bias of shape [V].
    labels: Correct token ids, an integer array of shape [N] with values in 0 ..
      V - 1.
    chunk_size: Number of vocabulary rows to score at a time. At most [N,
      chunk_size] logits then exist at once, and they are computed twice. V does
      not need to be a multiple of `chunk_size`. For a table that is sharded
      over V, choose V with many small factors (a multiple of 128). If None, the
      logits [N, V] are kept for the backward pass. They are float32, or
      bfloat16 for a bfloat16 model on an accelerator.

  Returns:
    Loss and correctness, float32 arrays of shape [N].
  """
  rows, keep = table.shape[0], chunk_size is None
  if keep and _is_compact(hidden):
    return compact_cross_entropy.cross_entropy(hidden, table, bias, labels)
  if keep:
    chunk_size = _cpu_chunk_size(labels.shape[0], rows)
  if chunk_size is None or chunk_size >= rows:
    return _unchunked(hidden, table, bias, labels)
  if dense.on_several_accelerators():
    # The table is cast once, because devices exchange it in this dtype.
    table = table.astype(hidden.dtype)
  chunks = _plan_chunks(rows, chunk_size, sharded=jax.device_count() > 1)
  return _chunked(chunks, keep, hidden, table, bias, labels)
