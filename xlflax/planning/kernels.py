"""Work of one device in a step: products, and memory traffic.

XLA fuses element-wise operations into what reads them, up to the operands of
products, collectives and loops, which are written out. So this counts what
each product reads and writes, and for everything else that is written out its
bytes and those of the written values that it is computed from. Data that stay
in caches, and kernels that XLA fuses less well, are not modelled.
"""

import math
from collections.abc import Iterator

from xlflax.planning import collectives, hlo
from xlflax.training import accelerators

PRODUCTS = 'product_flops'
PRODUCT_BYTES = 'product_bytes'
OTHER_BYTES = 'other_bytes'
SECONDS = 'seconds'

_FREE = frozenset(
  (
    'parameter',
    'constant',
    'iota',
    'tuple',
    'get-tuple-element',
    'bitcast',
    'reshape',
    'copy',
    'transpose',
    'slice',
    'dynamic-slice',
    'partition-id',
    'replica-id',
    'while',
    'conditional',
    'call',
    'after-all',
    'optimization-barrier',
  )
)
_ALIASES = frozenset(
  ('bitcast', 'reshape', 'copy', 'transpose', 'optimization-barrier')
)
_NOTHING = frozenset(('constant', 'iota', 'partition-id', 'replica-id'))
# Read no more of their operands than they make; a slice is read in place.
_SLICES = frozenset(('dynamic-slice', 'slice', 'gather'))
# Are written, whoever reads them.
_WRITTEN = frozenset(
  (
    'reduce',
    'scatter',
    'sort',
    'dynamic-update-slice',
    'reduce-window',
    'rng-bit-generator',
    'custom-call',
    'fft',
    'cholesky',
    'triangular-solve',
    *collectives.ALL,
  )
)
# Do not fuse what they read.
_APART = frozenset(
  (
    'dot',
    'convolution',
    'while',
    'tuple',
    'conditional',
    'call',
    'sort',
    'custom-call',
    *collectives.ALL,
  )
)


def measure(accelerator: accelerators.Accelerator | None):
  """Returns flops, bytes and seconds of one instruction, for `loops.Walk`.

  Args:
    accelerator: gives the rates for seconds; None leaves them out. Each
      product takes the longer of arithmetic and memory. Float32 products
      count at half the rate on GPUs (TF32), and at the full one on TPUs.
  """

  def one(
    computation: hlo.Computation, instruction: hlo.Instruction
  ) -> dict[str, float]:
    if instruction.opcode in ('dot', 'convolution'):
      flops = _flops(computation, instruction)
      size = instruction.bytes + sum(
        o.bytes for o in computation.operands(instruction)
      )
      counts = {PRODUCTS: flops, PRODUCT_BYTES: size}
      if accelerator:
        counts[SECONDS] = max(
          flops / _rate(accelerator, computation, instruction),
          size / accelerator.bandwidth,
        )
      return counts
    size = _traffic(computation, instruction)
    if not size:
      return {}
    return {OTHER_BYTES: size} | (
      {SECONDS: size / accelerator.bandwidth} if accelerator else {}
    )

  return one


def _rate(accelerator, computation, dot) -> float:
  narrow = all(
    operand.arrays[0].dtype in ('bf16', 'f16')
    for operand in computation.operands(dot)
  )
  return (
    accelerator.flops
    if (narrow or accelerator.platform == 'tpu')
    else accelerator.flops / 2
  )


def _flops(computation: hlo.Computation, dot: hlo.Instruction) -> float:
  """Returns the FLOPs of a product: 2 for each multiplication and addition."""
  left, right = (
    computation.operands(dot)
    if len(set(dot.operands)) > 1
    else [computation.instructions[dot.operands[0]]] * 2
  )
  if dot.opcode == 'convolution':
    kernel = right.arrays[0]
    return 2 * dot.arrays[0].size * kernel.size / max(kernel.shape[-1], 1)
  return (
    2
    * dot.arrays[0].size
    * math.prod(
      left.arrays[0].shape[i] for i in dot.dimensions('lhs_contracting_dims')
    )
  )


def _traffic(
  computation: hlo.Computation, instruction: hlo.Instruction
) -> float:
  """Returns bytes read and written by an instruction other than a product."""
  if not _is_written(computation, instruction):
    return 0
  if instruction.opcode == 'dynamic-update-slice':
    update = computation.instructions[instruction.operands[1]]
    return update.bytes + _read(computation, [update])
  if instruction.opcode == 'scatter':
    updates = computation.instructions[instruction.operands[-1]]
    return instruction.bytes + 2 * updates.bytes + _read(computation, [updates])
  if instruction.opcode == 'gather':
    return 2 * instruction.bytes
  if instruction.opcode in collectives.ALL:
    return instruction.bytes + sum(
      o.bytes for o in computation.operands(instruction)
    )
  return instruction.bytes + _read(
    computation, computation.operands(instruction)
  )


def _is_written(
  computation: hlo.Computation, instruction: hlo.Instruction
) -> bool:
  """Returns whether an instruction other than a product is written out."""
  if instruction.opcode in _FREE or instruction.opcode == 'dot':
    return False
  if instruction.opcode in _WRITTEN:
    return True
  if instruction.opcode == 'broadcast' and not _read(
    computation, [instruction]
  ):
    return False
  return _escapes(computation, instruction)


def _escapes(computation, instruction) -> bool:
  users = computation.users[instruction.name]
  return instruction is computation.root or any(
    user.opcode in _APART
    or user.opcode in _ALIASES
    and _escapes(computation, user)
    for user in users
  )


def reads(computation: hlo.Computation, value: hlo.Instruction) -> bool:
  """Returns whether a value is computed from any array in memory."""
  return bool(_read(computation, [value]))


def _read(computation: hlo.Computation, values) -> float:
  """Returns the bytes of written arrays that values are computed from."""
  return sum(
    i.bytes for i in {s.name: s for s in _sources(computation, values)}.values()
  )


def _sources(computation, values) -> Iterator[hlo.Instruction]:
  seen, stack = set(), list(values)
  while stack:
    value = stack.pop()
    if value.name in seen or value.opcode in _NOTHING:
      continue
    seen.add(value.name)
    if value.opcode in _ALIASES:
      stack += computation.operands(value)
    elif (
      value.opcode in _FREE
      or value.opcode in _SLICES
      or value.opcode == 'dot'
      or value.opcode in _WRITTEN
    ):
      yield value
    elif value not in values and _escapes(computation, value):
      yield value
    else:
      stack += computation.operands(value)
