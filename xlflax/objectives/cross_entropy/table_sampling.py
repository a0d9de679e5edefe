"""Draws tokens from the softmax over a tied vocabulary table."""

import jax
import jax.numpy as jnp
from jax import lax


def _scores(rng, hidden, table, bias) -> jax.Array:
  """Returns logits plus Gumbel noise, whose argmax is a draw of the softmax."""
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
  """Draws one token per row from softmax(hidden table^T + bias) by Gumbel-max.

  No gradient flows through it.

  Args:
    rng: key.
    hidden: [N, H]; its dtype is that of the product.
    table: [V, H].
    bias: [V].
    chunk_size: None holds float32 [N, V] at once; a number of vocabulary rows
      holds [N, chunk_size]. The draws differ, their distribution does not.

  Returns:
    int32 [N], in 0 .. V - 1.
  """
  hidden, table, bias = lax.stop_gradient((hidden, table, bias))
  rows = table.shape[0]
  if chunk_size is None or chunk_size >= rows:
    return jnp.argmax(_scores(rng, hidden, table, bias), axis=1).astype(
      jnp.int32
    )

  def body(carry, i):
    best, chosen = carry
    start = jnp.minimum(i * chunk_size, rows - chunk_size)
    scores = _scores(
      jax.random.fold_in(rng, i),
      hidden,
      lax.dynamic_slice_in_dim(table, start, chunk_size),
      lax.dynamic_slice_in_dim(bias, start, chunk_size),
    )
    ids = start + jnp.arange(chunk_size)
    # The last part begins earlier to end at the last row: no row twice.
    scores = jnp.where((ids >= i * chunk_size)[None, :], scores, -jnp.inf)
    best_index = jnp.argmax(scores, axis=1)
    top = jnp.max(scores, axis=1)
    better = top > best
    return (
      jnp.where(better, top, best),
      jnp.where(better, start + best_index, chosen).astype(jnp.int32),
    ), None

  none = (
    jnp.full(hidden.shape[:1], -jnp.inf, jnp.float32),
    jnp.zeros(hidden.shape[:1], jnp.int32),
  )
  (_, chosen), _ = lax.scan(body, none, jnp.arange(-(-rows // chunk_size)))
  return chosen
