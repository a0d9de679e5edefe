"""Bitwise checksums of arrays, computed on each device of a mesh.

Every device hashes its shard of every array with integer arithmetic, whose sums
are exact in any order. Only the digests are communicated: 4 bytes for each
array and device.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xlflax.training import param_tree


class Digester:
  """Checksum function for pytrees of a given structure, shapes and shardings.

  Args:
    tree: Tree of arrays, or of ShapeDtypeStructs with shardings, all on one
      mesh.

  Attributes:
    mesh: Mesh over which the arrays are sharded.
    names: Names of the arrays, in the order of the tree's leaves.
    specs: PartitionSpecs of the arrays, in the order of `names`.
  """

  def __init__(self, tree: Any):
    named = param_tree.flatten_params(tree)
    shardings = [array.sharding for array in named.values()]
    self.mesh: Mesh = shardings[0].mesh
    self.names = tuple(named)
    self.specs = tuple(sharding.spec for sharding in shardings)
    self._digest = jax.jit(
      self._compute_digests,
      out_shardings=NamedSharding(self.mesh, PartitionSpec()),
    )

  def __call__(self, tree: Any) -> jax.Array:
    """Returns the checksums of a tree without waiting for the computation.

    A single changed value always changes the digest of its array. Any other
    change remains undetected with probability 2**-32.

    Returns:
      A replicated uint32 array of shape [*mesh, arrays].
    """
    return self._digest(jax.tree.leaves(tree))

  def _compute_digests(self, arrays: Sequence[jax.Array]) -> jax.Array:
    axes = self.mesh.axis_names

    def digest_shards(shards):
      digests = jnp.stack([checksum_array(shard) for shard in shards])
      return digests.reshape(*(1 for _ in axes), len(shards))

    return jax.shard_map(
      digest_shards,
      mesh=self.mesh,
      in_specs=(list(self.specs),),
      out_specs=PartitionSpec(*axes),
      check_vma=False,  # Replicas may differ, which is what is detected.
    )(list(arrays))

  def find_corrupt_replicas(self, table: np.ndarray) -> np.ndarray:
    """Finds the devices on which a replica differs from the majority.

    Args:
      table: Checksums that were returned by calling this object, of shape
        [*mesh, arrays].

    Returns:
      A boolean array with the same shape as `table`. If no value has a majority
      (for example if one of two devices is wrong), all replicas are marked.
    """
    marks = np.zeros(table.shape, bool)
    for i, spec in enumerate(self.specs):
      marks[..., i] = _find_minority(table[..., i], self._replicated_axes(spec))
    return marks

  def _replicated_axes(self, spec: PartitionSpec) -> tuple[int, ...]:
    """Returns the dimensions of the mesh along which an array is replicated."""
    splitting = {
      axis
      for axes in spec
      if axes is not None
      for axis in ((axes,) if isinstance(axes, str) else axes)
    }
    names = self.mesh.axis_names
    return tuple(i for i, name in enumerate(names) if name not in splitting)


def checksum_array(array: jax.Array) -> jax.Array:
  """Computes a checksum of an array's values and their positions.

  The mixing function is a bijection of 32 bits, so that a single changed value
  always changes the sum.

  Returns:
    A uint32 scalar.
  """
  bit_words = _to_words(array)
  position = jnp.zeros([], jnp.uint32)
  for i in range(bit_words.ndim):
    stride = math.prod(bit_words.shape[i + 1 :]) % 2**32
    index = jax.lax.broadcasted_iota(jnp.uint32, bit_words.shape, i)
    position = position + index * jnp.uint32(stride)
  mixed = bit_words ^ (position * jnp.uint32(0x9E3779B1))
  mixed = (mixed ^ (mixed >> 16)) * jnp.uint32(0x7FEB352D)
  mixed = (mixed ^ (mixed >> 15)) * jnp.uint32(0x846CA68B)
  return jnp.sum(mixed ^ (mixed >> 16), dtype=jnp.uint32)


def _to_words(array: jax.Array) -> jax.Array:
  """Converts the bits of an array to uint32. 8 bytes become two words."""
  if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
    array = jax.random.key_data(array)
  if array.dtype == jnp.bool_:
    return array.astype(jnp.uint32)
  unsigned = {1: jnp.uint8, 2: jnp.uint16}.get(array.dtype.itemsize, jnp.uint32)
  return jax.lax.bitcast_convert_type(array, unsigned).astype(jnp.uint32)


def _find_minority(values: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
  """Marks the values that differ from the majority along some axes."""
  if not axes:
    return np.zeros(values.shape, bool)
  last_axes = tuple(range(-len(axes), 0))
  moved = np.moveaxis(values, axes, last_axes)
  num_replicas = math.prod(moved.shape[i] for i in last_axes)
  groups = moved.reshape(-1, num_replicas)
  num_equal = (groups[:, :, None] == groups[:, None, :]).sum(-1)
  is_majority = 2 * num_equal > num_replicas  # [groups, replicas]
  are_all_equal = np.all(num_equal == num_replicas, axis=1, keepdims=True)
  is_minority = ~is_majority & ~are_all_equal
  return np.moveaxis(is_minority.reshape(moved.shape), last_axes, axes)
