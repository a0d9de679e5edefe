"""Kernels in a compiled program, and their costs.

`make_reader` reads the kernels from the program that the target's compiler
produced. A kernel's time is determined by its scarcest resource: arithmetic at
the peak rate, memory at its bandwidth, or issuing its instructions.
"""

import dataclasses
import enum
import functools
import re
from collections.abc import Callable, Mapping

from benchmarks.compiled.programs import hlo, products, traffic
from xlflax.training.devices import accelerators


class KernelKind(enum.StrEnum):
  """Type of work that takes most of a kernel's time."""

  PRODUCT = 'product'
  ATTENTION = 'attention'
  PALLAS = 'pallas'
  FUSED = 'fused'
  OTHER = 'other'


@dataclasses.dataclass(frozen=True)
class Kernel:
  """A kernel and the work that it performs.

  Attributes:
    name: Name of the kernel's instruction, unique in the program.
    kind: Type of work that takes most of the kernel's time.
    op_name: Name of the JAX operation from which the kernel was compiled.
    flops: Number of FLOPs in the kernel's matmuls.
    bytes: Number of bytes that the kernel reads from and writes to memory.
    rate: Peak FLOP/s of the kernel's matmuls, as a multiple of the bfloat16
      peak.
    cycles: Device cycles required to issue the kernel's instructions, or 0 if
      they were not counted.
  """

  name: str
  kind: KernelKind
  op_name: str
  flops: float
  bytes: float
  rate: float = 1.0
  cycles: float = 0.0

  def seconds(self, accelerator: accelerators.Accelerator) -> float:
    """Returns the kernel's minimum time in seconds, at peak device rates."""
    return max(
      self.flops / (self.rate * accelerator.flops),
      self.bytes / accelerator.bandwidth,
      self._issue(accelerator),
    )

  def _issue(self, accelerator: accelerators.Accelerator) -> float:
    """Returns the seconds required to issue the kernel's instructions."""
    return self.cycles / (accelerator.clock * 1e9) if self.cycles else 0.0

  def expected(self, accelerator: accelerators.Accelerator) -> float:
    """Returns the time in seconds of a well-optimized version of the kernel.

    The time includes the launch of the kernel on a GPU.
    """
    launch = LAUNCH if accelerator.platform == 'gpu' else 0.0
    return launch + max(
      self.flops / (self.rate * accelerator.flops) / ATTAINED_FLOPS,
      self.bytes / accelerator.bandwidth / ATTAINED_BANDWIDTH,
      self._issue(accelerator) / ATTAINED_FLOPS,
    )

  @property
  def module(self) -> str:
    """Model module to which the kernel belongs, such as 'layers/mlp/wi'."""
    return module_name(self.op_name)

  @property
  def part(self) -> str:
    """Model component: 'attention', 'MLP', 'norms', 'optimizer', ..."""
    return part_name(self.module)

  @property
  def phase(self) -> str:
    """Phase of the training step: 'forward', 'backward' or 'update'."""
    if 'transpose(' in self.op_name:
      return 'backward'
    return 'forward' if 'jvp(' in self.op_name else 'update'


# Fractions of the peak rates that good kernels attain, and seconds of a launch.
# These are assumptions that only affect the expected figures.
ATTAINED_FLOPS = 0.8
ATTAINED_BANDWIDTH = 0.9
LAUNCH = 2e-6

Reader = Callable[[hlo.Module, hlo.Computation, hlo.Instruction], Kernel | None]
# Result types of a Pallas kernel (pairs of dtype and shape) -> FLOPs or cycles.
ByResults = Mapping[tuple[tuple[str, tuple[int, ...]], ...], float]

_PALLAS = re.compile(
  r'custom_call_target="(__gpu\$xla\.gpu\.triton|tpu_custom_call|mosaic\w*)"'
)


def make_reader(
  platform: str, pallas: ByResults, cycles: ByResults | None = None
) -> Reader:
  """Returns a function that creates a `Kernel` from an HLO instruction.

  Args:
    platform: Platform of the devices: 'gpu', 'tpu' or 'cpu'.
    pallas: Number of FLOPs of each Pallas kernel. The keys are the types of the
      kernel's results, as (dtype, shape) pairs.
    cycles: Number of clock cycles of each Pallas kernel, with the same keys as
      `pallas`. If None, cycles were not counted.
  """

  def read(
    module: hlo.Module,
    computation: hlo.Computation,
    instruction: hlo.Instruction,
  ) -> Kernel | None:
    num_bytes = traffic.count_bytes(module, computation, instruction)
    flops, rate = _count_arithmetic(module, computation, instruction, platform)
    issue_cycles = 0.0
    kind = KernelKind.PRODUCT if flops else _classify_kernel(instruction)
    if instruction.opcode == 'custom-call':
      attention = products.count_cudnn_attention_flops(computation, instruction)
      if attention is not None:
        kind, flops = KernelKind.ATTENTION, attention
      elif kind is KernelKind.PALLAS:
        types = tuple((a.dtype, a.shape) for a in instruction.arrays)
        flops = pallas.get(types, 0.0)
        issue_cycles = (cycles or {}).get(types, 0.0)
    if not num_bytes and not flops:
      return None
    origin = _find_op_name(computation, instruction)
    return Kernel(
      instruction.name, kind, origin, flops, num_bytes, rate, issue_cycles
    )

  return read


def _find_op_name(
  computation: hlo.Computation, instruction: hlo.Instruction
) -> str:
  """Returns the op_name of an instruction, or of its operands or users."""
  related = (
    instruction,
    *computation.operands(instruction),
    *computation.users[instruction.name],
  )
  return next(
    (
      related_instruction.op_name
      for related_instruction in related
      if related_instruction.op_name
      and related_instruction.opcode != 'parameter'
    ),
    '',
  )


def _classify_kernel(instruction: hlo.Instruction) -> KernelKind:
  """Returns the type of work in a kernel without matmuls."""
  if _PALLAS.search(instruction.attributes):
    return KernelKind.PALLAS
  return (
    KernelKind.FUSED if instruction.opcode == 'fusion' else KernelKind.OTHER
  )


def _count_arithmetic(module, computation, instruction, platform):
  """Returns the FLOPs of the matmuls in an instruction, and their rate."""
  if instruction.opcode in products.OPCODES:
    matmuls = [(computation, instruction)]
  elif instruction.opcode == 'fusion':
    matmuls = list(_iterate_fused_matmuls(module, instruction))
  else:
    flops = products.count_cublas_flops(computation, instruction)
    return flops, matmul_rate(
      computation, instruction, platform
    ) if flops else 1.0
  return (
    sum(
      products.count_matmul_flops(inner_computation, inner_instruction)
      for inner_computation, inner_instruction in matmuls
    ),
    min(
      (
        matmul_rate(inner_computation, inner_instruction, platform)
        for inner_computation, inner_instruction in matmuls
      ),
      default=1.0,
    ),
  )


def _iterate_fused_matmuls(module: hlo.Module, fusion: hlo.Instruction):
  """Yields the matmuls in a fusion and their computations."""
  for computation in module.called(fusion, 'calls'):
    for instruction in computation.instructions.values():
      if instruction.opcode in products.OPCODES:
        yield computation, instruction
      elif instruction.opcode == 'fusion':
        yield from _iterate_fused_matmuls(module, instruction)


def matmul_rate(
  computation: hlo.Computation, matmul: hlo.Instruction, platform: str
) -> float:
  """Returns a matmul's peak rate as a multiple of the bfloat16 peak rate.

  On GPUs, float32 matmuls run at half the rate (TF32).
  """
  # Operands after the first two are addends of cuBLAS.
  dtypes = {o.arrays[0].dtype for o in [*computation.operands(matmul)][:2]}
  if any(dtype.startswith('f8') for dtype in dtypes):
    return 2.0
  if (
    platform == 'tpu'
    or dtypes <= {'bf16', 'f16'}
    or re.search(r'(?i)algorithm\W+\w{0,36}bf16', matmul.attributes)
  ):
    return 1.0
  return 0.5


# Parts of an op_name that are not modules: transformations, control flow, and
# the names of einsums, functions and methods.
_NON_MODULE_PARTS = re.compile(
  r'[(.]|->|^(while|body|cond|closed_call|branch_\d+_fun|checkpoint|'
  r'rematted_computation|remat\d*|shard_map|pjit|scan|pallas_call)$'
)


@functools.lru_cache(maxsize=8192)
def module_name(op_name: str) -> str:
  """Returns the model module that contains an operation, given its op_name.

  For example, 'jit(step)/jvp(M)/while/body/layers/mlp/wi/dot' belongs to
  'layers/mlp/wi', because the last component is the operation. Operations
  outside the model's modules belong to the objective if they are
  differentiated, and to the update otherwise.
  """
  parts = op_name.split(';')[0].split('/')[:-1]
  modules: list[str] = []
  for part in parts:
    if not _NON_MODULE_PARTS.search(part) and part not in modules[-1:]:
      modules.append(part)
  if modules:
    return _remove_repeats('/'.join(modules))
  if 'jvp(' not in op_name:
    return 'update'
  return 'layers (scan)' if 'while' in parts[-3:] else 'objective'


# Pattern of module names -> part of the model. The first match applies.
_PARTS = {
  r'norm(_\d+)?(/layer_norm_gradient)?$': 'norms',
  r'attention': 'attention',
  r'mlp|feed_forward|experts': 'MLP',
  r'embed': 'embeddings',
  r'(^|/)(layers|encoder|decoder)': 'layers: residuals and dropout',
  r'^(head|objective|output|logits)': 'head and loss',
  r'^update$': 'optimizer',
}


def part_name(module: str) -> str:
  """Returns the model component that contains a module, such as 'attention'."""
  return next(
    (part for pattern, part in _PARTS.items() if re.search(pattern, module)),
    'others',
  )


def _remove_repeats(path: str) -> str:
  """Removes the repeated module names that recomputation produces.

  For example, 'layers/mlp/layers/mlp/wo' becomes 'layers/mlp/wo'.
  """
  return re.sub(r'(?<![^/])(.+)/\1(?![^/])', r'\1', path)
