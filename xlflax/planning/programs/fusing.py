"""Guesses the kernels of a program that no target's compiler has seen.

XLA fuses element-wise operations into what reads them, up to the operands of
products, collectives and loops, which are written out. So this counts what
each product reads and writes, and for everything else that is written out its
bytes and those of the written values that it is computed from. Data that stay
in caches, and kernels that XLA fuses less well, are not modelled.
"""

from collections.abc import Iterator

from xlflax.planning.programs import collectives, hlo, kernels, products

_FREE = frozenset(
  """parameter constant iota tuple get-tuple-element bitcast reshape
  copy transpose slice dynamic-slice partition-id replica-id while
  conditional call after-all optimization-barrier""".split()
)
_ALIASES = frozenset(
  ('bitcast', 'reshape', 'copy', 'transpose', 'optimization-barrier')
)
_NOTHING = frozenset(('constant', 'iota', 'partition-id', 'replica-id'))
# Read no more of their operands than they make; a slice is read in place.
_SLICES = frozenset(('dynamic-slice', 'slice', 'gather'))
# Are written, whoever reads them.
_WRITTEN = collectives.ALL.union(
  """reduce scatter sort dynamic-update-slice reduce-window rng-bit-generator
  custom-call fft cholesky triangular-solve""".split()
)
# Do not fuse what they read.
_APART = collectives.ALL.union(
  'dot convolution while tuple conditional call sort custom-call'.split()
)


def reader(platform: str) -> kernels.Reader:
  """Returns the reader of a partitioned program on a platform."""

  def read(
    module: hlo.Module,
    computation: hlo.Computation,
    instruction: hlo.Instruction,
  ) -> kernels.Kernel | None:
    del module
    if instruction.opcode in products.OPCODES:
      return kernels.Kernel(
        f'{computation.name}/{instruction.name}',
        kernels.Kind.PRODUCT,
        instruction.op_name,
        products.flops(computation, instruction),
        instruction.bytes
        + sum(o.bytes for o in computation.operands(instruction)),
        kernels.rate(computation, instruction, platform),
      )
    size = _traffic(computation, instruction)
    if not size:
      return None
    return kernels.Kernel(
      f'{computation.name}/{instruction.name}',
      kernels.Kind.FUSED,
      instruction.op_name,
      0.0,
      size,
    )

  return read


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
