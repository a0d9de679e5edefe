"""Token sampling from the softmax over a tied embedding table."""

import jax
import jax.numpy as jnp
from jax import lax


def _perturbed_logits(rng, hidden, table, bias) -> jax.Array:
  """Returns logits plus Gumbel noise; the argmax is a sample of the softmax."""
  logits = lax.dot_general(
    hidden,
    table.astype(hidden.dtype),
    (((1,), (1,)), ((), ())),
    preferred_element_type=jnp.float32,
  )
  noise = jax.random.gumbel(rng, logits.shape, jnp.float32)
  return logits + bias.astype(jnp.float32)[None, :] + noise


def sample_tokens(
  rng: jax.Array,
  hidden: jax.Array,
  table: jax.Array,
  bias: jax.Array,
  *,
  chunk_size: int | None = None,
) -> jax.Array:
  """Samples one token per hidden state from a softmax (Gumbel-max trick).

  The distribution is softmax(hidden table^T + bias). No gradient flows through
  the samples.

  Args:
    rng: Random key.
    hidden: Hidden states of shape [N, H]. Their dtype is also used for the
      matmul.
    table: Embedding table of shape [V, H].
    bias: Output bias of shape [V].
    chunk_size: Number of vocabulary rows to score at a time. Memory then holds
      float32 scores of shape [N, chunk_size]. If None, all scores [N, V] are
      held at once. The samples depend on this value, but their distribution
      does not.

  Returns:
    int32 array of shape [N] with values in 0 .. V - 1.
  """
  hidden, table, bias = lax.stop_gradient((hidden, table, bias))
  rows = table.shape[0]
  if chunk_size is None or chunk_size >= rows:
    scores = _perturbed_logits(rng, hidden, table, bias)
    return jnp.argmax(scores, axis=1).astype(jnp.int32)

  def body(carry, i):
    best, sampled_ids = carry
    start = jnp.minimum(i * chunk_size, rows - chunk_size)
    scores = _perturbed_logits(
      jax.random.fold_in(rng, i),
      hidden,
      lax.dynamic_slice_in_dim(table, start, chunk_size),
      lax.dynamic_slice_in_dim(bias, start, chunk_size),
    )
    ids = start + jnp.arange(chunk_size)
    # The last chunk is moved back to end at the last row. Rows that an earlier
    # chunk has scored are excluded.
    scores = jnp.where((ids >= i * chunk_size)[None, :], scores, -jnp.inf)
    best_index = jnp.argmax(scores, axis=1)
    top = jnp.max(scores, axis=1)
    is_better = top > best
    return (
      jnp.where(is_better, top, best),
      jnp.where(is_better, start + best_index, sampled_ids).astype(jnp.int32),
    ), None

  initial = (
    jnp.full(hidden.shape[:1], -jnp.inf, jnp.float32),
    jnp.zeros(hidden.shape[:1], jnp.int32),
  )
  num_chunks = -(-rows // chunk_size)
  (_, sampled_ids), _ = lax.scan(body, initial, jnp.arange(num_chunks))
  return sampled_ids
