"""Lower bound on the number of bytes that each device sends in a step."""

import math

import jax.numpy as jnp

from xlflax.planning import memory
from xlflax.training import param_tree, training_setup


def minimum_bytes_sent(setup: training_setup.Setup) -> float:
  """Returns the minimum number of bytes that each device sends in a step.

  Each sharded parameter is gathered once. Each gradient is summed once, into
  the shards of the devices and over the devices with the same shard. Both use
  the compute dtype and ring algorithms. A step sends more if parameters are
  gathered again for the backward pass, or if gradients are sent in float32. It
  sends less if rows of an embedding table are exchanged instead of the table.
  The communication of a tensor axis inside of layers is not included.

  Args:
    setup: Model, vocabulary, settings and step functions of the run.
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
      for shard_size in leaf.sharding.spec
      for axis in (
        shard_size if isinstance(shard_size, tuple) else (shard_size,)
      )
    }
    num_shards, num_copies = (
      math.prod(
        shape[axis]
        for axis in settings.partitioner.batch_axes
        if (axis in axes) is split
      )
      for split in (True, False)
    )
    shard_size = memory.shard_bytes(leaf) / leaf.dtype.itemsize * size
    gathered = shard_size * (num_shards - 1)
    reduced = gathered + 2 * shard_size * (num_copies - 1) / num_copies
    is_trained = settings.optimizer.is_trainable(name)
    total += gathered + (reduced if is_trained else 0.0)
  return total
