"""Shapes of meshes, and which device stands where in them."""

import functools
import math
from collections.abc import Sequence

from xlflax.training.devices import machine_topology
from xlflax.utils import errors

AXES = ('data', 'fsdp', 'tensor')
_MOST_CHIPS = 8  # along fsdp on TPUs, unless more are asked for


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
      'The mesh sizes are not usable',
      got=described,
      expected='positive numbers, of which at most one is -1 (the rest)',
      where='Partitioner',
    )
  fixed_product = math.prod(n for n in wanted if n != -1)
  filled = tuple(devices // fixed_product if n == -1 else n for n in wanted)
  if math.prod(filled) != devices:
    raise errors.ConfigError(
      'The mesh does not fit the number of devices',
      got=described,
      expected=f'sizes that multiply to {devices}',
      where='Partitioner',
      fix='leave one axis at -1, or start as many devices as the mesh has',
    )
  return filled


def fsdp_of_a_node(
  devices, machine: machine_topology.Machine | None, tensor: int
) -> int:
  """The fsdp axis where nothing is given: what a node holds, beside tensor.

  A slice of TPUs is one node; there it is at most eight chips. XLA:TPU makes
  all-reduces of whole arrays of gathers that are split further.
  """
  platform = machine.platform if machine else devices[0].platform
  if platform == 'cpu':
    return 1
  node = machine.per_node if machine else machine_topology.node_size(devices)
  size = max(1, node // max(1, tensor))
  if platform == 'tpu':
    return max(n for n in range(1, _MOST_CHIPS + 1) if size % n == 0)
  return size


def topology_order(shape, devices):
  """Devices placed so that the inner axes have the fastest links.

  Over several slices (of TPUs, or NVLink domains that devices tell of) the
  data axis crosses them, if it can; a slice's devices are along the others.
  """
  slices = len({getattr(d, 'slice_index', None) for d in devices})
  if slices == 1 and devices[0].platform != 'tpu':
    return devices
  from jax.experimental import mesh_utils

  if slices > 1 and shape[0] % slices == 0:
    create = functools.partial(
      mesh_utils.create_hybrid_device_mesh,
      (shape[0] // slices, *shape[1:]),
      (slices, 1, 1),
    )
  elif devices[0].platform == 'tpu':
    create = functools.partial(mesh_utils.create_device_mesh, shape)
  else:
    return devices
  try:
    return create(devices=devices)
  except NotImplementedError:  # 8 x 8 on a torus of 4 x 4 x 4, for example
    return create(devices=devices, allow_split_physical_axes=True)
