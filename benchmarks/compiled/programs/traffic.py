"""Memory traffic of a compiled program's instructions, in bytes.

A fusion reads its operands and writes its results. If an operand is only
sliced, only the slices are counted. If an array is updated in place, only the
update is counted. Arrays in a TPU's on-chip memory are not counted.
"""

from benchmarks.compiled.programs import hlo

# Opcodes that do not access memory. The computations that they call are counted
# separately.
FREE = frozenset(
  (
    'parameter',
    'constant',
    'tuple',
    'get-tuple-element',
    'bitcast',
    'while',
    'conditional',
    'call',
    'after-all',
    'opt-barrier',
    'partition-id',
    'replica-id',
    'async-start',
    'async-update',
    'async-done',
    'add-dependency',
  )
)
_ALIASES = ('bitcast', 'reshape', 'copy', 'convert', 'transpose')
_SLICES = ('dynamic-slice', 'slice', 'gather')
_UPDATES = ('dynamic-update-slice', 'scatter')


def count_bytes(
  module: hlo.Module, computation: hlo.Computation, kernel: hlo.Instruction
) -> float:
  """Returns the bytes of memory that an instruction reads and writes."""
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
  """Returns the number of bytes that an instruction reads from one operand."""
  fused = next(module.called(kernel, 'calls'), None)
  if kernel.opcode != 'fusion' or fused is None:
    return 0 if kernel.opcode in _SLICES else value.traffic
  index = kernel.operands.index(value.name)
  return _count_read_bytes(module, fused, fused.parameters[index], value)


def _count_unfused_bytes(
  operands: list[hlo.Instruction], kernel: hlo.Instruction
) -> float:
  """Returns the bytes that an instruction other than a fusion transfers."""
  if kernel.opcode in ('copy-start', 'slice-start'):
    result = kernel.arrays[0]
    return result.traffic + (
      0 if operands[0].arrays[0].on_chip else result.bytes
    )
  if kernel.opcode in _SLICES:
    return kernel.traffic + (kernel.bytes if operands[0].traffic else 0)
  if kernel.opcode == 'dynamic-update-slice':
    return operands[1].bytes * bool(kernel.traffic) + operands[1].traffic
  if kernel.opcode == 'scatter':
    updates = operands[-1]
    return 2 * updates.bytes * bool(kernel.traffic) + updates.traffic
  return kernel.traffic + sum(operand.traffic for operand in operands)


def _count_read_bytes(
  module: hlo.Module,
  fused: hlo.Computation,
  parameter: hlo.Instruction,
  operand: hlo.Instruction,
) -> float:
  """Returns the bytes that a fusion reads from one operand."""
  if not operand.traffic:
    return 0
  return min(operand.traffic, _count_needed_bytes(module, fused, parameter))


def _count_needed_bytes(
  module: hlo.Module, fused: hlo.Computation, value: hlo.Instruction
) -> float:
  """Returns the bytes of a fused value that its users read."""
  total = 0.0
  for user in fused.users[value.name]:
    is_first = user.operands[0] == value.name
    if user.opcode in _SLICES and is_first:
      total += user.bytes
    elif user.opcode in _UPDATES and is_first:
      continue
    elif user.opcode in _ALIASES:
      total += (
        value.bytes
        if user is fused.root
        else _count_needed_bytes(module, fused, user)
      )
    elif user.opcode == 'fusion':
      called = next(module.called(user, 'calls'))
      total += _count_needed_bytes(
        module, called, called.parameters[user.operands.index(value.name)]
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
  """Returns the bytes that a fusion writes for one of its results."""
  if not root.traffic:
    return 0
  source = hlo.skip_instructions(fused, root.name, ('bitcast',))
  if source.opcode == 'dynamic-update-slice':
    return fused.instructions[source.operands[1]].bytes
  if source.opcode == 'scatter':
    return 2 * fused.instructions[source.operands[-1]].bytes
  return root.traffic
