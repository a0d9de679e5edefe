"""Memory of the train state on each device."""

import math
from typing import Any

import jax

from xlflax.training import train_state, training_setup


def bytes_per_device(tree: Any) -> int:
  """Returns the number of bytes that sharded arrays occupy on one device."""
  return sum(shard_bytes(leaf) for leaf in jax.tree.leaves(tree))


def shard_bytes(leaf: Any) -> int:
  """Returns the size in bytes of an array's shard on one device."""
  return math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize


def state_bytes(state: train_state.TrainState) -> dict[str, int]:
  """Returns the bytes per device for parameters, optimizer and other state."""
  return {
    'parameters': bytes_per_device(state.params),
    'optimizer': bytes_per_device(state.opt_state),
    'other_state': bytes_per_device((state.ema, state.objective_state)),
  }


def replay_bytes(setup: training_setup.Setup) -> dict[str, int]:
  """Returns the bytes per device of the copy that corruption checks require.

  Steps that are checked for data corruption are computed again from a copy of
  the train state.
  """
  if not setup.settings.sdc_check_every:
    return {}
  return {'replay': bytes_per_device(setup.factory.abstract_sharded)}


def sharded_state_bytes(state: train_state.TrainState) -> dict[str, int]:
  """Returns the total sizes of fully sharded arrays and of other arrays.

  Args:
    state: Train state of the run, sharded over the devices.

  Returns:
    'split': bytes per device of the arrays that are split over all devices;
    'whole': the unsharded size of these arrays; 'not_split': bytes per device
    of all other arrays, which are replicated or split over fewer devices, such
    as the layers if there is a data axis.
  """
  sizes = {'split': 0, 'whole': 0, 'not_split': 0}
  for leaf in jax.tree.leaves(
    (state.params, state.opt_state, state.ema, state.objective_state)
  ):
    num_devices = leaf.sharding.mesh.size
    full_size, part = leaf.size * leaf.dtype.itemsize, shard_bytes(leaf)
    if num_devices > 1 and full_size == num_devices * part:
      sizes['split'] += part
      sizes['whole'] += full_size
    else:
      sizes['not_split'] += part
  return sizes
