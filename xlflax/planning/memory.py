"""Bytes on each device: state by kind, and how much of it is split."""

import math
from typing import Any

import jax

from xlflax.training import train_state, training_setup


def per_device(tree: Any) -> int:
  """Sums the bytes of the largest shard of each array of a tree."""
  return sum(shard_bytes(leaf) for leaf in jax.tree.leaves(tree))


def shard_bytes(leaf: Any) -> int:
  """Returns the bytes of one device's part of a sharded array."""
  return math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize


def of_state(state: train_state.TrainState) -> dict[str, int]:
  """Returns bytes per device of parameters, optimizer and other state."""
  return {
    'parameters': per_device(state.params),
    'optimizer': per_device(state.opt_state),
    'other_state': per_device((state.ema, state.objective_state)),
  }


def of_replay(setup: training_setup.Setup) -> dict[str, int]:
  """Returns bytes per device of the state's copy, if steps are replayed."""
  if not setup.settings.replay_every:
    return {}
  return {'replay': per_device(setup.factory.abstract_sharded)}


def fully_sharded_fraction(state: train_state.TrainState) -> dict[str, int]:
  """Returns how much of the state all of the FSDP and tensor axes split.

  Returns:
    'split': bytes per device of arrays that are split as often as these axes
    have devices; 'whole': what they are together on one device; 'replicated':
    bytes per device of the others: in full, or in fewer parts.
  """
  sizes = {'split': 0, 'whole': 0, 'replicated': 0}
  for leaf in jax.tree.leaves(
    (state.params, state.opt_state, state.ema, state.objective_state)
  ):
    shape = leaf.sharding.mesh.shape
    full_size, part = leaf.size * leaf.dtype.itemsize, shard_bytes(leaf)
    if 1 < shape['fsdp'] * shape['tensor'] == full_size / max(part, 1):
      sizes['split'] += part
      sizes['whole'] += full_size
    else:
      sizes['replicated'] += part
  return sizes
