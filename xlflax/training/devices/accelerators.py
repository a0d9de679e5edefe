"""Specifications of accelerators, taken from their vendors' data sheets.

Sources, all public: NVIDIA's data sheets of the V100 (2020), A100 (2021), A10G,
L4 and L40S (2023), H100 SXM (2023), H20, GH200 and H200 SXM (2024), DGX B200,
DGX B300 and GB200 NVL72 (2025); its white papers of Ampere, Ada, Hopper and
Blackwell for multiprocessors and caches; XLA's own descriptions of GPUs
(`xla/backends/gpu/target_config/specs`) for clocks and memory; AMD's data sheet
of the MI300X (2023); the system architecture pages of Cloud TPU v4, v5e, v5p,
v6e and TPU7x. Rates are dense bfloat16 with float32 accumulation (float16 for
the V100).

Link bandwidths count one direction, which is half of what NVIDIA states for
NVLink and PCIe. The bandwidth of a device to other nodes is its part of the
network of the usual eight-GPU server (DGX-2: 8 x 100 Gbit/s, DGX A100: 8 x 200,
DGX H100, H200, B200: 8 x 400, DGX B300: 8 x 800; a machine with L4, L40S, A10G
or RTX: 100 for all of its eight), and for TPUs the network bandwidth of a host
divided by its number of chips. The node of a GB200 is the rack of 72 GPUs that
NVLink connects.

JAX treats the two halves of a TPU7x as two devices, so its values are those of
half a chip. Clock rates of TPUs follow from their peak rate and the number of
multiplications per cycle: 128 x 128 in each of four units per core, and 256 x
256 since v6e.
"""

import dataclasses
from typing import NamedTuple


class Chip(NamedTuple):
  """GPU properties required by XLA's cost models and code generators.

  Attributes:
    description: Name of the GPU, as reported by the driver.
    cores: Number of streaming multiprocessors.
    lanes: Number of float32 lanes per multiprocessor.
    shared: Shared memory per multiprocessor in KiB.
    threads: Maximum number of threads per multiprocessor.
    cache: Size of the L2 cache in MiB.
    clock: Clock rate of the GPU in GHz.
    memory: Memory in bytes, as reported by the driver.
    accelerated: Whether XLA may use architecture-specific features of the GPU,
      such as those of sm_90a.
  """

  description: str
  cores: int
  lanes: int
  shared: int
  threads: int
  cache: float
  clock: float
  memory: int
  accelerated: bool = False


@dataclasses.dataclass(frozen=True)
class Accelerator:
  """Specification of one accelerator device.

  Attributes:
    platform: Type of the accelerator, 'gpu' or 'tpu'.
    name: Name of the accelerator in `--target_topology`.
    kinds: Lowercase substrings of `jax.Device.device_kind` that identify the
      accelerator.
    flops: Peak rate for dense bfloat16 matmuls in FLOP/s.
    memory: Memory of the device in bytes.
    bandwidth: Memory bandwidth in bytes/s.
    inside: Bandwidth in bytes/s to other devices in the same node (or TPU
      slice).
    outside: Bandwidth in bytes/s to devices in other nodes (or slices).
    per_node: Number of devices in a full node (or TPU slice).
    capability: Compute capability of an NVIDIA GPU. None for other devices.
    chip: Properties of a GPU that XLA requires for compilation. If None, XLA
      can compile for this GPU only on a machine that contains one.
    cores: Number of TensorCores per TPU device.
    clock: Clock rate in GHz, or 0 if unknown.
    topology: XLA's name for slices of this TPU type, such as 'v5p'.
    dimensions: Number of dimensions of the grid in which the chips of a TPU
      slice are arranged.
    halves: Number of JAX devices per TPU chip.
  """

  platform: str
  name: str
  kinds: tuple[str, ...]
  flops: float
  memory: float
  bandwidth: float
  inside: float
  outside: float
  per_node: int = 8
  capability: tuple[int, int] | None = None
  chip: Chip | None = None
  cores: int = 1
  clock: float = 0.0
  topology: str = ''
  dimensions: int = 2
  halves: int = 1


def _accelerator(platform, name, kinds, figures, **fields) -> Accelerator:
  """Returns an accelerator with figures in the units of data sheets.

  The figures are TFLOP/s, GB of memory, TB/s of memory bandwidth, and GB/s
  inside and outside a node.
  """
  units = (1e12, 1e9, 1e12, 1e9, 1e9)
  rates = (
    round(figure * unit, 3) for figure, unit in zip(figures, units, strict=True)
  )
  return Accelerator(platform, name, kinds or (name.lower(),), *rates, **fields)


def _gpu(name, capability, *figures, kinds=(), chip=None, per_node=8):
  return _accelerator(
    'gpu', name, kinds, figures,
    capability=capability, chip=chip, per_node=per_node,
    clock=chip.clock if chip else 0.0,
  )  # fmt: skip


def _tpu(name, *figures, kinds, **fields) -> Accelerator:
  fields = {'topology': name} | fields
  return _accelerator('tpu', name, kinds, figures, **fields)


# If a device kind matches several entries, the first one applies.
TABLE: tuple[Accelerator, ...] = (
  _gpu('B300', (10, 3), 2250, 288, 8, 900, 100, chip=Chip(
    'NVIDIA B300', 158, 128, 228, 2048, 129.25, 1.965, 297021865984, True)),
  _gpu('GB200', (10, 0), 2500, 186, 8, 900, 50, per_node=72, chip=Chip(
    'NVIDIA GB200', 152, 128, 228, 2048, 129.25, 2.062, 197897748480, True)),
  _gpu('B200', (10, 0), 2250, 180, 8, 900, 50, chip=Chip(
    'NVIDIA B200', 148, 128, 228, 2048, 126, 1.965, 191514411008, True)),
  _gpu('GH200', (9, 0), 989, 96, 4, 450, 50, per_node=1, chip=Chip(
    'NVIDIA GH200 480GB', 132, 128, 228, 2048, 50, 1.98, 101468602368, True)),
  _gpu('H200', (9, 0), 989, 141, 4.8, 450, 50, chip=Chip(
    'NVIDIA H200 141GB HBM3e',
    132, 128, 228, 2048, 50, 1.98, 151397597184, True)),
  _gpu('H100', (9, 0), 989, 80, 3.35, 450, 50, chip=Chip(
    'NVIDIA H100 80GB HBM3', 132, 128, 228, 2048, 50, 1.98, 84942979072, True)),
  _gpu('H20', (9, 0), 148, 96, 4, 450, 50, chip=Chip(
    'NVIDIA H20', 78, 128, 228, 2048, 60, 1.98, 102625181696, True)),
  _gpu('A100-40GB', (8, 0), 312, 40, 1.555, 300, 25,
    kinds=('a100-sxm4-40gb', 'a100-pcie-40gb'), chip=Chip(
    'NVIDIA A100-SXM4-40GB', 108, 64, 164, 2048, 40, 1.41, 42331013120)),
  _gpu('A100-80GB', (8, 0), 312, 80, 2.039, 300, 25, kinds=('a100',), chip=Chip(
    'NVIDIA A100-SXM4-80GB', 108, 64, 164, 2048, 40, 1.41, 85100068864)),
  _gpu('V100', (7, 0), 125, 32, 0.9, 150, 12.5),
  _gpu('RTX5090', (12, 0), 209.5, 32, 1.792, 64, 1.56, kinds=('rtx 5090',),
    chip=Chip('NVIDIA GeForce RTX 5090',
    170, 128, 100, 1536, 96, 2.407, 34190917632)),
  _gpu('RTX4090', (8, 9), 165.2, 24, 1.008, 32, 1.56, kinds=('rtx 4090',),
    chip=Chip('NVIDIA GeForce RTX 4090',
    128, 128, 100, 1536, 72, 2.52, 25393692672)),
  _gpu('L40S', (8, 9), 362, 48, 0.864, 32, 1.56, chip=Chip(
    'NVIDIA L40S', 142, 128, 100, 1536, 96, 2.52, 47810936832)),
  _gpu('L4', (8, 9), 121, 24, 0.3, 32, 1.56),
  _gpu('A10G', (8, 6), 70, 24, 0.6, 32, 1.56),
  _gpu('MI300X', None, 1307, 192, 5.3, 448, 50),
  _tpu('v4', 275, 32, 1.228, 300, 6.25, kinds=('tpu v4',), per_node=4096,
    cores=2, clock=1.05, dimensions=3),
  _tpu('v5e', 197, 16, 0.819, 200, 3.125, kinds=('tpu v5 lite', 'tpu v5e'),
    per_node=256, clock=1.5),
  _tpu('v5p', 459, 95, 2.765, 600, 6.25, kinds=('tpu v5p', 'tpu v5'),
    per_node=8960, cores=2, clock=1.75, dimensions=3),
  _tpu('v6e', 918, 32, 1.638, 400, 12.5, kinds=('tpu v6 lite', 'tpu v6e'),
    per_node=256, clock=1.75),
  _tpu('v7', 1153.5, 96, 3.69, 300, 6.25, kinds=('tpu7x', 'tpu v7'),
    per_node=18432, clock=2.2, topology='tpu7x', dimensions=3, halves=2),
)  # fmt: skip


def find_by_kind(device_kind: str) -> Accelerator | None:
  """Finds the accelerator for a JAX device kind, or returns None."""
  device_kind = device_kind.lower()
  for accelerator in TABLE:
    if any(kind in device_kind for kind in accelerator.kinds):
      return accelerator
  return None


def find_accelerator(platform: str, name: str) -> Accelerator | None:
  """Finds an accelerator by its name, or returns None.

  Args:
    platform: Type of the accelerator, 'gpu' or 'tpu'.
    name: Name of the accelerator, such as 'H200', in upper or lower case. If
      the name does not specify the amount of memory, the variant with the most
      memory is selected: 'A100' selects 'A100-80GB'. The name of a TPU may be
      its device kind, such as 'tpu7x'.
  """
  candidates = [a for a in TABLE if a.platform == platform]
  name = name.lower()
  exact = [a for a in candidates if name in (a.name.lower(), *a.kinds)]
  prefix_matches = [
    a for a in candidates if a.name.lower().startswith(f'{name}-')
  ]
  matches = prefix_matches or exact
  return max(matches, key=lambda a: a.memory) if matches else None
