"""Accelerators by their vendors' data sheets: the only table of device facts.

Sources, all public: NVIDIA's data sheets of the V100 (2020), A100 (2021), A10G,
L4 and L40S (2023), H100 SXM (2023), H20, GH200 and H200 SXM (2024), DGX B200,
DGX B300 and GB200 NVL72 (2025); its white papers of Ampere, Ada, Hopper and
Blackwell for multiprocessors and caches; XLA's own descriptions of GPUs
(`xla/backends/gpu/target_config/specs`) for clocks and memory; AMD's data sheet
of the MI300X (2023); the system architecture pages of Cloud TPU v4, v5e, v5p,
v6e and TPU7x. Rates are dense bfloat16 with float32 sums (the V100's float16).

Links count one direction, which is half of what NVIDIA states for NVLink and
PCIe. What one device has of its node's network to others is that of the usual
eight-GPU server (DGX-2: 8 x 100 Gbit/s, DGX A100: 8 x 200, DGX H100, H200,
B200: 8 x 400, DGX B300: 8 x 800; a machine with L4, L40S, A10G or RTX: 100 for
all of its eight), and of a TPU host's share of the data center network by its
number of chips. A GB200's node is the rack of 72 that NVLink joins.

JAX sees the two halves of a TPU7x as two devices, so its figures are those of
half a chip. TPUs' clocks follow from their peak and their products a cycle:
128 x 128 in each of four units a core, from v6e on 256 x 256.
"""

import dataclasses
from typing import NamedTuple


class Chip(NamedTuple):
  """What XLA's cost models and code generators ask of a GPU.

  Attributes:
    description: its name, as the driver says it.
    cores: streaming multiprocessors.
    lanes: float32 lanes of each.
    shared: KiB of shared memory of each.
    threads: that each holds at most.
    cache: MiB of the second-level cache.
    clock: GHz.
    memory: bytes, as the driver reports them.
    accelerated: whether its features depend on the exact architecture.
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
  """One device.

  Attributes:
    platform: 'gpu' or 'tpu'.
    name: as `--target_topology` writes it.
    kinds: parts of `jax.Device.device_kind`, in lower case, that tell it.
    flops: dense bfloat16 FLOP/s at its peak.
    memory: bytes.
    bandwidth: bytes/s of that memory.
    inside: bytes/s that it sends to others of its node (or TPU slice).
    outside: bytes/s that it sends to other nodes (or slices).
    per_node: devices of a full node (or slice).
    capability: compute capability of an NVIDIA GPU, else None.
    chip: what XLA asks of a GPU; None where its compiler cannot be asked.
    cores: tensor cores of a TPU that a device has.
    clock: in GHz; 0 where it is not known.
    topology: XLA's name of a TPU's slices, such as 'v5p'.
    dimensions: of a TPU's slices.
    halves: devices of a TPU's chip.
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


def _row(platform, name, kinds, figures, **more) -> Accelerator:
  """A row: TFLOP/s, GB, TB/s of memory, GB/s inside and outside of a node."""
  units = (1e12, 1e9, 1e12, 1e9, 1e9)
  rates = (round(x * u, 3) for x, u in zip(figures, units, strict=True))
  return Accelerator(platform, name, kinds or (name.lower(),), *rates, **more)


def _gpu(name, capability, *figures, kinds=(), chip=None, per_node=8):
  return _row(
    'gpu', name, kinds, figures,
    capability=capability, chip=chip, per_node=per_node,
    clock=chip.clock if chip else 0.0,
  )  # fmt: skip


def _tpu(name, *figures, **more) -> Accelerator:
  return _row('tpu', name, figures=figures, **({'topology': name} | more))


# Earlier entries win where two fit a device kind.
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


def of_kind(device_kind: str) -> Accelerator | None:
  """Returns the accelerator of a device kind, or None if it is unknown."""
  kind = device_kind.lower()
  return next((a for a in TABLE if any(part in kind for part in a.kinds)), None)


def find_accelerator(platform: str, name: str) -> Accelerator | None:
  """Returns the accelerator of a name, in any case; None if there is none.

  A name without its amount of memory is that of the largest: 'A100' is
  'A100-80GB'. A TPU's may be that of its device kind: 'tpu7x'.
  """
  candidates = [a for a in TABLE if a.platform == platform]
  name = name.lower()
  exact = [a for a in candidates if name in (a.name.lower(), *a.kinds)]
  prefix_matches = [
    a for a in candidates if a.name.lower().startswith(f'{name}-')
  ]
  matches = prefix_matches or exact
  return max(matches, key=lambda a: a.memory) if matches else None
