"""Tests of meshes, sharding rules and rejected settings."""

import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn
from jax.sharding import PartitionSpec

from tests.errors import assert_mentions
from tests.training import tiny
from xlflax.training import param_tree
from xlflax.training.devices import machine_topology, meshes, partitioning
from xlflax.utils import errors


def _shape(*shape):
  return jax.ShapeDtypeStruct(shape, jnp.float32)


@pytest.mark.parametrize(
  ('requested', 'devices', 'shape'),
  [
    ((-1, 1, 1), 8, (8, 1, 1)),
    ((-1, 2, 2), 8, (2, 2, 2)),
    ((2, -1, 1), 8, (2, 4, 1)),
    ((1, 1, -1), 1, (1, 1, 1)),
    ((2, 2, 2), 8, (2, 2, 2)),
  ],
)
def test_mesh_shape_infers_an_axis(requested, devices, shape):
  assert meshes.mesh_shape(requested, devices) == shape


@pytest.mark.parametrize('requested', [(-1, -1, 1), (0, 1, 1), (2, -2, 1)])
def test_invalid_mesh_sizes_are_rejected(requested):
  with pytest.raises(errors.ConfigError) as error:
    meshes.mesh_shape(requested, 8)
  axes = ('data', 'fsdp', 'tensor')
  assert error.value.got == dict(zip(axes, requested, strict=True))
  assert_mentions(error.value, 'Partitioner', -1)


@pytest.mark.parametrize(
  'requested', [(3, 1, 1), (-1, 3, 1), (16, 1, 1), (-1, 16, 1)]
)
def test_mesh_shape_must_match_the_number_of_devices(requested):
  with pytest.raises(errors.ConfigError) as error:
    meshes.mesh_shape(requested, 8)
  axes = ('data', 'fsdp', 'tensor')
  assert error.value.got == dict(zip(axes, requested, strict=True))
  assert_mentions(error.value, 'Partitioner', 8)


def test_mesh_has_auto_axes_over_all_devices():
  mesh = partitioning.Partitioner(fsdp=2, tensor=2).mesh
  assert dict(mesh.shape) == {'data': 2, 'fsdp': 2, 'tensor': 2}
  assert mesh.axis_types == (jax.sharding.AxisType.Auto,) * 3
  assert set(mesh.devices.flat) == set(jax.devices())


def test_rule_with_an_unknown_mesh_axis_is_rejected():
  with pytest.raises(errors.ConfigError) as error:
    partitioning.Partitioner(rules=(('embed', 'fsdp'), ('vocab', 'model')))
  assert "('vocab', 'model')" in str(error.value)
  assert 'data, fsdp, tensor' in str(error.value)


def test_sharding_of_encoder_parameters():
  partitioner = partitioning.Partitioner(fsdp=2, tensor=2)
  boxed = jax.eval_shape(
    lambda: tiny.train_state.init_params(
      tiny.make_model(), tiny.make_mixture(), jax.random.key(0)
    )
  )
  specs = {
    n: s.spec
    for n, s in param_tree.flatten_params(partitioner.shardings(boxed)).items()
  }
  assert specs['model/embeddings/token'] == PartitionSpec('tensor', 'fsdp')
  assert specs['model/layers/mlp/wi/kernel'] == PartitionSpec(
    None, 'fsdp', 'tensor'
  )
  assert specs['model/layers/attention/query/kernel'] == PartitionSpec(
    None, 'fsdp', 'tensor', None
  )
  assert specs['model/layers/mlp_norm/scale'] == PartitionSpec(None, None)


@pytest.mark.parametrize(
  'devices, mesh, columns',
  [
    ('gpu:H200:8/4', {}, ('data', 'fsdp')),
    ('gpu:H200:8/4', dict(data=8), 'fsdp'),
    ('gpu:H200:8', {}, ('data', 'fsdp')),
    ('tpu:v5p:8', dict(data=2, fsdp=4), 'fsdp'),
    ('cpu:8', dict(data=2, fsdp=4), 'fsdp'),
  ],
)
def test_sharding_of_embedding_columns(devices, mesh, columns):
  """Columns are also sharded across GPU nodes with sharded parameters."""
  partitioner = partitioning.Partitioner(
    topology=machine_topology.parse_topology(devices), **mesh
  )
  table = nn.LogicallyPartitioned(_shape(40, 16), ('vocab', 'columns'))
  assert partitioner.shardings(table).spec == PartitionSpec('tensor', columns)


def test_indivisible_dimension_is_not_sharded(warnings_logged):
  partitioner = partitioning.Partitioner(fsdp=2, tensor=4)
  boxed = {
    'head': {'kernel': nn.LogicallyPartitioned(_shape(6, 18), ('embed', 'mlp'))}
  }
  sharding = partitioner.shardings(boxed)['head']['kernel']
  assert sharding.spec == PartitionSpec('fsdp', None)
  [message] = warnings_logged()
  assert 'head/kernel: dimension 1 (mlp) of size 18' in message


def test_earlier_rule_takes_the_mesh_axis():
  boxed = nn.LogicallyPartitioned(_shape(4, 4), ('embed', 'mlp'))

  def spec(*rules):
    return partitioning.Partitioner(fsdp=2, rules=rules).shardings(boxed).spec

  assert spec(('embed', 'fsdp'), ('mlp', 'fsdp')) == PartitionSpec('fsdp', None)
  assert spec(('mlp', 'fsdp'), ('embed', 'fsdp')) == PartitionSpec(None, 'fsdp')


def test_names_without_a_rule_are_replicated():
  boxed = nn.LogicallyPartitioned(_shape(4, 4), ('unheard_of', None))
  sharding = partitioning.Partitioner(fsdp=2).shardings(boxed)
  assert sharding.is_fully_replicated


def test_unboxed_arrays_are_replicated():
  sharding = partitioning.Partitioner(fsdp=2).shardings({'a': _shape(8, 8)})
  assert sharding['a'].is_fully_replicated


def test_activations_keep_fsdp_for_the_batch():
  """'embed' is sharded over fsdp in parameters, but not in activations."""
  partitioner = partitioning.Partitioner(data=2, fsdp=4)

  @jax.jit
  def f(x):
    return nn.with_logical_constraint(x, ('batch', 'length', 'embed'))

  with partitioner.scope():
    out = f(jnp.ones((8, 3, 16)))
  assert out.sharding.is_equivalent_to(
    jax.sharding.NamedSharding(
      partitioner.mesh, PartitionSpec(('data', 'fsdp'))
    ),
    3,
  )


def test_batch_is_sharded_over_data_and_fsdp():
  partitioner = partitioning.Partitioner(data=2, fsdp=2, tensor=2)
  assert partitioner.batch_divisor == 4
  array = jax.device_put(jnp.ones((8, 3)), partitioner.batch_sharding)
  assert {s.data.shape for s in array.addressable_shards} == {(2, 3)}
  partitioner.check_batch_size(8, accumulation=2)


def test_indivisible_batch_size_is_rejected():
  partitioner = partitioning.Partitioner(data=2, fsdp=2, tensor=2)
  with pytest.raises(errors.ConfigError) as error:
    partitioner.check_batch_size(12, accumulation=2, where='dataset mono')
  assert error.value.got == 12
  assert_mentions(error.value, 8, 'data 2 x fsdp 2 x accumulation 2')
  assert error.value.where == 'dataset mono'


def _sizes(text=None, **fields):
  """Returns the axis sizes on a described machine."""
  machine = machine_topology.parse_topology(text) if text else None
  return tuple(
    partitioning.Partitioner(topology=machine, **fields).mesh.shape.values()
  )


@pytest.mark.parametrize(
  ('text', 'fields', 'sizes'),
  [
    ('gpu:H200:8', {}, (1, 8, 1)),
    ('gpu:H200:8/4', {}, (2, 4, 1)),
    ('gpu:H200:1', {}, (1, 1, 1)),
    ('gpu:H200:8/4', {'tensor': 2}, (2, 2, 2)),
    ('tpu:v5p:8', {}, (1, 8, 1)),
    ('tpu:v5p:8', {'tensor': 2}, (1, 4, 2)),
    ('cpu:8', {}, (8, 1, 1)),
    (None, {}, (8, 1, 1)),
    ('gpu:H200:8', {'data': -1}, (8, 1, 1)),
    ('gpu:H200:8', {'fsdp': 2}, (4, 2, 1)),
    ('gpu:H200:8', {'fsdp': -1}, (1, 8, 1)),
    ('gpu:H200:8', {'data': 2, 'fsdp': -1}, (2, 4, 1)),
    ('gpu:H200:8', {'tensor': -1}, (1, 1, 8)),
    ('gpu:H200:8/2', {'data': 8}, (8, 1, 1)),
  ],
)
def test_default_sizes_of_mesh_axes(text, fields, sizes):
  """The defaults are FSDP within a node and data parallelism across nodes."""
  assert _sizes(text, **fields) == sizes


@pytest.mark.parametrize(
  'text, tensor, size',
  [('tpu:v5p:64', 1, 8), ('tpu:v5p:12', 1, 6), ('tpu:v6e:64', 16, 4)],
)
def test_default_fsdp_size_of_tpu_slices(text, tensor, size):
  """The size is at most 8 and divides the number of chips."""
  machine = machine_topology.parse_topology(text)
  assert meshes.default_fsdp_size([], machine, tensor) == size


def test_mesh_rows_are_neighbors_in_a_torus():
  """Each row of an 8 x 8 mesh has 1 x 2 x 4 of the 4 x 4 x 4 chips."""

  class Chip:
    platform, device_kind, process_index = 'tpu', 'TPU v5', 0
    core_on_chip, slice_index = 0, 0

    def __init__(self, i):
      self.id, self.coords = i, (i % 4, i // 4 % 4, i // 16)

  order = meshes.arrange_devices((8, 8, 1), [Chip(i) for i in range(64)])
  assert order.shape == (8, 8, 1)
  for row in order[..., 0]:
    spans = [len({c.coords[k] for c in row}) for k in range(3)]
    assert sorted(spans) == [1, 2, 4]


def test_data_axis_crosses_slices(monkeypatch):
  """Each slice is a row of the mesh."""

  class Device:
    platform, device_kind = 'gpu', 'H200'

    def __init__(self, i):
      self.id, self.process_index, self.slice_index = i, i // 2, i % 2

    def __repr__(self):
      return str(self.id)

  devices = [Device(i) for i in range(8)]
  order = meshes.arrange_devices((2, 4, 1), devices)
  assert [[d.id for d in row.flat] for row in order] == [
    [0, 2, 4, 6],
    [1, 3, 5, 7],
  ]
  assert meshes.arrange_devices((1, 8, 1), devices) == devices


def test_tensor_axis_can_shard_parameters_like_fsdp():
  """A 6 x 64 matrix is sharded over 2 x 4 devices."""
  partitioner = partitioning.Partitioner(
    fsdp=2, tensor=4, tensor_splits='parameters'
  )
  boxed = {'kernel': nn.LogicallyPartitioned(_shape(6, 64), ('embed', 'mlp'))}
  sharding = partitioner.shardings(boxed)['kernel']
  assert sharding.shard_shape((6, 64)) == (3, 16)
  assert partitioner.batch_divisor == 8

  @jax.jit
  def f(x):
    return nn.with_logical_constraint(x, ('batch', 'length', 'mlp'))

  with partitioner.scope():
    out = f(jnp.ones((8, 3, 64)))
  assert out.sharding.shard_shape(out.shape) == (1, 3, 64)
  with pytest.raises(errors.ConfigError) as error:
    partitioner.check_batch_size(12)
  assert 'fsdp 2 x tensor 4 x accumulation 1' in str(error.value)


def test_invalid_tensor_splits_is_rejected():
  with pytest.raises(errors.ConfigError) as error:
    partitioning.Partitioner(tensor_splits='everything')
  assert error.value.where == 'Partitioner.tensor_splits'
  assert "'layers'" in str(error.value.expected)
  assert "'parameters'" in str(error.value.expected)


def test_unsharded_dimensions_are_listed():
  boxed = {
    'head': {'kernel': nn.LogicallyPartitioned(_shape(6, 18), ('embed', 'mlp'))}
  }
  (replicated,) = partitioning.Partitioner(fsdp=2, tensor=4).kept_whole(boxed)
  assert replicated == ('head/kernel', (6, 18), 1, 'mlp', 'tensor', 4)
