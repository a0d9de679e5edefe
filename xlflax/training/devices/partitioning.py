"""Meshes, and the rules that map logical axes to mesh axes.

A mesh has three axes. `data` replicates parameters and splits the batch. `fsdp`
splits the batch and the parameters, which are gathered layer by layer. `tensor`
splits heads, feed-forward units and the vocabulary inside a layer. Modules name
only logical axes, which the rules in this module map.

If neither `data` nor `fsdp` is set, `fsdp` extends over the devices of a node
(of a TPU slice, at most eight chips) and `data` over the nodes. Parameters are
then gathered through the fast links, and only gradients, which are already
split, cross the slow links. CPU devices share one memory, so all of them are
along `data`. On GPUs of several nodes, the embedding tables, which are a third
to two thirds of a model's parameters, are also split along `data`
(`Partitioner.logical_rules`).
"""

import contextlib
import dataclasses
import enum
import functools
import logging
import math
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from flax import linen as nn
from jax.sharding import NamedSharding, PartitionSpec

from xlflax.training.devices import machine_topology, meshes
from xlflax.utils import (
  class_registry,
  errors,
  logs,
  name_suggestions,
  validation,
)

AXES = meshes.AXES
BATCH_AXES = ('data', 'fsdp')

Rules = tuple[tuple[str, Any], ...]

DEFAULT_RULES: Rules = (
  ('batch', BATCH_AXES),
  ('length', None),
  ('vocab', 'tensor'),
  ('mlp', 'tensor'),
  ('heads', 'tensor'),
  ('kv', None),
  ('embed', 'fsdp'),
  ('layers', None),
  ('position', None),
  ('language', None),
  ('type', None),
  ('norm', None),
)


class TensorSplits(enum.Enum):
  """Arrays that are sharded along the tensor axis of the mesh."""

  LAYERS = 'layers'  # Parameters and the computation inside a layer.
  PARAMETERS = 'parameters'  # Parameters and the batch: a second FSDP axis.


# -1 is replaced by the number of devices divided by the other sizes.
_Axis = validation.PositiveInt | Literal[-1]


@class_registry.register('partitioner')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Partitioner:
  """Device mesh, with the rules for sharding arrays over it.

  Attributes:
    data: Number of devices along the data axis. If -1, it is the number of all
      devices divided by the sizes of the other axes. If None, it is -1 if
      `fsdp` is set, and otherwise depends on the devices (see the docstring of
      this module).
    fsdp: Number of devices along the fsdp axis. If -1, it is the number of all
      devices divided by the sizes of the other axes. If None, it is 1 if `data`
      is set, and otherwise depends on the devices (see the docstring of this
      module).
    tensor: Number of devices along the tensor axis. If -1, it is the number of
      all devices divided by the sizes of the other axes.
    tensor_splits: Arrays that are split along the tensor axis: LAYERS for
      parameters and the computation inside a layer, or PARAMETERS for
      parameters and the batch. With PARAMETERS, parameters are split over the
      fsdp and tensor axes together. The number of devices along both axes need
      not divide the width of the model. For example, 512 = 256 x 2 devices can
      split a width of 768.
    rules: Pairs (logical axis, mesh axes) that map the logical axes of arrays
      to the mesh. The mesh axes are a single name, a tuple of names, or None
      for an axis that is not split. If two dimensions of an array map to the
      same mesh axis, the earlier rule applies.
    devices: Devices that form the mesh. If None, all devices of the job are
      used.
    topology: Topology of the target machine if `devices` only stand in for its
      devices. If None, `devices` are the target. Defaults to the topology of
      `machine_topology.planning_for`.
  """

  data: _Axis | None = None
  fsdp: _Axis | None = None
  tensor: _Axis = 1
  tensor_splits: TensorSplits = TensorSplits.LAYERS
  rules: Rules = DEFAULT_RULES
  devices: tuple[Any, ...] | None = None
  topology: machine_topology.DeviceTopology | None = dataclasses.field(
    default_factory=machine_topology.current_topology
  )

  def __post_init__(self):
    for rule in self.rules:
      if not set(_as_tuple(rule[1])) <= set(AXES):
        raise errors.ConfigError(
          'A sharding rule contains an axis that the mesh does not have',
          got=rule,
          expected=name_suggestions.format_choices(AXES),
          where=errors.field_location(self, 'rules'),
        )

  @functools.cached_property
  def mesh(self) -> jax.sharding.Mesh:
    """Mesh with the axes data, fsdp and tensor.

    Raises:
      ConfigError: If the sizes of the mesh axes do not match the number of
        devices.
    """
    devices = list(
      self.devices
      or jax.devices()[: self.topology.count if self.topology else None]
    )
    shape = meshes.mesh_shape(self._axis_sizes(devices), len(devices))
    return jax.sharding.Mesh(
      np.asarray(meshes.arrange_devices(shape, devices)).reshape(shape),
      AXES,
      axis_types=(jax.sharding.AxisType.Auto,) * len(AXES),
    )

  def _axis_sizes(self, devices) -> tuple[int, int, int]:
    """Returns the sizes along data, fsdp and tensor, including defaults."""
    if self.data is None and self.fsdp is None and self.tensor != -1:
      return (
        -1,
        meshes.default_fsdp_size(devices, self.topology, self.tensor),
        self.tensor,
      )
    is_data_remainder = -1 not in (self.fsdp, self.tensor)
    return (
      (-1 if is_data_remainder else 1) if self.data is None else self.data,
      1 if self.fsdp is None else self.fsdp,
      self.tensor,
    )

  @property
  def batch_axes(self) -> tuple[str, ...]:
    """Mesh axes along which the batch is split."""
    return (
      AXES if self.tensor_splits is TensorSplits.PARAMETERS else (BATCH_AXES)
    )

  @property
  def logical_rules(self) -> Rules:
    """Complete sharding rules, including those that depend on the devices.

    If the tensor axis splits the batch, the rule for the batch includes it. The
    columns of embedding tables are split like 'embed'. On GPUs of several
    nodes, they are split over the batch axes if these divide the width: The
    gradient of a table is then reduced and scattered, and lookups require no
    communication.
    """
    rules = self.rules
    if self.tensor_splits is not TensorSplits.LAYERS:
      rules = (
        ('batch', self.batch_axes),
        *(rule for rule in rules if rule[0] != 'batch'),
      )
    return (*rules, ('columns', self._columns()))

  def _columns(self) -> tuple[str, ...] | None:
    """Returns the mesh axes for the columns of embedding tables."""
    width = dict(reversed(self.rules)).get('embed')
    platform = (
      self.topology.platform
      if self.topology
      else self.mesh.devices.flat[0].platform
    )
    is_split_by_fsdp = self.mesh.shape['fsdp'] > 1 and _as_tuple(width) == (
      'fsdp',
    )
    return BATCH_AXES if platform == 'gpu' and is_split_by_fsdp else width

  @property
  def batch_divisor(self) -> int:
    """Number that must divide every global batch size."""
    return math.prod(self.mesh.shape[axis] for axis in self.batch_axes)

  @property
  def batch_sharding(self) -> NamedSharding:
    """Sharding that splits the first dimension over `batch_axes`."""
    return NamedSharding(self.mesh, PartitionSpec(self.batch_axes))

  @property
  def replicated(self) -> NamedSharding:
    """Sharding that replicates an array on all devices."""
    return NamedSharding(self.mesh, PartitionSpec())

  def shardings(self, boxed) -> Any:
    """Returns the NamedSharding of each array in a tree with logical axes.

    A dimension that is not divisible by its mesh axes is not split, with a
    warning that contains the name of the parameter.

    Args:
      boxed: Tree of arrays or ShapeDtypeStructs that are boxed with their
        logical axes.
    """

    def leaf(path, value):
      if not isinstance(value, nn.LogicallyPartitioned):
        return self.replicated
      return self._sharding(_path_name(path), value.names, value.value.shape)

    return jax.tree_util.tree_map_with_path(
      leaf, boxed, is_leaf=lambda x: isinstance(x, nn.LogicallyPartitioned)
    )

  def _sharding(self, name, names, shape) -> NamedSharding:
    """Returns the sharding of one array and logs unsplit dimensions."""
    spec = self._partition_spec(names, shape)
    for unsplit in self._find_unsplit(name, names, shape):
      logging.warning(
        '%s: dimension %d (%s) of size %d is not divisible by the %d devices '
        'of mesh axis %s. Replicating it instead.',
        name,
        unsplit.dimension,
        unsplit.logical,
        shape[unsplit.dimension],
        unsplit.parts,
        unsplit.axes,
        extra=logs.ONCE,
      )
      spec[unsplit.dimension] = None
    return NamedSharding(self.mesh, PartitionSpec(*spec))

  def _partition_spec(self, names, shape) -> list[Any]:
    """Returns the mesh axes of each dimension of an array."""
    rules = self.logical_rules
    spec = list(nn.logical_to_mesh_axes(names, rules) or ())
    for i, size in enumerate(shape):
      if names[i] == 'columns' and size % _size(self.mesh, spec[i]):
        (spec[i],) = nn.logical_to_mesh_axes(('embed',), rules) or (None,)
    return spec

  def _find_unsplit(self, name, names, shape) -> list['Unsharded']:
    """Finds the dimensions of an array that cannot be split evenly."""
    unsplit = []
    for i, axes in enumerate(self._partition_spec(names, shape)):
      num_devices = _size(self.mesh, axes)
      if shape[i] % num_devices:
        unsplit.append(
          Unsharded(
            name, tuple(shape), i, names[i], str(axes), parts=num_devices
          )
        )
    return unsplit

  def kept_whole(self, boxed) -> list['Unsharded']:
    """Returns the parameter dimensions that the sharding rules cannot split.

    The number of devices along their mesh axes does not divide their sizes.

    Args:
      boxed: Tree of arrays or ShapeDtypeStructs that are boxed with their
        logical axes.
    """
    kept_dimensions = []
    for path, value in jax.tree_util.tree_leaves_with_path(
      boxed, is_leaf=lambda x: isinstance(x, nn.LogicallyPartitioned)
    ):
      if isinstance(value, nn.LogicallyPartitioned):
        kept_dimensions += self._find_unsplit(
          _path_name(path), value.names, value.value.shape
        )
    return kept_dimensions

  def check_batch_size(
    self, batch_size: int, *, accumulation: int = 1, where: str = ''
  ) -> None:
    """Checks that the batch divides evenly over devices and accumulation steps.

    Args:
      batch_size: Global batch size.
      accumulation: Number of gradient accumulation steps.
      where: Location of the batch size setting, for the error message.

    Raises:
      ConfigError: If the batch size is not a multiple of the number of devices
        along the batch axes times `accumulation`.
    """
    divisor = self.batch_divisor * accumulation
    if batch_size % divisor:
      axes = [f'{axis} {self.mesh.shape[axis]}' for axis in self.batch_axes]
      factors = ' x '.join([*axes, f'accumulation {accumulation}'])
      raise errors.ConfigError(
        f'The batch size must be a multiple of {divisor} ({factors})',
        got=batch_size,
        where=where or None,
        fix='Change the batch size, the number of accumulation steps or the '
        'mesh.',
      )

  @contextlib.contextmanager
  def scope(self):
    """Context in which logical sharding constraints refer to this mesh."""
    with jax.set_mesh(self.mesh), nn.logical_axis_rules(self.logical_rules):
      yield


class Unsharded(NamedTuple):
  """Parameter dimension that is not sharded, although a rule requires sharding.

  The number of devices along its mesh axes does not divide its size.

  Attributes:
    name: Name of the parameter that has the dimension.
    shape: Shape of the parameter.
    dimension: Index of the dimension in the parameter's shape.
    logical: Name of the dimension's logical axis.
    axes: Mesh axis or axes to which the rules map the logical axis.
    parts: Number of devices along the mesh axes in `axes`.
  """

  name: str
  shape: tuple[int, ...]
  dimension: int
  logical: str
  axes: str
  parts: int


def _as_tuple(axes) -> tuple[str, ...]:
  if axes is None:
    return ()
  return (axes,) if isinstance(axes, str) else tuple(axes)


def _size(mesh, axes) -> int:
  """Returns the number of devices along mesh axes."""
  return math.prod(mesh.shape[axis] for axis in _as_tuple(axes))


def _path_name(path) -> str:
  """Joins the keys of a tree path with slashes."""
  return '/'.join(
    str(getattr(key, 'key', getattr(key, 'name', key))) for key in path
  )
