"""Makes and counts the parameters of a model."""

import functools
from typing import Annotated

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pydantic

from xlflax.models import encoder_config as model_config
from xlflax.models.variants import parameter_sharing
from xlflax.utils import errors, validation


@validation.validate_call
def init_params(
  model: nn.Module,
  rng: Annotated[
    jax.Array, pydantic.Field(description='a key, such as jax.random.key(0)')
  ],
  *,
  batch_size: validation.PositiveInt = 1,
  length: validation.PositiveInt = 8,
) -> dict:
  """Returns fresh parameters, boxed with their logical axes.

  Args:
    model: an `Encoder`.
    rng: key.
    batch_size: rows of the token ids that shapes are inferred from.
    length: tokens of a row; at most the model's `max_length`.

  Returns:
    The tree under 'params' (with a sharing plan, that of
    `xlflax.models.variants.parameter_sharing`); `flax.linen.unbox` takes the boxes off.

  Raises:
    ConfigError: there is a sharing plan, but no number of languages.
  """
  length = min(length, model.config.max_length)
  return _init(model, rng, batch_size, length)


@functools.partial(jax.jit, static_argnums=(0, 2, 3))
def _init(model: nn.Module, rng: jax.Array, batch_size: int, length: int):
  """Compiled, so that logits are never computed; traced once for a model."""
  token_ids = jnp.zeros((batch_size, length), jnp.int32)

  def init(key):
    return model.init({'params': key}, token_ids)['params']

  plan = parameter_sharing.plan_of(model)
  if plan is None:
    return init(rng)
  num_languages = model_config.known_languages(
    model.config, 'A model with a sharing plan'
  )
  return parameter_sharing.init_shared_params(
    plan, init, rng, num_languages=num_languages
  )


def abstract_params(model: nn.Module) -> dict:
  """What `init_params` returns, as shapes: nothing is computed."""
  return jax.eval_shape(lambda: init_params(model, jax.random.key(0)))


@validation.validate_call
def count_params(tree) -> int:
  """Number of scalars in a tree of arrays or shapes, boxed or not."""
  leaves = jax.tree.leaves(nn.unbox(tree))
  for leaf in leaves:
    if not hasattr(leaf, 'shape'):
      raise errors.ConfigError(
        'What is counted is no tree of parameters',
        got=repr(leaf)[:80],
        expected='a tree of arrays or shapes, such as run.params()',
        where='count_params.tree',
        fix='take init_params(model, key), or the parameters of a run',
      )
  return sum(int(np.prod(leaf.shape)) for leaf in leaves)
