"""Bytes of memory that the instructions of a compiled program move.

A fusion reads its operands and writes its results. Of an operand that it only
slices it reads the slices; what it updates in place costs the update. Arrays
in a TPU's own memory are free.
"""

from benchmarks.compiled.programs import hlo

# Neither read nor write; what they call is counted there.
FREE = frozenset(
  """parameter constant tuple get-tuple-element bitcast while
  conditional call after-all opt-barrier partition-id replica-id
  async-start async-update async-done add-dependency""".split()
)
_ALIASES = ('bitcast', 'reshape', 'copy', 'convert', 'transpose')
_SLICES = ('dynamic-slice', 'slice', 'gather')
_UPDATES = ('dynamic-update-slice', 'scatter')


def count_bytes(
  module: hlo.Module, computation: hlo.Computation, kernel: hlo.Instruction
) -> float:
  """Returns the bytes that an instruction reads and writes."""
  if kernel.opcode in FREE or kernel.opcode.endswith('-done'):
    return 0
  if 'AllocateBuffer' in kernel.attributes:
    return 0
  operands = list(computation.operands(kernel))
  fused = next(module.called(kernel, 'calls'), None)
  if fused is not None and kernel.opcode == 'fusion':
    return _count_written_bytes(fused) + sum(
      _count_read_bytes(module, fused, fused.parameters[i], operand)
      for i, operand in enumerate(operands)
      if i in fused.parameters
    )
  return _count_unfused_bytes(operands, kernel)


def count_operand_bytes(
  module: hlo.Module,
  computation: hlo.Computation,
  kernel: hlo.Instruction,
  value: hlo.Instruction,
) -> float:
  """Returns the bytes of one operand that an instruction reads."""
  fused = next(module.called(kernel, 'calls'), None)
  if kernel.opcode != 'fusion' or fused is None:
    return 0 if kernel.opcode in _SLICES else value.traffic
  index = kernel.operands.index(value.name)
  return _count_read_bytes(module, fused, fused.parameters[index], value)


def _count_unfused_bytes(
  operands: list[hlo.Instruction], kernel: hlo.Instruction
) -> float:
  if kernel.opcode in ('copy-start', 'slice-start'):
    made = kernel.arrays[0]
    return made.traffic + (0 if operands[0].arrays[0].on_chip else made.bytes)
  if kernel.opcode in _SLICES:
    return kernel.traffic + (kernel.bytes if operands[0].traffic else 0)
  if kernel.opcode == 'dynamic-update-slice':
    return operands[1].bytes * bool(kernel.traffic) + operands[1].traffic
  if kernel.opcode == 'scatter':
    updates = operands[-1]
    return 2 * updates.bytes * bool(kernel.traffic) + updates.traffic
  return kernel.traffic + sum(o.traffic for o in operands)


def _count_read_bytes(
  module: hlo.Module,
  fused: hlo.Computation,
  parameter: hlo.Instruction,
  operand: hlo.Instruction,
) -> float:
  if not operand.traffic:
    return 0
  return min(operand.traffic, _count_needed_bytes(module, fused, parameter))


def _count_needed_bytes(
  module: hlo.Module, fused: hlo.Computation, value: hlo.Instruction
) -> float:
  """Returns the bytes of a fused value that its readers look at."""
  total = 0.0
  for user in fused.users[value.name]:
    first = user.operands[0] == value.name
    if user.opcode in _SLICES and first:
      total += user.bytes
    elif user.opcode in _UPDATES and first:
      continue
    elif user.opcode in _ALIASES:
      total += (
        value.bytes
        if user is fused.root
        else _count_needed_bytes(module, fused, user)
      )
    elif user.opcode == 'fusion':
      inner = next(module.called(user, 'calls'))
      total += _count_needed_bytes(
        module, inner, inner.parameters[user.operands.index(value.name)]
      )
    else:
      return value.bytes
  return total


def _count_written_bytes(fused: hlo.Computation) -> float:
  """Returns the bytes that a fusion writes."""
  roots = (
    [fused.instructions[name] for name in fused.root.operands]
    if fused.root.opcode == 'tuple'
    else [fused.root]
  )
  return sum(_count_root_bytes(fused, root) for root in roots)


def _count_root_bytes(fused: hlo.Computation, root: hlo.Instruction) -> float:
  if not root.traffic:
    return 0
  source = hlo.skip_instructions(fused, root.name, ('bitcast',))
  if source.opcode == 'dynamic-update-slice':
    return fused.instructions[source.operands[1]].bytes
  if source.opcode == 'scatter':
    return 2 * fused.instructions[source.operands[-1]].bytes
  return root.traffic
