"""Placement of evaluation batches on a device mesh or a single device."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.training.devices.partitioning import Partitioner


def row_multiple(partitioner: Partitioner | None) -> int:
  """Returns the number by which the size of a batch must be divisible.

  A batch whose size is not divisible cannot be sharded over the devices.
  """
  return 1 if partitioner is None else partitioner.batch_divisor


def shard_batch(
  batch: dict[str, np.ndarray], partitioner: Partitioner | None
) -> dict[str, jax.Array]:
  """Moves host arrays to the devices and shards their first axis.

  If the number of rows is not a multiple of `row_multiple`, the array is
  replicated instead. The results are the same, but take longer to compute.

  Args:
    batch: Arrays of shape [batch, ...]. Every process passes the complete
      batch.
    partitioner: Partitioner for the device mesh. If None, a single device is
      used.
  """
  if partitioner is None:
    return {key: jnp.asarray(value) for key, value in batch.items()}
  return {key: _shard_rows(value, partitioner) for key, value in batch.items()}


def replicate(tree, partitioner: Partitioner | None):
  """Replicates arrays on all devices, so that every host can read them.

  The function is called inside jit.

  Args:
    tree: Pytree of arrays to replicate.
    partitioner: Partitioner for the device mesh. If None, the tree is returned
      unchanged.
  """
  if partitioner is None:
    return tree
  return jax.lax.with_sharding_constraint(tree, partitioner.replicated)


def logical_axis_scope(partitioner: Partitioner | None):
  """Returns a context manager that maps logical axes to mesh axes."""
  if partitioner is None:
    return contextlib.nullcontext()
  return partitioner.scope()


def _shard_rows(value: np.ndarray, partitioner: Partitioner) -> jax.Array:
  is_divisible = value.shape[0] % partitioner.batch_divisor == 0
  sharding = (
    partitioner.batch_sharding if is_divisible else partitioner.replicated
  )
  return jax.make_array_from_callback(
    value.shape, sharding, lambda index: value[index]
  )
