"""Descriptions of GPUs for XLA's compiler.

To compile for a GPU that is not connected, XLA requires a text with the GPU's
properties (`GpuTargetConfigProto`). These properties consist of the values in
`training.devices.accelerators`, the limits in the CUDA C programming guide's
table of compute capabilities, and the versions of CUDA and cuDNN that
`requirements/gpu.lock` pins.
"""

from xlflax.training.devices import accelerators
from xlflax.utils import errors

_TEXT = """gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {shared}
  threads_per_core_limit: {chip.threads}
  core_count: {chip.cores}
  fpus_per_core: {chip.lanes}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth}
  l2_cache_size: {cache}
  clock_rate_ghz: {chip.clock}
  device_memory_size: {chip.memory}
  shared_memory_per_block_optin: {block}
  cuda_compute_capability {{ major: {major} minor: {minor}{features} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 28 }}
runtime_version {{ major: 12 minor: 9 }}
device_description_str: "{chip.description}"
"""


def gpu_target_config(accelerator: accelerators.Accelerator) -> str:
  """Returns a GPU's `GpuTargetConfigProto` in text format.

  Args:
    accelerator: GPU to describe.

  Raises:
    ConfigError: If the table does not contain the GPU's properties.
  """
  chip = accelerator.chip
  if chip is None or accelerator.capability is None:
    raise errors.ConfigError(
      'The compiler requires the properties of the GPU that is specified by '
      '--target_topology, but these properties are unknown',
      got=accelerator.name,
      expected='one of '
      + ', '.join(a.name for a in accelerators.TABLE if a.chip),
      fix='Pass the most similar GPU, add the GPU to '
      'xlflax/training/devices/accelerators.py, or pass '
      '--cost_model=estimate.',
    )
  major, minor = accelerator.capability
  return _TEXT.format(
    chip=chip,
    bandwidth=int(accelerator.bandwidth),
    shared=chip.shared * 2**10,
    cache=int(chip.cache * 2**20),
    block=(chip.shared - 1) * 2**10,  # The driver reserves 1 KiB per block.
    major=major,
    minor=minor,
    features=' feature_extension: ACCELERATED_FEATURES'
    if chip.accelerated
    else '',
  )
