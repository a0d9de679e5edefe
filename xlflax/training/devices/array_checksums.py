"""Digests of arrays' bits, as each device of a mesh holds them.

Every device hashes its own part of every array with integer arithmetic, whose
sums are exact in any order. Only the digests travel: 4 bytes for each array
and device.
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
  """Digests trees of one structure, shapes and shardings.

  Args:
    tree: arrays, or ShapeDtypeStructs with shardings; all on one mesh.

  Attributes:
    mesh: where the arrays are.
    names: of the arrays, in the tree's order.
    specs: PartitionSpecs of the arrays, in the same order.
  """

  def __init__(self, tree: Any):
    named = param_tree.flatten_params(tree)
    shardings = [array.sharding for array in named.values()]
    self.mesh: Mesh = shardings[0].mesh
    self.names = tuple(named)
    self.specs = tuple(sharding.spec for sharding in shardings)
    self._digest = jax.jit(
      self._table, out_shardings=NamedSharding(self.mesh, PartitionSpec())
    )

  def __call__(self, tree: Any) -> jax.Array:
    """Returns uint32 `[*mesh, arrays]`, replicated; does not wait for it.

    One changed value changes the digest of its array always; any other change
    passes unnoticed in one of 2**32 cases.
    """
    return self._digest(jax.tree.leaves(tree))

  def _table(self, arrays: Sequence[jax.Array]) -> jax.Array:
    axes = self.mesh.axis_names

    def of_device(parts):
      digests = jnp.stack([checksum_array(part) for part in parts])
      return digests.reshape(*(1 for _ in axes), len(parts))

    return jax.shard_map(
      of_device,
      mesh=self.mesh,
      in_specs=(list(self.specs),),
      out_specs=PartitionSpec(*axes),
      check_vma=False,  # what should be replicated may not be
    )(list(arrays))

  def odd_replicas(self, table: np.ndarray) -> np.ndarray:
    """Returns which devices hold other bits than most that share their part.

    Args:
      table: what a call returned.

    Returns:
      bool, as the table. Where no value has a majority (one of two devices is
      wrong), all that share the part are marked.
    """
    marks = np.zeros(table.shape, bool)
    for i, spec in enumerate(self.specs):
      marks[..., i] = _odd(table[..., i], self._copied_along(spec))
    return marks

  def _copied_along(self, spec: PartitionSpec) -> tuple[int, ...]:
    """Dimensions of the mesh along which an array is not split."""
    splitting = {
      axis
      for axes in spec
      if axes is not None
      for axis in ((axes,) if isinstance(axes, str) else axes)
    }
    names = self.mesh.axis_names
    return tuple(i for i, name in enumerate(names) if name not in splitting)


def checksum_array(array: jax.Array) -> jax.Array:
  """Returns the sum of the values' bits, each mixed with its place; uint32 [].

  The mixing is a bijection of 32 bits, so that one value that changes always
  changes the sum.
  """
  bit_words = _words(array)
  position = jnp.zeros([], jnp.uint32)
  for i in range(bit_words.ndim):
    stride = math.prod(bit_words.shape[i + 1 :]) % 2**32
    along = jax.lax.broadcasted_iota(jnp.uint32, bit_words.shape, i)
    position = position + along * jnp.uint32(stride)
  mixed = bit_words ^ (position * jnp.uint32(0x9E3779B1))
  mixed = (mixed ^ (mixed >> 16)) * jnp.uint32(0x7FEB352D)
  mixed = (mixed ^ (mixed >> 15)) * jnp.uint32(0x846CA68B)
  return jnp.sum(mixed ^ (mixed >> 16), dtype=jnp.uint32)


def _words(array: jax.Array) -> jax.Array:
  """The bits of an array, as uint32; 8 bytes become two words."""
  if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
    array = jax.random.key_data(array)
  if array.dtype == jnp.bool_:
    return array.astype(jnp.uint32)
  unsigned = {1: jnp.uint8, 2: jnp.uint16}.get(array.dtype.itemsize, jnp.uint32)
  return jax.lax.bitcast_convert_type(array, unsigned).astype(jnp.uint32)


def _odd(values: np.ndarray, copied_along: tuple[int, ...]) -> np.ndarray:
  """Marks what differs from the majority along some dimensions."""
  if not copied_along:
    return np.zeros(values.shape, bool)
  last = tuple(range(-len(copied_along), 0))
  moved = np.moveaxis(values, copied_along, last)
  groups = moved.reshape(-1, math.prod(moved.shape[i] for i in last))
  equal = (groups[:, :, None] == groups[:, None, :]).sum(-1)
  is_majority = 2 * equal > groups.shape[1]  # [groups, copies]
  odd = ~is_majority & ~np.all(equal == groups.shape[1], axis=1, keepdims=True)
  return np.moveaxis(odd.reshape(moved.shape), last, copied_along)
