"""Loss functions that return a separate loss for each example.

The caller weights and sums the losses.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlflax.models.attention.masks import MASKED_SCORE


class TokenLoss(NamedTuple):
  """Loss and correctness of each example's prediction.

  Attributes:
    loss: Loss of each example, a float32 array.
    correct: Array that is 1.0 where the label has the largest logit and 0.0
      elsewhere, float32 with the shape of `loss`. A tie for the largest logit
      counts as correct. No gradient flows through the array.
  """

  loss: jax.Array
  correct: jax.Array


def cross_entropy(logits: jax.Array, labels: jax.Array) -> TokenLoss:
  """Computes the softmax cross-entropy in nats, in float32.

    loss = -log softmax(logits)[label]

  Args:
    logits: Logits of shape [..., V].
    labels: Correct classes, an integer array of shape [...] with values in 0 ..
      V - 1.

  Returns:
    Loss and correctness, float32 arrays of shape [...].
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
  """Scales vectors to unit length.

  The squared length is clipped from below at `epsilon`. The gradient is
  therefore finite, and a zero vector stays zero.

  Args:
    vectors: Vectors to scale, of shape [..., D].
    epsilon: Lower bound for the squared length by which a vector is divided.

  Returns:
    float32 array of shape [..., D].
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
  """Computes InfoNCE with in-batch negatives (van den Oord et al. 2018).

    loss_i = -log exp(q_i . k_i / t) / sum_j exp(q_i . k_j / t)

  Args:
    queries: Query vectors of shape [B, D]. Query i belongs to key i. The
      vectors are not normalized here.
    keys: Key vectors of shape [B, D].
    temperature: Temperature t > 0 by which the similarities are divided.
    weights: Weights of the examples, of shape [B]. An example with weight 0 has
      loss 0, and its key is not a negative of any query. If None, all weights
      are 1.
    excluded: Boolean array of shape [B, B]. True at (i, j) removes key j from
      the denominator of query i. The diagonal is ignored. If None, all keys are
      used.

  Returns:
    The loss, and 1 where no other key is more similar than the query's own,
    float32 arrays of shape [B].
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
  is_masked = jnp.broadcast_to(~valid[None, :], (size, size))
  if excluded is not None:
    is_masked |= excluded
  is_masked &= ~jnp.eye(size, dtype=bool)
  similarity = jnp.where(is_masked, MASKED_SCORE, similarity)
  result = cross_entropy(similarity, jnp.arange(size))
  return TokenLoss(
    jnp.where(valid, result.loss, 0.0), jnp.where(valid, result.correct, 0.0)
  )


def binary_cross_entropy(logits: jax.Array, labels: jax.Array) -> TokenLoss:
  """Computes the sigmoid binary cross-entropy in nats, in float32.

    loss = -log sigmoid(logit) if the label is True, else -log sigmoid(-logit)

  Args:
    logits: Logits of the label True, of shape [...].
    labels: Correct labels, a boolean array of shape [...].

  Returns:
    The loss, and 1 where the label is the more likely one, float32 arrays of
    shape [...]. At logit 0, the label False counts as more likely.
  """
  logits = logits.astype(jnp.float32)
  label_logits = jnp.where(labels, logits, -logits)
  correct = ((logits > 0) == labels).astype(jnp.float32)
  return TokenLoss(
    jax.nn.softplus(-label_logits), jax.lax.stop_gradient(correct)
  )


def kl_divergence(
  teacher: jax.Array,
  student: jax.Array,
  support: jax.Array,
  *,
  temperature: float,
) -> TokenLoss:
  """Computes the KL divergence of teacher and student, multiplied by T^2.

  The result is T^2 KL(p || q) in nats. p and q are the softmaxes of teacher / T
  and student / T over the tokens in `support`. The factor T^2 keeps the
  size of the gradients roughly independent of T (Hinton et al. 2015).

  Args:
    teacher: Teacher logits of shape [..., V].
    student: Student logits of shape [..., V].
    support: Boolean array of shape [V], True for the tokens over which the
      softmax is computed.
    temperature: Temperature T > 0 by which the logits are divided.

  Returns:
    The divergence (0 if the support is empty), and 1 where both models have the
    same most likely token, float32 arrays of shape [...].
  """
  support = jnp.expand_dims(support, tuple(range(teacher.ndim - 1)))
  scaled = [
    jnp.where(support, x.astype(jnp.float32) / temperature, MASKED_SCORE)
    for x in (teacher, student)
  ]
  log_p, log_q = (jax.nn.log_softmax(x, axis=-1) for x in scaled)
  terms = jnp.where(support, jnp.exp(log_p) * (log_p - log_q), 0.0)
  agreement = jnp.argmax(scaled[0], axis=-1) == jnp.argmax(scaled[1], axis=-1)
  return TokenLoss(
    temperature**2 * jnp.sum(terms, axis=-1), agreement.astype(jnp.float32)
  )


def linear_kl(
  student,
  teacher,
  support: jax.Array,
  *,
  temperature: float,
  chunk_size: int | None = None,
) -> TokenLoss:
  """Computes `kl_divergence` from hidden states instead of logits.

  The logits are hidden @ table^T + bias.

  Args:
    student: Tuple of the student's hidden states [B, K, H], embedding table
      [R, H] and output bias [R].
    teacher: Tuple of the teacher's hidden states, embedding table and output
      bias, as for the student. The width H may differ.
    support: Boolean array of shape [R], True for the tokens over which the
      softmax is computed.
    temperature: Temperature T > 0 by which the logits are divided.
    chunk_size: Number of positions, out of K, to score at a time. At most
      [B, chunk_size, R] logits are then held in memory. If None, all logits
      [B, K, R] are held at once.

  Returns:
    Divergence and agreement, float32 arrays of shape [B, K].
  """

  def score(student_hidden, teacher_hidden):
    student_logits = _compute_logits(student_hidden, *student[1:])
    teacher_logits = _compute_logits(teacher_hidden, *teacher[1:])
    return kl_divergence(
      teacher_logits, student_logits, support, temperature=temperature
    )

  slots = student[0].shape[1]
  if chunk_size is None or chunk_size >= slots:
    return score(student[0], teacher[0])
  num_chunks = -(-slots // chunk_size)
  num_padding = num_chunks * chunk_size - slots

  def split(hidden):  # [B, K, H] -> [num_chunks, B, chunk_size, H]
    hidden = jnp.pad(hidden, ((0, 0), (0, num_padding), (0, 0)))
    return jnp.swapaxes(
      hidden.reshape(hidden.shape[0], num_chunks, chunk_size, -1), 0, 1
    )

  def join(values):  # [num_chunks, B, chunk_size] -> [B, K]
    return jnp.swapaxes(values, 0, 1).reshape(values.shape[1], -1)[:, :slots]

  scored = jax.lax.map(
    lambda hidden: jax.checkpoint(score)(*hidden),
    (split(student[0]), split(teacher[0])),
  )
  return TokenLoss(join(scored.loss), join(scored.correct))


def _compute_logits(hidden, table, bias) -> jax.Array:
  """Returns float32 logits [B, K, R] of hidden states [B, K, H]."""
  logits = jnp.einsum(
    'bkh,vh->bkv',
    hidden,
    table.astype(hidden.dtype),
    preferred_element_type=jnp.float32,
  )
  return logits + bias.astype(jnp.float32)[None, None, :]
