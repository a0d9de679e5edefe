"""Tests of checksums of arrays and the detection of corrupt replicas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from tests.training import corruption
from xlflax.training.devices import array_checksums, partitioning

_DTYPES = ['float32', 'bfloat16', 'float16', 'int32', 'int8', 'uint8', 'bool']


@pytest.fixture(scope='module')
def mesh():
  return partitioning.Partitioner(data=2, fsdp=2, tensor=2).mesh


def _put(mesh, values, *spec):
  return jax.device_put(values, NamedSharding(mesh, PartitionSpec(*spec)))


@pytest.mark.parametrize('dtype', _DTYPES)
def test_each_flipped_bit_changes_the_checksum(dtype):
  """All changed arrays have different checksums."""
  values = (jnp.arange(6).reshape(2, 3) % 2).astype(dtype)
  digest = jax.jit(array_checksums.checksum_array)
  digests = {int(digest(values))}
  bits = 1 if dtype == 'bool' else 8 * values.dtype.itemsize
  for position in np.ndindex(values.shape):
    for bit in range(bits):
      digests.add(int(digest(corruption.flip_bit(values, position, bit))))
  assert len(digests) == 1 + 6 * bits


def test_checksums_depend_on_order_and_bits():
  """Covers positions, signed zeros, NaN payloads and 64-bit values."""
  digest = jax.jit(array_checksums.checksum_array)
  a, b = jnp.float32([1, 2, 2, 3]), jnp.float32([2, 1, 3, 2])
  assert digest(a) != digest(b) != digest(a.reshape(2, 2).T.reshape(-1))
  assert digest(jnp.zeros(3)) != digest(-jnp.zeros(3))
  nans = np.uint32([0x7FC00000, 0x7FC00001]).view(np.float32)
  assert digest(jnp.asarray(nans[:1])) != digest(jnp.asarray(nans[1:]))
  keys = jax.random.split(jax.random.key(0), 2)
  assert digest(keys[0]) == digest(jax.random.key_data(keys[0]))
  assert digest(keys[0]) != digest(keys[1])
  assert digest(jnp.zeros([0, 4])) == 0


def test_checksum_equals_numpy():
  """The expected value is computed with 64-bit integers and a modulus."""
  values = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
  bit_words = values.view(np.uint32).astype(np.uint64).reshape(-1)
  mixed = bit_words ^ (np.arange(35, dtype=np.uint64) * 0x9E3779B1 % 2**32)
  for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
    mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor) % 2**32
  expected = int((mixed ^ (mixed >> np.uint64(16))).sum()) % 2**32
  assert int(array_checksums.checksum_array(jnp.asarray(values))) == expected


def test_each_device_computes_the_checksum_of_its_shard(mesh):
  """The result contains the checksum of each array for each device."""
  values = jnp.arange(8.0).reshape(4, 2)
  tree = {'split': _put(mesh, values, ('data', 'fsdp')), 'whole': _put(mesh, 1)}
  digester = array_checksums.Digester(tree)
  assert digester.names == ('split', 'whole')
  table = np.asarray(digester(tree))
  assert table.shape == (2, 2, 2, 2) and table.dtype == np.uint32
  parts = [
    int(array_checksums.checksum_array(values[i : i + 1])) for i in range(4)
  ]
  assert table[..., 0].reshape(4, 2).tolist() == [[p, p] for p in parts]
  assert len(set(table[..., 1].flat)) == 1
  assert not digester.find_corrupt_replicas(table).any()


def test_corrupt_replicas_are_found(mesh):
  """Covers full replication, two replicas per shard, and no replication."""
  values = jnp.arange(8.0)
  tree = {
    'split': _put(mesh, values, ('data', 'tensor')),
    'whole': _put(mesh, values),
    'unique': _put(mesh, values, ('data', 'fsdp', 'tensor')),
  }
  device = mesh.devices[1, 0, 1]
  tree = {k: corruption.on_device(v, device, bit=3) for k, v in tree.items()}
  digester = array_checksums.Digester(tree)
  marks = digester.find_corrupt_replicas(np.asarray(digester(tree)))
  marked = {n: marks[..., i] for i, n in enumerate(digester.names)}
  assert np.argwhere(marked['whole']).tolist() == [[1, 0, 1]]
  # With two replicas, it is unknown which one is corrupt.
  assert np.argwhere(marked['split']).tolist() == [[1, 0, 1], [1, 1, 1]]
  assert not marked['unique'].any()  # no replica to compare with


def test_single_device_has_no_corrupt_replicas():
  mesh = partitioning.Partitioner(devices=(jax.devices()[0],)).mesh
  tree = [_put(mesh, jnp.arange(3))]
  digester = array_checksums.Digester(tree)
  table = np.asarray(digester(tree))
  assert table.shape == (1, 1, 1, 1)
  assert not digester.find_corrupt_replicas(table).any()
