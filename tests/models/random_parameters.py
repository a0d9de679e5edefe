"""Parameters drawn by numpy, for tests that do not test initialisation.

Initialising a model compiles for a second or two; these only trace it.
"""

import functools

import flax.linen as nn
import jax
import numpy as np

from xlflax.models import model_params


def draw(shapes, *, seed: int = 0, spread: float = 0.4):
  """A tree of float32 arrays, normal around 0; scales of norms around 1."""
  rng = np.random.default_rng(seed)

  def leaf(path, shape):
    center = 1.0 if "['scale']" in jax.tree_util.keystr(path) else 0.0
    return rng.normal(center, spread, shape.shape).astype(np.float32)

  return jax.tree_util.tree_map_with_path(leaf, shapes)


@functools.cache
def boxed(model, *, seed: int = 0, spread: float = 0.4):
  """Those of a model, none of them zero, boxed with their logical axes."""
  shapes = jax.eval_shape(
    functools.partial(model_params.init_params, model), jax.random.key(0)
  )
  return draw(shapes, seed=seed, spread=spread)


def draw_parameters(model, *, seed: int = 0, spread: float = 0.4):
  """The same without boxes."""
  return nn.unbox(boxed(model, seed=seed, spread=spread))


def of_heads(objective, model, *, seed: int = 1, spread: float = 0.4):
  """Those of an objective's heads on a model, without boxes."""
  shapes = jax.eval_shape(
    functools.partial(objective.init_heads, model), jax.random.key(0)
  )
  return nn.unbox(draw(shapes, seed=seed, spread=spread))
