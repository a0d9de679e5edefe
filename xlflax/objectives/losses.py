"""Pure losses: arrays in, one loss per row out; the caller weighs and sums."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

_MASKED = -1e30  # a finite stand-in for -inf: gradients stay finite


class TokenLoss(NamedTuple):
  """Per row: the loss, and 1.0 where the label has the largest logit.

  A tie for the largest logit counts as right. No gradient flows through
  `correct`.
  """

  loss: jax.Array
  correct: jax.Array


def cross_entropy(logits: jax.Array, labels: jax.Array) -> TokenLoss:
  """-log softmax(logits)[label], in nats, computed in float32.

  Args:
    logits: [..., V].
    labels: int [...] in 0 .. V - 1.

  Returns:
    Loss and correctness (a tie counts as right), float32 [...] each.
  """
  logits = logits.astype(jnp.float32)
  maximum = jax.lax.stop_gradient(jnp.max(logits, axis=-1))
  label_logit = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
  total = jnp.sum(jnp.exp(logits - maximum[..., None]), axis=-1)
  correct = (label_logit >= maximum).astype(jnp.float32)
  return TokenLoss(
    maximum + jnp.log(total) - label_logit, jax.lax.stop_gradient(correct)
  )


def l2_normalize(vectors: jax.Array, *, epsilon: float = 1e-12) -> jax.Array:
  """Vectors [..., D] scaled to unit length; a zero vector stays zero.

  The squared length is kept above `epsilon`, so the gradient is finite.
  """
  vectors = vectors.astype(jnp.float32)
  square = jnp.sum(vectors * vectors, axis=-1, keepdims=True)
  return vectors * jax.lax.rsqrt(jnp.maximum(square, epsilon))


def info_nce(
  queries: jax.Array,
  keys: jax.Array,
  *,
  temperature: float,
  weights: jax.Array | None = None,
  excluded: jax.Array | None = None,
) -> TokenLoss:
  """InfoNCE with the other rows' keys as negatives (van den Oord et al. 2018).

  loss_i = -log exp(q_i . k_i / t) / sum_j exp(q_i . k_j / t)

  Args:
    queries: [B, D]; row i belongs to key i. Not normalised here.
    keys: [B, D].
    temperature: t > 0.
    weights: [B] or None (all 1). A row of weight 0 has loss 0, and its key is
      in no row's denominator.
    excluded: bool [B, B] or None; True takes key j out of the denominator of
      query i. The diagonal is ignored.

  Returns:
    Float32 [B] each: the loss, and 1 where no other key is more similar.
  """
  size = queries.shape[0]
  valid = jnp.ones([size], bool) if weights is None else weights > 0
  similarity = (
    jnp.matmul(
      queries,
      keys.T,
      precision=jax.lax.Precision.HIGHEST,
      preferred_element_type=jnp.float32,
    )
    / temperature
  )
  out = jnp.broadcast_to(~valid[None, :], (size, size))
  if excluded is not None:
    out |= excluded
  out &= ~jnp.eye(size, dtype=bool)
  similarity = jnp.where(out, _MASKED, similarity)
  result = cross_entropy(similarity, jnp.arange(size))
  return TokenLoss(
    jnp.where(valid, result.loss, 0.0), jnp.where(valid, result.correct, 0.0)
  )
