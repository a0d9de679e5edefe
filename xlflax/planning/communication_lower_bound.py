"""What the devices of a mesh have to send for a step, at the least."""

import math

import jax.numpy as jnp

from xlflax.planning import memory
from xlflax.training import param_tree, training_setup


def minimum_bytes_sent(setup: training_setup.Setup) -> float:
  """Returns the bytes that each device sends for parameters and gradients.

  Each parameter that devices split is gathered once, and each gradient is
  summed once: into the parts that devices keep, and over those that keep the
  same part. Both are in the compute dtype, by rings. More than this is
  gathered again for the backward pass, or travels in float32; less, where
  rows of a table are exchanged instead of the table. What a tensor axis
  exchanges inside of layers is not in it.
  """
  settings = setup.settings
  size = jnp.dtype(settings.model.config.dtype).itemsize
  total = 0.0
  for name, leaf in param_tree.flatten_params(
    setup.factory.abstract_sharded.params
  ).items():
    shape = leaf.sharding.mesh.shape
    axes = {
      axis
      for part in leaf.sharding.spec
      for axis in (part if isinstance(part, tuple) else (part,))
    }
    pieces, copies = (
      math.prod(
        shape[axis]
        for axis in settings.partitioner.batch_axes
        if (axis in axes) is split
      )
      for split in (True, False)
    )
    part = memory.shard_bytes(leaf) / leaf.dtype.itemsize * size
    gathered = part * (pieces - 1)
    reduced = gathered + 2 * part * (copies - 1) / copies
    trained = settings.optimizer.is_trainable(name)
    total += gathered + (reduced if trained else 0.0)
  return total
