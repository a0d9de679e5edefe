"""Meshes, and the rules from logical axes to mesh axes.

A mesh has three axes. `data` replicates parameters and splits the batch;
`fsdp` splits the batch and also the parameters, which are gathered layer by
layer; `tensor` splits heads, feed-forward units and vocabulary inside a
layer. Modules name only logical axes; the rules here map them.
"""

import contextlib
import dataclasses
import functools
import logging
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax.sharding import NamedSharding, PartitionSpec

from xlflax import errors

AXES = ('data', 'fsdp', 'tensor')
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Partitioner:
  """A mesh over all devices and the rules that shard arrays on it.

  Attributes:
    data: devices along the data axis; -1 takes what the others leave.
    fsdp: devices along the fsdp axis; -1 likewise.
    tensor: devices along the tensor axis; -1 likewise.
    rules: (logical axis, mesh axis or axes or None), earlier ones first; of
      two dimensions of an array that want one mesh axis, the one whose rule
      comes first gets it.
    devices: the devices of the mesh; None takes all of the job.
  """

  data: int = -1
  fsdp: int = 1
  tensor: int = 1
  rules: Rules = DEFAULT_RULES
  devices: tuple[Any, ...] | None = None

  def __post_init__(self):
    for rule in self.rules:
      if not set(_as_tuple(rule[1])) <= set(AXES):
        raise errors.ConfigError(
            'A sharding rule names a mesh axis that does not exist',
            got=rule, expected='axes among ' + ', '.join(AXES),
            where='Partitioner.rules')

  @functools.cached_property
  def mesh(self) -> jax.sharding.Mesh:
    """The mesh [data, fsdp, tensor]; raises ConfigError if it can't be."""
    devices = list(self.devices or jax.devices())
    shape = mesh_shape((self.data, self.fsdp, self.tensor), len(devices))
    return jax.sharding.Mesh(
        np.asarray(_topology_order(shape, devices)).reshape(shape), AXES,
        axis_types=(jax.sharding.AxisType.Auto,) * len(AXES))

  @property
  def batch_divisor(self) -> int:
    """Every global batch size must be a multiple of this."""
    return math.prod(self.mesh.shape[axis] for axis in BATCH_AXES)

  @property
  def batch_sharding(self) -> NamedSharding:
    """First dimension over `data` and `fsdp`, the others whole."""
    return NamedSharding(self.mesh, PartitionSpec(BATCH_AXES))

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
        leaf, boxed, is_leaf=lambda x: isinstance(x, nn.LogicallyPartitioned))

  def _sharding(self, name, names, shape) -> NamedSharding:
    spec = list(nn.logical_to_mesh_axes(names, self.rules) or ())
    for i, axes in enumerate(spec):
      parts = _size(self.mesh, axes)
      if shape[i] % parts:
        logging.warning(
            '%s: dimension %d (%s) of %d is not divisible by %d devices of '
            'mesh axis %s, so it is kept whole on each.',
            name, i, names[i], shape[i], parts, axes)
        spec[i] = None
    return NamedSharding(self.mesh, PartitionSpec(*spec))

  def check_batch_size(self, batch_size: int, *, accumulation: int = 1,
                       where: str = '') -> None:
    """Raises ConfigError unless the batch divides over mesh and accumulation."""
    needed = self.batch_divisor * accumulation
    if batch_size % needed:
      raise errors.ConfigError(
          'The batch size does not divide over the devices', got=batch_size,
          expected=f'a multiple of {needed} (data {self.mesh.shape["data"]} x '
          f'fsdp {self.mesh.shape["fsdp"]} x accumulation {accumulation})',
          where=where or None,
          fix='change the batch size, the accumulation or the mesh')

  @contextlib.contextmanager
  def scope(self):
    """Context in which modules' logical constraints resolve on this mesh."""
    with jax.set_mesh(self.mesh), nn.logical_axis_rules(self.rules):
      yield


def mesh_shape(wanted: Sequence[int], devices: int) -> tuple[int, ...]:
  """Fills in the one -1 so that the product is the number of devices.

  Args:
    wanted: sizes along data, fsdp and tensor; at most one is -1.
    devices: how many devices there are.

  Returns:
    The sizes, all positive, with product `devices`.

  Raises:
    ConfigError: the sizes are not positive or do not multiply to `devices`.
  """
  described = dict(zip(AXES, wanted, strict=True))
  if sum(n == -1 for n in wanted) > 1 or any(n < 1 and n != -1 for n in wanted):
    raise errors.ConfigError(
        'The mesh sizes are not usable', got=described,
        expected='positive numbers, of which at most one is -1 (the rest)',
        where='Partitioner')
  known = math.prod(n for n in wanted if n != -1)
  filled = tuple(devices // known if n == -1 else n for n in wanted)
  if math.prod(filled) != devices:
    raise errors.ConfigError(
        'The mesh does not fit the number of devices', got=described,
        expected=f'sizes that multiply to {devices}', where='Partitioner',
        fix='leave one axis at -1, or start as many devices as the mesh has')
  return filled


def _topology_order(shape, devices):
  """Devices placed so that the inner axes have the fastest links."""
  if devices[0].platform != 'tpu':
    return devices
  from jax.experimental import mesh_utils  # pylint: disable=g-import-not-at-top
  return mesh_utils.create_device_mesh(shape, devices=devices)


def _as_tuple(axes) -> tuple[str, ...]:
  if axes is None:
    return ()
  return (axes,) if isinstance(axes, str) else tuple(axes)


def _size(mesh, axes) -> int:
  return math.prod(mesh.shape[axis] for axis in _as_tuple(axes))


def _name(path) -> str:
  return '/'.join(str(getattr(k, 'key', getattr(k, 'name', k))) for k in path)
