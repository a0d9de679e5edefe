"""Random NumPy parameters for tests that do not test initialization.

Compiling the initialization of a model takes one to two seconds. These functions
only trace it.
"""

import functools

import flax.linen as nn
import jax
import numpy as np

from xlflax.models import model_params


def draw(shapes, *, seed: int = 0, spread: float = 0.4):
  """Draws float32 arrays around 0, and norm scales around 1."""
  rng = np.random.default_rng(seed)

  def leaf(path, shape):
    center = 1.0 if "['scale']" in jax.tree_util.keystr(path) else 0.0
    return rng.normal(center, spread, shape.shape).astype(np.float32)

  return jax.tree_util.tree_map_with_path(leaf, shapes)


@functools.cache
def boxed(model, *, seed: int = 0, spread: float = 0.4):
  """Returns nonzero parameters of a model, boxed with logical axes."""
  shapes = jax.eval_shape(
    functools.partial(model_params.init_params, model), jax.random.key(0)
  )
  return draw(shapes, seed=seed, spread=spread)


def draw_parameters(model, *, seed: int = 0, spread: float = 0.4):
  """Returns nonzero parameters of a model without boxes."""
  return nn.unbox(boxed(model, seed=seed, spread=spread))


def of_heads(objective, model, *, seed: int = 1, spread: float = 0.4):
  """Returns parameters of the heads of an objective without boxes."""
  shapes = jax.eval_shape(
    functools.partial(objective.init_heads, model), jax.random.key(0)
  )
  return nn.unbox(draw(shapes, seed=seed, spread=spread))
