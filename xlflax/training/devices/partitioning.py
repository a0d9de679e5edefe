"""Meshes, and the rules from logical axes to mesh axes.

A mesh has three axes. `data` replicates parameters and splits the batch;
`fsdp` splits the batch and also the parameters, which are gathered layer by
layer; `tensor` splits heads, feed-forward units and vocabulary inside a
layer. Modules name only logical axes; the rules here map them.

Where neither `data` nor `fsdp` is given, `fsdp` goes over the devices of a
node (of a TPU slice, at most eight chips) and `data` over the rest: weights
are gathered through the fast links, and only gradients, already split, cross
the slow ones. CPU devices share one memory, so there all are along `data`.
On GPUs of several nodes the tables of tokens, which are a third to two thirds of
a model's parameters, are split along `data`, too (`Partitioner.logical_rules`).
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
from xlflax.utils import class_registry, errors, validation

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
  """What the tensor axis splits."""

  LAYERS = 'layers'  # parameters, and the work inside of a layer
  PARAMETERS = 'parameters'  # parameters and the batch: a second axis of FSDP


# -1 stands for what the other axes leave.
_Axis = validation.PositiveInt | Literal[-1]


@class_registry.register('partitioner')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Partitioner:
  """A mesh over all devices and the rules that shard arrays on it.

  Attributes:
    data: devices along the data axis; -1 takes what the others leave. None
      is -1 where fsdp is given, else as the module says.
    fsdp: devices along the fsdp axis; -1 likewise. None is 1 where data is
      given.
    tensor: devices along the tensor axis; -1 likewise.
    tensor_splits: PARAMETERS lets fsdp and tensor together split parameters
      over more devices than divide the model's width: 512 = 256 x 2 for 768.
    rules: (logical axis, mesh axis or axes or None), earlier ones first; of
      two dimensions of an array that want one mesh axis, the one whose rule
      comes first gets it.
    devices: the devices of the mesh; None takes all of the job.
    machine: the described devices that these stand in for, if they do.
  """

  data: _Axis | None = None
  fsdp: _Axis | None = None
  tensor: _Axis = 1
  tensor_splits: TensorSplits = TensorSplits.LAYERS
  rules: Rules = DEFAULT_RULES
  devices: tuple[Any, ...] | None = None
  machine: machine_topology.Machine | None = None

  def __post_init__(self):
    for rule in self.rules:
      if not set(_as_tuple(rule[1])) <= set(AXES):
        raise errors.ConfigError(
          'A sharding rule names a mesh axis that does not exist',
          got=rule,
          expected='axes among ' + ', '.join(AXES),
          where='Partitioner.rules',
        )

  @functools.cached_property
  def mesh(self) -> jax.sharding.Mesh:
    """The mesh [data, fsdp, tensor]; raises ConfigError if it cannot be."""
    devices = list(
      self.devices
      or jax.devices()[: self.machine.count if self.machine else None]
    )
    shape = meshes.mesh_shape(self._wanted(devices), len(devices))
    return jax.sharding.Mesh(
      np.asarray(meshes.topology_order(shape, devices)).reshape(shape),
      AXES,
      axis_types=(jax.sharding.AxisType.Auto,) * len(AXES),
    )

  def _wanted(self, devices) -> tuple[int, int, int]:
    """Sizes along data, fsdp and tensor, with what is not given chosen."""
    if self.data is None and self.fsdp is None and self.tensor != -1:
      return (
        -1,
        meshes.fsdp_of_a_node(devices, self.machine, self.tensor),
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
    """Mesh axes that split the batch."""
    return (
      AXES if self.tensor_splits is TensorSplits.PARAMETERS else (BATCH_AXES)
    )

  @property
  def logical_rules(self) -> Rules:
    """`rules`, with what depends on the devices.

    The batch goes over `batch_axes` where tensor is one. The columns of tables
    of tokens go where 'embed' goes, and on GPUs of several nodes over these,
    too, where they divide the width: a table's gradient is then summed into
    parts, and none of a lookup travels.
    """
    rules = self.rules
    if self.tensor_splits is not TensorSplits.LAYERS:
      rules = (
        ('batch', self.batch_axes),
        *(rule for rule in rules if rule[0] != 'batch'),
      )
    return (*rules, ('columns', self._columns()))

  def _columns(self) -> tuple[str, ...] | None:
    width = dict(reversed(self.rules)).get('embed')
    platform = (
      self.machine.platform
      if self.machine
      else self.mesh.devices.flat[0].platform
    )
    is_whole_width = self.mesh.shape['fsdp'] == 1 or _as_tuple(width) != (
      'fsdp',
    )
    return width if platform != 'gpu' or is_whole_width else BATCH_AXES

  @property
  def batch_divisor(self) -> int:
    """Every global batch size must be a multiple of this."""
    return math.prod(self.mesh.shape[axis] for axis in self.batch_axes)

  @property
  def batch_sharding(self) -> NamedSharding:
    """First dimension over `batch_axes`, the others whole."""
    return NamedSharding(self.mesh, PartitionSpec(self.batch_axes))

  @property
  def replicated(self) -> NamedSharding:
    return NamedSharding(self.mesh, PartitionSpec())

  def shardings(self, boxed) -> Any:
    """A NamedSharding for each array of a tree boxed with logical axes.

    A dimension that its mesh axes do not divide is left whole, with one
    warning that names the parameter.
    """

    def leaf(path, value):
      if not isinstance(value, nn.LogicallyPartitioned):
        return self.replicated
      return self._sharding(_name(path), value.names, value.value.shape)

    return jax.tree_util.tree_map_with_path(
      leaf, boxed, is_leaf=lambda x: isinstance(x, nn.LogicallyPartitioned)
    )

  def _sharding(self, name, names, shape) -> NamedSharding:
    spec = self._spec(names, shape)
    for kept_dimension in self._kept_whole(name, names, shape):
      logging.warning(
        '%s: dimension %d (%s) of %d is not divisible by %d devices of '
        'mesh axis %s, so it is kept whole on each.',
        name,
        kept_dimension.dimension,
        kept_dimension.logical,
        shape[kept_dimension.dimension],
        kept_dimension.parts,
        kept_dimension.axes,
      )
      spec[kept_dimension.dimension] = None
    return NamedSharding(self.mesh, PartitionSpec(*spec))

  def _spec(self, names, shape) -> list[Any]:
    rules = self.logical_rules
    spec = list(nn.logical_to_mesh_axes(names, rules) or ())
    for i, size in enumerate(shape):
      if names[i] == 'columns' and size % _size(self.mesh, spec[i]):
        (spec[i],) = nn.logical_to_mesh_axes(('embed',), rules) or (None,)
    return spec

  def _kept_whole(self, name, names, shape) -> list['KeptWhole']:
    sizes = [
      (i, axes, _size(self.mesh, axes))
      for i, axes in enumerate(self._spec(names, shape))
    ]
    return [
      KeptWhole(name, tuple(shape), i, names[i], str(axes), parts)
      for i, axes, parts in sizes
      if shape[i] % parts
    ]

  def kept_whole(self, boxed) -> list['KeptWhole']:
    """Dimensions of a boxed tree that their mesh axes do not divide."""
    kept_dimensions = []
    for path, value in jax.tree_util.tree_leaves_with_path(
      boxed, is_leaf=lambda x: isinstance(x, nn.LogicallyPartitioned)
    ):
      if isinstance(value, nn.LogicallyPartitioned):
        kept_dimensions += self._kept_whole(
          _name(path), value.names, value.value.shape
        )
    return kept_dimensions

  def check_batch_size(
    self, batch_size: int, *, accumulation: int = 1, where: str = ''
  ) -> None:
    """Raises ConfigError unless the batch divides over mesh and accumulation."""
    needed = self.batch_divisor * accumulation
    if batch_size % needed:
      raise errors.ConfigError(
        'The batch size does not divide over the devices',
        got=batch_size,
        expected=f'a multiple of {needed} ('
        + ' x '.join(
          f'{axis} {self.mesh.shape[axis]}' for axis in self.batch_axes
        )
        + f' x accumulation {accumulation})',
        where=where or None,
        fix='change the batch size, the accumulation or the mesh',
      )

  @contextlib.contextmanager
  def scope(self):
    """Context in which modules' logical constraints resolve on this mesh."""
    with jax.set_mesh(self.mesh), nn.logical_axis_rules(self.logical_rules):
      yield


class KeptWhole(NamedTuple):
  """A dimension that its rule would split, but cannot.

  Attributes:
    name: the parameter.
    shape: of it.
    dimension: which one.
    logical: its logical axis.
    axes: the mesh axis or axes of the rule.
    parts: their devices.
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
  return math.prod(mesh.shape[axis] for axis in _as_tuple(axes))


def _name(path) -> str:
  return '/'.join(str(getattr(k, 'key', getattr(k, 'name', k))) for k in path)
