"""Where batches of an evaluation lie: split over a mesh, or on one device."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.training.devices.partitioning import Partitioner


def row_multiple(partitioner: Partitioner | None) -> int:
  """How many parts a batch is split into: rows must be a multiple of it."""
  return 1 if partitioner is None else partitioner.batch_divisor


def shard_batch(
  batch: dict[str, np.ndarray], partitioner: Partitioner | None
) -> dict[str, jax.Array]:
  """Host arrays [rows, ...] as device arrays, rows split over the mesh.

  Rows that do not divide evenly are replicated instead, which is slower but
  computes the same. Every process passes the whole batch.
  """
  if partitioner is None:
    return {key: jnp.asarray(value) for key, value in batch.items()}
  return {key: _put(value, partitioner) for key, value in batch.items()}


def replicate(tree, partitioner: Partitioner | None):
  """Inside jit: the same values on every device, for any host to read."""
  if partitioner is None:
    return tree
  return jax.lax.with_sharding_constraint(tree, partitioner.replicated)


def logical_axis_scope(partitioner: Partitioner | None):
  """Context in which the model's logical axes resolve."""
  if partitioner is None:
    return contextlib.nullcontext()
  return partitioner.scope()


def _put(value: np.ndarray, partitioner: Partitioner) -> jax.Array:
  even = value.shape[0] % partitioner.batch_divisor == 0
  sharding = partitioner.batch_sharding if even else partitioner.replicated
  return jax.make_array_from_callback(
    value.shape, sharding, lambda index: value[index]
  )
