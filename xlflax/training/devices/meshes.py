"""Mesh shapes, and the arrangement of devices in a mesh."""

import functools
import math
from collections.abc import Sequence

from xlflax.training.devices import machine_topology
from xlflax.utils import errors

AXES = ('data', 'fsdp', 'tensor')
# Maximum default size of the fsdp axis on TPUs.
_MAX_DEFAULT_TPU_FSDP = 8


def mesh_shape(sizes: Sequence[int], num_devices: int) -> tuple[int, ...]:
  """Replaces -1 in mesh sizes so that their product is the number of devices.

  Args:
    sizes: Sizes of the axes data, fsdp and tensor, of which at most one is -1.
    num_devices: Number of devices in the mesh.

  Returns:
    The sizes, which are positive and have the product `num_devices`.

  Raises:
    ConfigError: If the sizes of mesh axes are not positive, or their product is
      not `num_devices`.
  """
  sizes_by_axis = dict(zip(AXES, sizes, strict=True))
  num_unknown = sum(size == -1 for size in sizes)
  if num_unknown > 1 or any(size < 1 and size != -1 for size in sizes):
    raise errors.ConfigError(
      'Each mesh size of the Partitioner must be a positive integer or -1, and '
      'at most one of them can be -1',
      got=sizes_by_axis,
    )
  known_product = math.prod(size for size in sizes if size != -1)
  shape = tuple(
    num_devices // known_product if size == -1 else size for size in sizes
  )
  if math.prod(shape) != num_devices:
    raise errors.ConfigError(
      'The product of the mesh sizes of the Partitioner must be the number of '
      f'devices, which is {num_devices}',
      got=sizes_by_axis,
      fix='Set one size to -1, or start the job with as many devices as the '
      'mesh has.',
    )
  return shape


def default_fsdp_size(
  devices, machine: machine_topology.DeviceTopology | None, tensor: int
) -> int:
  """Returns the fsdp axis's default size: the number of devices in a node.

  The number of devices in a node is divided by the size of the tensor axis. A
  slice of TPUs is one node, but the size is at most eight there, because
  XLA:TPU implements gathers that are divided further as all-reduces of complete
  arrays.

  Args:
    devices: All devices in the job.
    machine: Topology of the target machine if `devices` stand in for its
      devices, or None if `devices` are the target.
    tensor: Size of the tensor axis.
  """
  platform = machine.platform if machine else devices[0].platform
  if platform == 'cpu':
    return 1
  node = machine.per_node if machine else machine_topology.node_size(devices)
  size = max(1, node // max(1, tensor))
  if platform == 'tpu':
    return max(
      divisor
      for divisor in range(1, _MAX_DEFAULT_TPU_FSDP + 1)
      if size % divisor == 0
    )
  return size


def arrange_devices(shape, devices):
  """Arranges devices so that the inner mesh axes have the fastest links.

  If there are several slices (of TPUs, or NVLink domains that the devices
  report), the data axis crosses them if possible, and the devices of a slice
  are arranged along the other axes.

  Args:
    shape: Shape of the mesh.
    devices: Devices to arrange in the mesh.

  Returns:
    The devices, as a list in order or as an array with the shape of the mesh.
  """
  num_slices = len({getattr(device, 'slice_index', None) for device in devices})
  if num_slices == 1 and devices[0].platform != 'tpu':
    return devices
  from jax.experimental import mesh_utils

  if num_slices > 1 and shape[0] % num_slices == 0:
    create = functools.partial(
      mesh_utils.create_hybrid_device_mesh,
      (shape[0] // num_slices, *shape[1:]),
      (num_slices, 1, 1),
    )
  elif devices[0].platform == 'tpu':
    create = functools.partial(mesh_utils.create_device_mesh, shape)
  else:
    return devices
  try:
    return create(devices=devices)
  except NotImplementedError:
    # Some shapes must split physical axes, such as 8 x 8 on a torus of 4 x 4 x
    # 4.
    return create(devices=devices, allow_split_physical_axes=True)
