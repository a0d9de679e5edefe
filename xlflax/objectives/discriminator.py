"""Which tokens were replaced: the binary head, and its loss."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.objectives import losses


class DiscriminatorHead(nn.Module):
  """w . gelu(W h + b) + c (Clark et al. 2020, as their code has it)."""

  @nn.compact
  def __call__(self, states: jax.Array) -> jax.Array:
    """[..., H] -> float32 logits [...] that the token was replaced."""
    states = states.astype(jnp.float32)

    def dense(width, axes, name):
      return nn.Dense(
        width,
        name=name,
        kernel_init=nn.with_logical_partitioning(
          nn.initializers.xavier_uniform(), axes
        ),
        bias_init=nn.with_logical_partitioning(
          nn.initializers.zeros_init(), axes[1:]
        ),
      )

    hidden = dense(states.shape[-1], ('embed', 'mlp'), 'inner')(states)
    return dense(1, ('mlp', None), 'outer')(nn.gelu(hidden, approximate=False))[
      ..., 0
    ]


def binary_cross_entropy(
  logits: jax.Array, labels: jax.Array
) -> losses.TokenLoss:
  """-log of the probability of a label, in nats.

  Args:
    logits: [...], of the label 1.
    labels: bool [...].

  Returns:
    Float32 [...] each: the loss, and 1 where the label is the likelier one
    (at logit 0 that is label 0).
  """
  logits = logits.astype(jnp.float32)
  signed = jnp.where(labels, logits, -logits)
  correct = ((logits > 0) == labels).astype(jnp.float32)
  return losses.TokenLoss(
    jax.nn.softplus(-signed), jax.lax.stop_gradient(correct)
  )
