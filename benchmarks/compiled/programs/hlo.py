"""Parser for HLO modules in text format.

It supports the parts of the grammar that are required for counting: shapes,
operands, attributes, and called computations.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Iterable, Iterator

_BITS = {'fused': 0, 'pred': 8, 'bf16': 16, 'c64': 64, 'c128': 128}
_BITS |= {f'{kind}{bits}': bits for kind in 'su' for bits in (4, 8, 16, 32, 64)}
_BITS |= {f'f{bits}': bits for bits in (16, 32, 64)}
_ARRAY = re.compile(r'\b([a-z]+\d*)[a-z0-9]*\[([\d,<= ]*)\](\{[^{}]*\})?')
# Memory spaces of TPUs in layouts: vector and scalar memory.
_ON_CHIP = re.compile(r'S\([16]\)')
_NAME = re.compile(r'%([\w.\-]+(?:#\d+)*)')
_COMPUTATION = re.compile(r'^(ENTRY )?%?([\w.\-]+) .*\{\s*$')
_INSTRUCTION = re.compile(r'^\s+(ROOT )?%?([\w.\-]+) = ')
_CALLED = re.compile(
  r'\b(calls|to_apply|body|condition|true_computation|'
  r'false_computation|branch_computations)='
)


@dataclasses.dataclass(frozen=True)
class Array:
  """Type of an array, such as 'f32[8,64]'.

  Attributes:
    dtype: Name of the data type in HLO, such as 'f32' or 'bf16'.
    shape: Size of each dimension.
    on_chip: Whether the array is stored in a TPU's on-chip memory instead of
      device memory.
    layout: Indices of the dimensions, from the most to the least contiguous. If
      empty, the last dimension is contiguous.
  """

  dtype: str
  shape: tuple[int, ...]
  on_chip: bool = False
  layout: tuple[int, ...] = dataclasses.field(default=(), compare=False)

  @property
  def size(self) -> int:
    """Number of elements in the array."""
    return math.prod(self.shape)

  @property
  def bytes(self) -> float:
    """Size in bytes. Unknown types (f8e4m3fn, token) count as 8 bits."""
    return self.size * _BITS.get(self.dtype, 8) / 8

  @property
  def row_bytes(self) -> float:
    """Size in bytes of a row of the array along its contiguous dimension."""
    if not self.shape:
      return 0
    dimension = self.layout[0] if self.layout else -1
    return self.shape[dimension] * self.bytes / max(self.size, 1)

  @property
  def traffic(self) -> float:
    """Bytes of device memory traffic when the array is read once."""
    return 0 if self.on_chip else self.bytes


@dataclasses.dataclass(frozen=True)
class Instruction:
  """An HLO instruction, which is one line of an HLO computation.

  Attributes:
    name: Name of the instruction, unique within its computation.
    opcode: Name of the operation, such as 'dot' or 'all-gather'.
    arrays: Result of the instruction: one array, or the flattened arrays of a
      tuple.
    operands: Names of the operand instructions in the same computation. A
      parameter has its number as the only operand, and a constant has its
      value.
    attributes: Attributes of the instruction, as the unparsed text that follows
      the operands.
    is_tuple: Whether the result is a tuple.
  """

  name: str
  opcode: str
  arrays: tuple[Array, ...]
  operands: tuple[str, ...]
  attributes: str
  is_tuple: bool

  @property
  def bytes(self) -> float:
    """Size of the instruction's result in bytes."""
    return sum(array.bytes for array in self.arrays)

  @property
  def traffic(self) -> float:
    """Bytes loaded from device memory to read the instruction's result once."""
    return sum(array.traffic for array in self.arrays)

  @property
  def op_name(self) -> str:
    """Name of the JAX operation from which the instruction was compiled."""
    match = re.search(r'op_name="([^"]*)"', self.attributes)
    return match.group(1) if match else ''

  @property
  def index(self) -> int:
    """Index of the tuple element that a get-tuple-element instruction reads."""
    match = re.search(r'index=(\d+)', self.attributes)
    return int(match.group(1)) if match else 0

  def dimensions(self, attribute: str) -> tuple[int, ...]:
    """Returns the numbers in an attribute like `lhs_contracting_dims={1}`."""
    match = re.search(rf'\b{attribute}=\{{([\d,]*)\}}', self.attributes)
    return (
      tuple(int(n) for n in match.group(1).split(',') if n) if (match) else ()
    )

  @functools.cached_property
  def called(self) -> dict[str, tuple[str, ...]]:
    """Map from an attribute to the names of the computations that it lists.

    For example, the attribute `body` of a `while` instruction lists the
    computation that is the body of the loop.
    """
    called_computations = {}
    for match in _CALLED.finditer(self.attributes):
      remainder = self.attributes[match.end() :]
      remainder = (
        remainder[: remainder.index('}')]
        if remainder[0] == '{'
        else (remainder.split(',')[0])
      )
      called_computations[match.group(1)] = tuple(
        name.strip().lstrip('{%') for name in remainder.split(',')
      )
    return called_computations


@dataclasses.dataclass(frozen=True)
class Computation:
  """A computation in an HLO module.

  Attributes:
    name: Name of the computation, unique within the module.
    instructions: Map from the name of each instruction to the instruction, in
      program order.
    root: Instruction whose result the computation returns.
  """

  name: str
  instructions: dict[str, Instruction]
  root: Instruction

  def operands(self, instruction: Instruction) -> Iterator[Instruction]:
    """Yields the instructions that compute an instruction's operands."""
    for name in instruction.operands:
      if name in self.instructions:
        yield self.instructions[name]

  @functools.cached_property
  def users(self) -> dict[str, list[Instruction]]:
    """Map from an instruction's name to the instructions that use its output."""
    users: dict[str, list[Instruction]] = {
      name: [] for name in self.instructions
    }
    for instruction in self.instructions.values():
      for name in set(instruction.operands) & users.keys():
        users[name].append(instruction)
    return users

  @functools.cached_property
  def parameters(self) -> dict[int, Instruction]:
    """Map from parameter number to parameter instruction."""
    return {
      int(i.operands[0]): i
      for i in self.instructions.values()
      if i.opcode == 'parameter'
    }


@dataclasses.dataclass(frozen=True)
class Module:
  """An HLO module that was parsed from text.

  Attributes:
    computations: Map from the name of each computation to the computation.
    entry: Computation that is executed first.
  """

  computations: dict[str, Computation]
  entry: Computation

  def called(
    self, instruction: Instruction, *kinds: str
  ) -> Iterator[Computation]:
    """Yields the computations that an instruction calls.

    Args:
      instruction: Calling instruction, which may have any opcode.
      *kinds: Attributes to follow, such as 'calls' or 'body'. By default, all
        attributes are followed.
    """
    for kind, names in instruction.called.items():
      for name in names:
        if name in self.computations and (not kinds or kind in kinds):
          yield self.computations[name]


def parse_module(text: str) -> Module:
  """Parses HLO text, from `Compiled.as_text()` or an XLA dump."""
  computations, entry = {}, ''
  name, lines, types = '', dict[str, Instruction](), dict[str, str]()
  root = None
  for line in text.splitlines():
    if line.startswith('}') and name:
      root_instruction = root or next(reversed(lines.values()))
      computations[name] = Computation(name, lines, root_instruction)
      name = ''
    elif (header_match := _COMPUTATION.match(line)) and not line.startswith(
      ' '
    ):
      name, lines, types, root = header_match.group(2), {}, {}, None
      entry = name if header_match.group(1) else entry
    elif name and (instruction_match := _INSTRUCTION.match(line)):
      type_text, remainder = _split_type(line[instruction_match.end() :])
      instruction = _parse_instruction(
        instruction_match.group(2), type_text, remainder
      )
      types[instruction.name] = type_text
      lines |= _parse_elements(instruction.operands, types) | {
        instruction.name: instruction
      }
      root = instruction if instruction_match.group(1) else root
  return Module(computations, computations[entry])


def _split_type(text: str) -> tuple[str, str]:
  """Splits `f32[2]{0} add(%a, %b)` into the type and the remainder."""
  end = _find_closing_bracket(text, 0) if text[0] == '(' else text.index(' ')
  return text[:end], text[end:].lstrip()


def _parse_instruction(
  name: str, type_text: str, remainder: str
) -> Instruction:
  """Parses `add(%a, %b), metadata=...` into an instruction."""
  opening = remainder.index('(')
  close = _find_closing_bracket(remainder, opening)
  inside = remainder[opening + 1 : close - 1]
  operands = tuple(_NAME.findall(inside)) or (inside,)
  return Instruction(
    name,
    remainder[:opening],
    parse_arrays(type_text),
    operands,
    remainder[close:],
    type_text[0] == '(',
  )


def _parse_elements(
  operands: Iterable[str], types: dict[str, str]
) -> dict[str, Instruction]:
  """Returns the implicit instructions for operands such as `%tuple#1`.

  Newer versions of XLA write tuple elements in this way. Older versions write a
  get-tuple-element instruction for each of them. The elements' types are added
  to `types`.
  """
  elements = {}
  for operand in operands:
    name, *indices = operand.split('#')
    for index in indices:
      parent, name = name, f'{name}#{index}'
      types[name] = _split_tuple_type(types[parent])[int(index)]
      elements[name] = _parse_instruction(
        name, types[name], f'get-tuple-element(%{parent}), index={index}'
      )
  return elements


def _split_tuple_type(type_text: str) -> list[str]:
  """Returns the types of a tuple's elements.

  For example, `(f32[2,3]{1,0}, (s32[]))` has two elements.
  """
  members, depth = [''], 0
  for character in type_text[1:-1]:
    depth += (character in '([{') - (character in ')]}')
    if character == ',' and not depth:
      members.append('')
    else:
      members[-1] += character
  return [re.sub(r'/\*.*?\*/', '', member).strip() for member in members]


def parse_layout(text: str | None) -> str:
  """Returns the text of an HLO layout before the first ':'.

  For example, the result for `{1,0:T(8,128)}` is `{1,0`.
  """
  return (text or '').partition(':')[0]


def parse_arrays(text: str) -> tuple[Array, ...]:
  """Returns the array types in an HLO type like `(f32[2,3]{1,0}, s32[])`."""
  return tuple(
    Array(
      match.group(1),
      tuple(
        int(number.strip('<= '))
        for number in match.group(2).split(',')
        if number.strip()
      ),
      bool(_ON_CHIP.search(match.group(3) or '')),
      tuple(
        int(number)
        for number in re.findall(r'\d+', parse_layout(match.group(3)))
      ),
    )
    for match in _ARRAY.finditer(text)
  )


def _find_closing_bracket(text: str, opening: int) -> int:
  """Returns the index after the bracket that matches the one at `opening`."""
  depth = 0
  for match in re.compile(r'[()]').finditer(text, opening):
    depth += 1 if match.group() == '(' else -1
    if not depth:
      return match.end()
  return len(text)


def skip_instructions(
  computation: Computation, name: str, opcodes: Iterable[str]
) -> Instruction:
  """Skips instructions with given opcodes by following their first operands.

  Args:
    computation: Computation that contains the instruction.
    name: Name of the instruction at which the search starts.
    opcodes: Opcodes to skip. An instruction with such an opcode is replaced by
      its first operand.

  Returns:
    The first instruction whose opcode is not in `opcodes`.
  """
  instruction = computation.instructions[name]
  while instruction.opcode in opcodes:
    instruction = computation.instructions[instruction.operands[0]]
  return instruction
