"""Cross-entropy on accelerators: bfloat16 logits, read as rarely as can be.

Logits are written once, in the dtype of the product, and read twice: by one
pass that finds maximum and sum together (online log-sum-exp, Milakov &
Gimelshein 2018) and by the backward pass. Biases, exponentials and sums are
float32.
"""

import jax
import jax.numpy as jnp
from jax import lax

from xlflax.models import compile_targets
from xlflax.models.linear import collective_matmul
from xlflax.objectives.losses import TokenLoss


@jax.custom_vjp
def cross_entropy(
  hidden: jax.Array, table: jax.Array, bias: jax.Array, labels: jax.Array
) -> TokenLoss:
  """-log softmax(hidden table^T + bias)[label] per row, in nats.

  A row counts as correct if no rounded logit is above the label's.

  Args:
    hidden: [N, H], bfloat16; the dtype of products and logits.
    table: [V, H].
    bias: [V].
    labels: int [N].

  Returns:
    Loss and correctness, float32 [N] each.
  """
  return _forward(hidden, table, bias, labels)[0]


def _forward(hidden, table, bias, labels):
  products = _matmul(hidden, table, (1, 1))
  logits = _logits(products, bias)
  maximum, total = max_and_sum(logits)
  normaliser = maximum + jnp.log(total)
  label_logit = jnp.take_along_axis(products, labels[:, None], axis=1)[:, 0]
  label_logit = label_logit.astype(jnp.float32) + bias[labels].astype(
    jnp.float32
  )
  output = TokenLoss(
    normaliser - label_logit, (label_logit >= maximum).astype(jnp.float32)
  )
  return output, (hidden, table, bias, labels, products, normaliser)


def _backward(saved, cotangent: TokenLoss):
  hidden, table, bias, labels, products, normaliser = saved
  columns = jnp.arange(table.shape[0], dtype=labels.dtype)
  hit = labels[:, None] == columns[None, :]
  share = jnp.exp(_logits(products, bias) - normaliser[:, None]) - hit
  gradient = (share * cotangent.loss[:, None]).astype(hidden.dtype)
  return (
    _matmul(gradient, table, (1, 0)),
    _table_gradient(gradient, hidden, table.dtype),
    _written(gradient).astype(jnp.float32).sum(0).astype(bias.dtype),
    None,
  )


def _written(gradient: jax.Array) -> jax.Array:
  """The same; for Blackwell an array that is read to be summed.

  XLA sums it in the kernel that makes it, but there writes it in float32 once
  more for that: 4.6 GiB of 19.7 at [4928, 250002].
  """
  capability = compile_targets.current_target().capability
  if capability and capability[0] >= 10:
    return lax.optimization_barrier(gradient)
  return gradient


cross_entropy.defvjp(_forward, _backward)


def _table_gradient(gradient, hidden, dtype) -> jax.Array:
  """[N, V] and [N, H] -> [V, H]."""
  if collective_matmul.is_split():
    axes = ('vocab', 'embed')
    table_gradient = collective_matmul.sum_of_rows(
      gradient, hidden, axes, rows=1
    )
  else:
    table_gradient = _matmul(gradient, hidden, (0, 0), jnp.float32)
  return table_gradient.astype(dtype)


def max_and_sum(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Returns the maximum and sum of exp(x - maximum) of each row.

  Args:
    logits: float32 [N, V].

  Returns:
    float32 [N] each, in one pass.
  """

  def combine(one, other):
    (a, of_a), (b, of_b) = one, other
    larger = jnp.maximum(a, b)
    safe = jnp.where(jnp.isneginf(larger), 0.0, larger)
    # The factor of the larger one is exp(0): one exponential is enough.
    factor = jnp.exp(jnp.minimum(a, b) - safe)
    is_a_larger = a >= b
    total = jnp.where(is_a_larger, of_a, of_b)
    return larger, total + factor * jnp.where(is_a_larger, of_b, of_a)

  maximum, total = lax.reduce(
    (logits, jnp.ones_like(logits)),
    (jnp.float32(-jnp.inf), jnp.float32(0)),
    combine,
    (1,),
  )
  return maximum, total


def _logits(products, bias) -> jax.Array:
  return products.astype(jnp.float32) + bias.astype(jnp.float32)[None, :]


def _matmul(a, b, contract: tuple[int, int], dtype=None) -> jax.Array:
  """Product over one axis of each, in the dtype of `a` or another."""
  return lax.dot_general(
    a,
    b.astype(a.dtype),
    (((contract[0],), (contract[1],)), ((), ())),
    preferred_element_type=dtype or a.dtype,
  )
