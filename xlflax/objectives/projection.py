"""The projection head of contrastive objectives."""

import flax.linen as nn
import jax


class ProjectionHead(nn.Module):
  """W2 relu(W1 h) without biases (PPA, section 2; Chen et al. 2020).

  Attributes:
    dim: width of the output (PPA: 300).
  """

  dim: int

  @nn.compact
  def __call__(self, vectors: jax.Array) -> jax.Array:
    """[..., H] -> [..., dim], float32."""

    def dense(width, axes, name):
      kernel_init = nn.with_logical_partitioning(
        nn.initializers.xavier_uniform(), axes
      )
      return nn.Dense(width, use_bias=False, kernel_init=kernel_init, name=name)

    hidden = dense(vectors.shape[-1], ('embed', 'mlp'), 'inner')(vectors)
    return dense(self.dim, ('mlp', None), 'outer')(nn.relu(hidden))
