"""Heads of pretraining objectives: projection and discriminator."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp


class ProjectionHead(nn.Module):
  """W2 relu(W1 h) without biases (PPA, section 2; Chen et al. 2020).

  Attributes:
    dim: width of the output (PPA: 300).
  """

  dim: int

  @nn.compact
  def __call__(self, vectors: jax.Array) -> jax.Array:
    """[..., H] -> [..., dim], float32."""
    dense = functools.partial(_dense, use_bias=False)
    hidden = dense(vectors.shape[-1], ('embed', 'mlp'), 'inner')(vectors)
    return dense(self.dim, ('mlp', None), 'outer')(nn.relu(hidden))


class DiscriminatorHead(nn.Module):
  """w . gelu(W h + b) + c (Clark et al. 2020, as their code has it)."""

  @nn.compact
  def __call__(self, states: jax.Array) -> jax.Array:
    """[..., H] -> float32 logits [...] that the token was replaced."""
    states = states.astype(jnp.float32)
    hidden = _dense(states.shape[-1], ('embed', 'mlp'), 'inner')(states)
    outer = _dense(1, ('mlp', None), 'outer')
    return outer(nn.gelu(hidden, approximate=False))[..., 0]


def _dense(
  width: int, axes: tuple[str | None, ...], name: str, *, use_bias: bool = True
) -> nn.Dense:
  """A linear map with the logical axes of its parameters."""
  initial = nn.initializers
  return nn.Dense(
    width,
    use_bias=use_bias,
    name=name,
    kernel_init=nn.with_logical_partitioning(initial.xavier_uniform(), axes),
    bias_init=nn.with_logical_partitioning(initial.zeros_init(), axes[1:]),
  )
