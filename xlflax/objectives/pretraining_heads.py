"""Projection head and discriminator head for pretraining objectives."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp


class ProjectionHead(nn.Module):
  """Projection head without biases (Chen et al. 2020; PPA, section 2).

    output = W2 relu(W1 h)

  Attributes:
    dim: Width of the output (PPA: 300).
  """

  dim: int

  @nn.compact
  def __call__(self, vectors: jax.Array) -> jax.Array:
    """Projects vectors of shape [..., H] to float32 [..., dim]."""
    dense = functools.partial(_dense, use_bias=False)
    hidden = dense(vectors.shape[-1], ('embed', 'mlp'), 'inner')(vectors)
    return dense(self.dim, ('mlp', None), 'outer')(nn.relu(hidden))


class DiscriminatorHead(nn.Module):
  """Binary head for replaced-token detection (Clark et al. 2020).

    logit = w . gelu(W h + b) + c

  The architecture follows the code that was published with the paper.
  """

  @nn.compact
  def __call__(self, states: jax.Array) -> jax.Array:
    """Returns the logit of the probability that each token was replaced.

    Args:
      states: Hidden states of shape [..., H].

    Returns:
      float32 logits of shape [...].
    """
    states = states.astype(jnp.float32)
    hidden = _dense(states.shape[-1], ('embed', 'mlp'), 'inner')(states)
    outer = _dense(1, ('mlp', None), 'outer')
    return outer(nn.gelu(hidden, approximate=False))[..., 0]


def _dense(
  width: int, axes: tuple[str | None, ...], name: str, *, use_bias: bool = True
) -> nn.Dense:
  """Returns a dense layer with the logical axes of its parameters."""
  return nn.Dense(
    width,
    use_bias=use_bias,
    name=name,
    kernel_init=nn.with_logical_partitioning(
      nn.initializers.xavier_uniform(), axes
    ),
    bias_init=nn.with_logical_partitioning(
      nn.initializers.zeros_init(), axes[1:]
    ),
  )
