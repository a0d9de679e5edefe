"""Activations in memory: values that the backward pass reads.

They are counted in the partitioned program, which has each device's shapes:
values of the forward pass that an operation of the backward pass reads, without
state and constants. XLA may recompute cheap ones, and keeps some others for a
while.
"""

import functools

from xlflax.planning.programs import fusing, hlo

# JAX names the operations of a backward pass so.
_BACKWARD = 'transpose('
_SOURCES = ('parameter', 'constant', 'tuple', 'while')
# Other forms of an array, of which one is enough.
_FORMS = 'reshape bitcast copy transpose broadcast slice dynamic-slice'.split()


def kept(module: hlo.Module) -> float:
  """Returns the bytes that a device keeps for the backward pass.

  Micro-batches run in a loop, so one of them counts. Objectives that one step
  sums are assumed to be alive together.
  """

  @functools.cache
  def of(name: str) -> float:
    computation = module.computations[name]
    inner = [
      of(called)
      for i in computation.instructions.values()
      if i.opcode in ('while', 'conditional', 'call')
      for names in i.called.values()
      for called in names
      if called in module.computations
    ]
    return _own(module, computation) + max(inner, default=0)

  return of(module.entry.name)


def _own(module: hlo.Module, computation: hlo.Computation) -> float:
  backward: set[str] = set()
  for instruction in computation.instructions.values():
    if (
      _BACKWARD in instruction.op_name
      and instruction.opcode not in ('parameter', 'constant')
      or backward.intersection(instruction.operands)
    ):
      backward.add(instruction.name)
  if len(backward) == len(computation.instructions):
    return 0
  values: dict[str, float] = {}
  for name in backward:
    reader = computation.instructions[name]
    if _BACKWARD not in reader.op_name:  # the optimizer
      continue
    for read in computation.operands(reader):
      if read.name in backward:
        continue
      origin = _origin(module, computation, read)
      if origin is not None and origin.name not in backward:
        values[origin.name] = origin.bytes
  return sum(values.values())


def _origin(module, computation, value) -> hlo.Instruction | None:
  """Returns the array that holds a value; None for arguments and constants."""
  while True:
    if value.opcode in _FORMS:
      value = computation.instructions[value.operands[0]]
    elif value.opcode == 'get-tuple-element':
      source = computation.instructions[value.operands[0]]
      if source.opcode == 'parameter':
        return None
      passed = _passed_through(module, computation, source, value.index)
      if passed is None:
        return value
      value = passed
    elif value.opcode in _SOURCES or not fusing.reads(computation, value):
      return None
    else:
      return value


def _passed_through(
  module, computation, source, index: int
) -> hlo.Instruction | None:
  """Returns the start of a loop's element that its body does not change."""
  if source.opcode == 'tuple':
    return computation.instructions[source.operands[index]]
  if source.opcode != 'while':
    return None
  body = module.computations[source.called['body'][0]]
  if body.root.opcode != 'tuple':
    return None
  left = body.instructions[body.root.operands[index]]
  state = computation.instructions[source.operands[0]]
  if (
    left.opcode == 'get-tuple-element'
    and left.index == index
    and state.opcode == 'tuple'
    and body.instructions[left.operands[0]].opcode == 'parameter'
  ):
    return computation.instructions[state.operands[index]]
  return None
