"""Cross-entropy with bfloat16 logits and few memory accesses on accelerators.

Logits are written once, in the dtype of the matmul, and read twice: by one pass
that computes maximum and sum together (online log-sum-exp, Milakov & Gimelshein
2018) and by the backward pass. Biases, exponentials and sums are float32.
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
  """Computes the softmax cross-entropy of a linear layer in nats.

    loss = -log softmax(hidden table^T + bias)[label]

  A label counts as correct if no rounded logit exceeds the label's logit.

  Args:
    hidden: Hidden states, bfloat16 of shape [N, H]. The matmuls and logits have
      the same dtype.
    table: Embedding table of shape [V, H].
    bias: Output bias of shape [V].
    labels: Correct token ids, an integer array of shape [N].

  Returns:
    Loss and correctness, float32 arrays of shape [N].
  """
  return _forward(hidden, table, bias, labels)[0]


def _forward(hidden, table, bias, labels):
  products = _matmul(hidden, table, (1, 1))
  logits = _add_bias(products, bias)
  maximum, total = max_and_sum(logits)
  normalizer = maximum + jnp.log(total)
  label_logit = jnp.take_along_axis(products, labels[:, None], axis=1)[:, 0]
  label_logit = label_logit.astype(jnp.float32) + bias[labels].astype(
    jnp.float32
  )
  output = TokenLoss(
    normalizer - label_logit, (label_logit >= maximum).astype(jnp.float32)
  )
  return output, (hidden, table, bias, labels, products, normalizer)


def _backward(saved, cotangent: TokenLoss):
  hidden, table, bias, labels, products, normalizer = saved
  columns = jnp.arange(table.shape[0], dtype=labels.dtype)
  one_hot = labels[:, None] == columns[None, :]
  probabilities = jnp.exp(_add_bias(products, bias) - normalizer[:, None])
  gradient = (probabilities - one_hot) * cotangent.loss[:, None]
  gradient = gradient.astype(hidden.dtype)
  return (
    _matmul(gradient, table, (1, 0)),
    _table_gradient(gradient, hidden, table.dtype),
    _materialize(gradient).astype(jnp.float32).sum(0).astype(bias.dtype),
    None,
  )


def _materialize(gradient: jax.Array) -> jax.Array:
  """Prevents XLA from fusing the sum of the gradient on Blackwell GPUs.

  XLA computes the sum in the kernel that produces the gradient. On Blackwell,
  that kernel also writes the gradient in float32: 4.6 GiB of 19.7 GiB at shape
  [4928, 250002]. On other devices, the gradient is returned unchanged.
  """
  capability = compile_targets.current_target().capability
  if capability and capability[0] >= 10:
    return lax.optimization_barrier(gradient)
  return gradient


cross_entropy.defvjp(_forward, _backward)


def _table_gradient(gradient, hidden, dtype) -> jax.Array:
  """Returns gradient^T hidden, of shape [V, H], for [N, V] and [N, H]."""
  if collective_matmul.on_several_tpus():
    axes = ('vocab', 'embed')
    table_gradient = collective_matmul.sum_over_rows(
      gradient, hidden, axes, rows=1
    )
  else:
    table_gradient = _matmul(gradient, hidden, (0, 0), jnp.float32)
  return table_gradient.astype(dtype)


def max_and_sum(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Computes each row's maximum and sum of exp(x - maximum) in one pass.

  Args:
    logits: Logits x, float32 of shape [N, V].

  Returns:
    Maximum and sum, float32 arrays of shape [N].
  """

  def combine(first, second):
    first_max, first_sum = first
    second_max, second_sum = second
    maximum = jnp.maximum(first_max, second_max)
    finite_max = jnp.where(jnp.isneginf(maximum), 0.0, maximum)
    # The sum of the larger maximum is not rescaled. One exponential is enough.
    factor = jnp.exp(jnp.minimum(first_max, second_max) - finite_max)
    is_first_larger = first_max >= second_max
    unscaled = jnp.where(is_first_larger, first_sum, second_sum)
    rescaled = factor * jnp.where(is_first_larger, second_sum, first_sum)
    return maximum, unscaled + rescaled

  maximum, total = lax.reduce(
    (logits, jnp.ones_like(logits)),
    (jnp.float32(-jnp.inf), jnp.float32(0)),
    combine,
    (1,),
  )
  return maximum, total


def _add_bias(products, bias) -> jax.Array:
  """Returns the float32 logits [N, V]."""
  return products.astype(jnp.float32) + bias.astype(jnp.float32)[None, :]


def _matmul(a, b, contract: tuple[int, int], dtype=None) -> jax.Array:
  """Contracts one axis of each operand, in the dtype of `a` by default."""
  return lax.dot_general(
    a,
    b.astype(a.dtype),
    (((contract[0],), (contract[1],)), ((), ())),
    preferred_element_type=dtype or a.dtype,
  )
