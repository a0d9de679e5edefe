"""Initialization and counting of a model's parameters."""

import functools
from typing import Annotated

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pydantic

from xlflax.models import encoder_config
from xlflax.models.variants import parameter_sharing
from xlflax.utils import errors, validation


@validation.validate_call
def init_params(
  model: nn.Module,
  rng: Annotated[
    jax.Array,
    pydantic.Field(description='a random key, such as jax.random.key(0)'),
  ],
  *,
  batch_size: validation.PositiveInt = 1,
  length: validation.PositiveInt = 8,
) -> dict:
  """Initializes a model's parameters, boxed with their logical axes.

  Args:
    model: Linen module to initialize, an `Encoder` or `EncoderDecoder`.
    rng: Random key for the initial values.
    batch_size: Batch size of the dummy token ids from which shapes are
      inferred.
    length: Length of the dummy token ids. It is limited to the model's
      `max_position_embeddings`.

  Returns:
    The parameter tree, without the key 'params'. If each language has its own
    copy of some parameters (a sharing plan), the tree has the structure
    described in `xlflax.models.variants.parameter_sharing`. Use
    `flax.linen.unbox` to remove the boxes.

  Raises:
    ConfigError: If the model has language-specific parameters (a sharing plan),
      but its number of languages is not set.
  """
  length = min(length, model.config.max_position_embeddings)
  return _init(model, rng, batch_size, length)


@functools.partial(jax.jit, static_argnums=(0, 2, 3))
def _init(model: nn.Module, rng: jax.Array, batch_size: int, length: int):
  """Initializes parameters in a jitted function.

  Compilation removes the computation of the logits. The function is traced once
  per model.
  """
  token_ids = jnp.zeros((batch_size, length), jnp.int32)

  def init(key):
    return model.init({'params': key}, token_ids)['params']

  plan = parameter_sharing.get_sharing_plan(model)
  if plan is None:
    return init(rng)
  num_languages = encoder_config.require_num_languages(
    model.config, 'A model with a sharing plan'
  )
  return parameter_sharing.init_shared_params(
    plan, init, rng, num_languages=num_languages
  )


def abstract_params(model: nn.Module) -> dict:
  """Returns the shapes of the parameters that `init_params` returns."""
  return jax.eval_shape(lambda: init_params(model, jax.random.key(0)))


@validation.validate_call
def count_params(tree) -> int:
  """Returns the total number of scalars in a tree of arrays or shapes.

  Args:
    tree: Tree of arrays or shapes, with or without boxes for logical axes.

  Raises:
    ConfigError: If a leaf has no shape.
  """
  leaves = jax.tree.leaves(nn.unbox(tree))
  for leaf in leaves:
    if not hasattr(leaf, 'shape'):
      raise errors.ConfigError(
        '`count_params` requires a tree of arrays or shapes, such as '
        'run.params(), but a leaf of the tree has no shape',
        got=repr(leaf)[:80],
        fix='Pass init_params(model, key), or the parameters of a run.',
      )
  return sum(int(np.prod(leaf.shape)) for leaf in leaves)
