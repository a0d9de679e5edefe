"""The divergence of a student's predictions from its teacher's."""

import jax
import jax.numpy as jnp

from xlflax.objectives import losses

_MASKED = -1e30  # a finite stand-in for -inf: gradients stay finite


def kl_divergence(
  teacher: jax.Array,
  student: jax.Array,
  support: jax.Array,
  *,
  temperature: float,
) -> losses.TokenLoss:
  """T^2 KL(p || q), in nats, of softmaxes over a part of the entries.

  p and q are the softmaxes of teacher / T and student / T over the entries of
  the support.

  Args:
    teacher: logits [..., V].
    student: logits [..., V].
    support: bool [V].
    temperature: T > 0.

  Returns:
    Float32 [...] each: the divergence (0 over no entry), and 1 where both
    have the largest logit at one entry.
  """
  support = jnp.expand_dims(support, tuple(range(teacher.ndim - 1)))
  scaled = [
    jnp.where(support, x.astype(jnp.float32) / temperature, _MASKED)
    for x in (teacher, student)
  ]
  log_p, log_q = (jax.nn.log_softmax(x, axis=-1) for x in scaled)
  terms = jnp.where(support, jnp.exp(log_p) * (log_p - log_q), 0.0)
  same = jnp.argmax(scaled[0], axis=-1) == jnp.argmax(scaled[1], axis=-1)
  return losses.TokenLoss(
    temperature**2 * jnp.sum(terms, axis=-1), same.astype(jnp.float32)
  )


def linear_kl(
  student,
  teacher,
  support: jax.Array,
  *,
  temperature: float,
  slots_per_chunk: int | None = None,
) -> losses.TokenLoss:
  """`kl_divergence` of logits from tied tables, all or some slots at a time.

  Args:
    student: hidden [B, K, H], table [R, H], bias [R].
    teacher: likewise, with a width of its own.
    support: bool [R].
    temperature: T > 0.
    slots_per_chunk: None holds logits [B, K, R]; a number, [B, that, R].

  Returns:
    Float32 [B, K] each.
  """

  def score(hidden_s, hidden_t):
    student_logits = _logits(hidden_s, *student[1:])
    teacher_logits = _logits(hidden_t, *teacher[1:])
    return kl_divergence(
      teacher_logits, student_logits, support, temperature=temperature
    )

  slots = student[0].shape[1]
  if slots_per_chunk is None or slots_per_chunk >= slots:
    return score(student[0], teacher[0])
  parts = -(-slots // slots_per_chunk)
  missing = parts * slots_per_chunk - slots

  def split(hidden):  # [B, K, H] -> [parts, B, slots_per_chunk, H]
    hidden = jnp.pad(hidden, ((0, 0), (0, missing), (0, 0)))
    return jnp.swapaxes(
      hidden.reshape(hidden.shape[0], parts, slots_per_chunk, -1), 0, 1
    )

  def join(values):  # [parts, B, slots_per_chunk] -> [B, K]
    return jnp.swapaxes(values, 0, 1).reshape(values.shape[1], -1)[:, :slots]

  scored = jax.lax.map(
    lambda hidden: jax.checkpoint(score)(*hidden),
    (split(student[0]), split(teacher[0])),
  )
  return losses.TokenLoss(join(scored.loss), join(scored.correct))


def _logits(hidden, table, bias) -> jax.Array:
  logits = jnp.einsum(
    'bkh,vh->bkv',
    hidden,
    table.astype(hidden.dtype),
    preferred_element_type=jnp.float32,
  )
  return logits + bias.astype(jnp.float32)[None, None, :]
