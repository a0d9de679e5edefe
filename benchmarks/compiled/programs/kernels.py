"""Kernels: what a device runs one after the other, and what each costs.

`compiled` reads them from the program that the target's own compiler made;
A kernel takes
what it needs more of: arithmetic at the peak, or memory at its bandwidth.
"""

import dataclasses
import enum
import functools
import re
from collections.abc import Callable, Mapping

from benchmarks.compiled.programs import hlo, products, traffic
from xlflax.training.devices import accelerators


class KernelKind(enum.StrEnum):
  """What a kernel mostly does."""

  PRODUCT = 'product'
  ATTENTION = 'attention'
  PALLAS = 'pallas'
  FUSED = 'fused'
  OTHER = 'other'


@dataclasses.dataclass(frozen=True)
class Kernel:
  """One kernel, or one that is guessed.

  Attributes:
    name: of its instruction, unique in the program.
    kind: what it mostly does.
    op_name: where it comes from in the traced program.
    flops: of its products.
    bytes: of memory that it reads and writes.
    rate: of its products, as a multiple of the bfloat16 peak.
    cycles: of the device's clock that its instructions take to be issued;
      0 where they were not counted.
  """

  name: str
  kind: KernelKind
  op_name: str
  flops: float
  bytes: float
  rate: float = 1.0
  cycles: float = 0.0

  def seconds(self, accelerator: accelerators.Accelerator) -> float:
    """Returns the least time that the data sheet allows."""
    return max(
      self.flops / (self.rate * accelerator.flops),
      self.bytes / accelerator.bandwidth,
      self._issue(accelerator),
    )

  def _issue(self, accelerator: accelerators.Accelerator) -> float:
    return self.cycles / (accelerator.clock * 1e9) if self.cycles else 0.0

  def expected(self, accelerator: accelerators.Accelerator) -> float:
    """Returns the time with what good kernels attain, and a launch."""
    launch = LAUNCH if accelerator.platform == 'gpu' else 0.0
    return launch + max(
      self.flops / (self.rate * accelerator.flops) / ATTAINED_FLOPS,
      self.bytes / accelerator.bandwidth / ATTAINED_BANDWIDTH,
      self._issue(accelerator) / ATTAINED_FLOPS,
    )

  @property
  def module(self) -> str:
    """The part of the model that it belongs to: 'layers/mlp/wi'."""
    return module_name(self.op_name)

  @property
  def part(self) -> str:
    """What of every model it is: 'attention', 'MLP', 'norms', 'optimizer'."""
    return part_name(self.module)

  @property
  def phase(self) -> str:
    """'forward', 'backward' or 'update'."""
    if 'transpose(' in self.op_name:
      return 'backward'
    return 'forward' if 'jvp(' in self.op_name else 'update'


# Shares of the peaks that good kernels attain, and seconds of a launch:
# assumptions, for the expected figures only.
ATTAINED_FLOPS = 0.8
ATTAINED_BANDWIDTH = 0.9
LAUNCH = 2e-6

Reader = Callable[[hlo.Module, hlo.Computation, hlo.Instruction], Kernel | None]
# Result types of a Pallas kernel, as (dtype, shape), -> its FLOPs or cycles.
ByResults = Mapping[tuple[tuple[str, tuple[int, ...]], ...], float]

_PALLAS = re.compile(
  r'custom_call_target="(__gpu\$xla\.gpu\.triton|tpu_custom_call|mosaic\w*)"'
)


def make_reader(
  platform: str, pallas: ByResults, cycles: ByResults | None = None
) -> Reader:
  """Returns the reader of a program that the target's compiler made.

  Args:
    platform: 'gpu', 'tpu' or 'cpu'.
    pallas: FLOPs of the Pallas kernels in the traced step.
    cycles: of their instructions, where they were counted.
  """

  def read(
    module: hlo.Module,
    computation: hlo.Computation,
    instruction: hlo.Instruction,
  ) -> Kernel | None:
    size = traffic.count_bytes(module, computation, instruction)
    flops, rate = _count_arithmetic(module, computation, instruction, platform)
    issue = 0.0
    kind = KernelKind.PRODUCT if flops else _classify_kernel(instruction)
    if instruction.opcode == 'custom-call':
      attention = products.count_cudnn_attention_flops(computation, instruction)
      if attention is not None:
        kind, flops = KernelKind.ATTENTION, attention
      elif kind is KernelKind.PALLAS:
        types = tuple((a.dtype, a.shape) for a in instruction.arrays)
        flops = pallas.get(types, 0.0)
        issue = (cycles or {}).get(types, 0.0)
    if not size and not flops:
      return None
    origin = _find_op_name(computation, instruction)
    return Kernel(instruction.name, kind, origin, flops, size, rate, issue)

  return read


def _find_op_name(
  computation: hlo.Computation, instruction: hlo.Instruction
) -> str:
  """Returns its op_name, else that of what it reads or of who reads it."""
  near = (
    instruction,
    *computation.operands(instruction),
    *computation.users[instruction.name],
  )
  return next(
    (i.op_name for i in near if i.op_name and i.opcode != 'parameter'), ''
  )


def _classify_kernel(instruction: hlo.Instruction) -> KernelKind:
  if _PALLAS.search(instruction.attributes):
    return KernelKind.PALLAS
  return (
    KernelKind.FUSED if instruction.opcode == 'fusion' else KernelKind.OTHER
  )


def _count_arithmetic(module, computation, instruction, platform):
  """Returns FLOPs of the products in an instruction, and their rate."""
  if instruction.opcode in products.OPCODES:
    found = [(computation, instruction)]
  elif instruction.opcode == 'fusion':
    found = list(_iterate_fused_matmuls(module, instruction))
  else:
    flops = products.count_cublas_flops(computation, instruction)
    return flops, matmul_rate(
      computation, instruction, platform
    ) if flops else 1.0
  return (
    sum(products.count_matmul_flops(c, i) for c, i in found),
    min((matmul_rate(c, i, platform) for c, i in found), default=1.0),
  )


def _iterate_fused_matmuls(module: hlo.Module, fusion: hlo.Instruction):
  for computation in module.called(fusion, 'calls'):
    for instruction in computation.instructions.values():
      if instruction.opcode in products.OPCODES:
        yield computation, instruction
      elif instruction.opcode == 'fusion':
        yield from _iterate_fused_matmuls(module, instruction)


def matmul_rate(
  computation: hlo.Computation, product: hlo.Instruction, platform: str
) -> float:
  """Returns a product's rate: float32 has half of it on GPUs (TF32)."""
  # What cuBLAS adds to a product comes after its two factors.
  dtypes = {o.arrays[0].dtype for o in [*computation.operands(product)][:2]}
  if any(dtype.startswith('f8') for dtype in dtypes):
    return 2.0
  if (
    platform == 'tpu'
    or dtypes <= {'bf16', 'f16'}
    or re.search(r'(?i)algorithm\W+\w{0,36}bf16', product.attributes)
  ):
    return 1.0
  return 0.5


# Parts of an op_name that are no module: transformations, control flow, and
# the names of einsums, functions and methods.
_NON_MODULE_PARTS = re.compile(
  r'[(.]|->|^(while|body|cond|closed_call|branch_\d+_fun|checkpoint|'
  r'rematted_computation|remat\d*|shard_map|pjit|scan|pallas_call)$'
)


@functools.lru_cache(maxsize=8192)
def module_name(op_name: str) -> str:
  """Returns the module of 'jit(step)/jvp(M)/while/body/layers/mlp/wi/dot'.

  The last part is the operation. What belongs to no module of the model is
  the objective's where it is differentiated, else the update's.
  """
  parts = op_name.split(';')[0].split('/')[:-1]
  kept: list[str] = []
  for part in parts:
    if not _NON_MODULE_PARTS.search(part) and part not in kept[-1:]:
      kept.append(part)
  if kept:
    return _remove_repeats('/'.join(kept))
  if 'jvp(' not in op_name:
    return 'update'
  return 'layers (scan)' if 'while' in parts[-3:] else 'objective'


# Names of modules of any layer, the first that fits -> the part.
_PARTS = {
  r'norm(_\d+)?$': 'norms',
  r'attention': 'attention',
  r'mlp|feed_forward|experts': 'MLP',
  r'embed': 'embeddings',
  r'(^|/)(layers|encoder|decoder)': 'layers: residuals and dropout',
  r'^(head|objective|output|logits)': 'head and loss',
  r'^update$': 'optimizer',
}


def part_name(module: str) -> str:
  """Returns the part of a model that a module of any layer belongs to."""
  return next((p for r, p in _PARTS.items() if re.search(r, module)), 'others')


def _remove_repeats(path: str) -> str:
  """'layers/mlp/layers/mlp/wo', of what is recomputed, is 'layers/mlp/wo'."""
  return re.sub(r'(?<![^/])(.+)/\1(?![^/])', r'\1', path)
