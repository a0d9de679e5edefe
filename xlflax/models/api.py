"""Making and counting a model's parameters."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np


def init_params(model: nn.Module, rng: jax.Array, *, batch_size: int = 1,
                length: int = 8) -> dict:
  """Fresh parameters, boxed with their logical axes.

  Args:
    model: an `Encoder`.
    rng: key.
    batch_size: rows of the token ids that shapes are inferred from.
    length: tokens of a row; at most the model's `max_length`.

  Returns:
    The tree under 'params'; `flax.linen.unbox` takes the boxes off.
  """
  length = min(length, model.config.max_length)
  token_ids = jnp.zeros((batch_size, length), jnp.int32)
  init = jax.jit(model.init)  # compiled, so that logits are never computed
  return init({'params': rng}, token_ids)['params']


def count_params(tree) -> int:
  """Number of scalars in a tree of arrays or shapes, boxed or not."""
  leaves = jax.tree.leaves(nn.unbox(tree))
  return sum(int(np.prod(leaf.shape)) for leaf in leaves)
