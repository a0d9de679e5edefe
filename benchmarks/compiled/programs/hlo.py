"""The text of an HLO module as computations of instructions.

Enough of its grammar for counting: shapes, operands, attributes, and how
often a computation runs (trip counts of loops).
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
  """An array's type: 'f32[8,64]'.

  Attributes:
    dtype: 'f32', 'bf16', ...
    shape: sizes.
    on_chip: whether it lies in a TPU's own memory instead of the device's.
    layout: Dimensions from the contiguous one on; () for the last one first.
  """

  dtype: str
  shape: tuple[int, ...]
  on_chip: bool = False
  layout: tuple[int, ...] = dataclasses.field(default=(), compare=False)

  @property
  def size(self) -> int:
    return math.prod(self.shape)

  @property
  def bytes(self) -> float:
    """Types that are not in the table (f8e4m3fn, token) have 8 bits."""
    return self.size * _BITS.get(self.dtype, 8) / 8

  @property
  def row_bytes(self) -> float:
    """Bytes along the contiguous dimension."""
    if not self.shape:
      return 0
    dimension = self.layout[0] if self.layout else -1
    return self.shape[dimension] * self.bytes / max(self.size, 1)

  @property
  def traffic(self) -> float:
    """Bytes of the device's memory that one pass over it moves."""
    return 0 if self.on_chip else self.bytes


@dataclasses.dataclass(frozen=True)
class Instruction:
  """One line of a computation.

  Attributes:
    name: unique within its computation.
    opcode: 'dot', 'all-gather', ...
    arrays: what it makes: one array, or a tuple's, flattened.
    operands: names of instructions in the same computation; a parameter's
      number, a constant's value.
    attributes: the rest of the line.
    is_tuple: whether it makes a tuple.
  """

  name: str
  opcode: str
  arrays: tuple[Array, ...]
  operands: tuple[str, ...]
  attributes: str
  is_tuple: bool

  @property
  def bytes(self) -> float:
    return sum(array.bytes for array in self.arrays)

  @property
  def traffic(self) -> float:
    return sum(array.traffic for array in self.arrays)

  @property
  def op_name(self) -> str:
    """Where it comes from in the traced program."""
    match = re.search(r'op_name="([^"]*)"', self.attributes)
    return match.group(1) if match else ''

  @property
  def index(self) -> int:
    """Which element a get-tuple-element takes."""
    match = re.search(r'index=(\d+)', self.attributes)
    return int(match.group(1)) if match else 0

  def dimensions(self, attribute: str) -> tuple[int, ...]:
    """Numbers in braces: `lhs_contracting_dims={1}`."""
    match = re.search(rf'\b{attribute}=\{{([\d,]*)\}}', self.attributes)
    return (
      tuple(int(n) for n in match.group(1).split(',') if n) if (match) else ()
    )

  @functools.cached_property
  def called(self) -> dict[str, tuple[str, ...]]:
    """Attribute -> computations that it names."""
    found = {}
    for match in _CALLED.finditer(self.attributes):
      rest = self.attributes[match.end() :]
      rest = rest[: rest.index('}')] if rest[0] == '{' else (rest.split(',')[0])
      found[match.group(1)] = tuple(
        n.strip().lstrip('{%') for n in rest.split(',')
      )
    return found


@dataclasses.dataclass(frozen=True)
class Computation:
  """Instructions in their order; `root` is what it returns."""

  name: str
  instructions: dict[str, Instruction]
  root: Instruction

  def operands(self, instruction: Instruction) -> Iterator[Instruction]:
    for name in instruction.operands:
      if name in self.instructions:
        yield self.instructions[name]

  @functools.cached_property
  def users(self) -> dict[str, list[Instruction]]:
    """Instruction -> those that read it."""
    found: dict[str, list[Instruction]] = {n: [] for n in self.instructions}
    for instruction in self.instructions.values():
      for name in set(instruction.operands) & found.keys():
        found[name].append(instruction)
    return found

  @functools.cached_property
  def parameters(self) -> dict[int, Instruction]:
    return {
      int(i.operands[0]): i
      for i in self.instructions.values()
      if i.opcode == 'parameter'
    }


@dataclasses.dataclass(frozen=True)
class Module:
  """Computations by name, and the one that runs."""

  computations: dict[str, Computation]
  entry: Computation

  def called(
    self, instruction: Instruction, *kinds: str
  ) -> Iterator[Computation]:
    """Yields the computations that an instruction calls.

    Args:
      instruction: any.
      *kinds: attributes that name them, 'calls' or 'body'; none for all.
    """
    for kind, names in instruction.called.items():
      for name in names:
        if name in self.computations and (not kinds or kind in kinds):
          yield self.computations[name]


def parse_module(text: str) -> Module:
  """The module that `Compiled.as_text()` or a dump of XLA shows."""
  computations, entry = {}, ''
  name, lines, types = '', dict[str, Instruction](), dict[str, str]()
  root = None
  for line in text.splitlines():
    if line.startswith('}') and name:
      last = root or next(reversed(lines.values()))
      computations[name] = Computation(name, lines, last)
      name = ''
    elif (header := _COMPUTATION.match(line)) and not line.startswith(' '):
      name, lines, types, root = header.group(2), {}, {}, None
      entry = name if header.group(1) else entry
    elif name and (start := _INSTRUCTION.match(line)):
      kind, rest = _split_type(line[start.end() :])
      made = _parse_instruction(start.group(2), kind, rest)
      types[made.name] = kind
      lines |= _parse_elements(made.operands, types) | {made.name: made}
      root = made if start.group(1) else root
  return Module(computations, computations[entry])


def _split_type(text: str) -> tuple[str, str]:
  """`f32[2]{0} add(%a, %b)` as its type and the rest."""
  end = _find_closing_bracket(text, 0) if text[0] == '(' else text.index(' ')
  return text[:end], text[end:].lstrip()


def _parse_instruction(name: str, kind: str, rest: str) -> Instruction:
  """`add(%a, %b), metadata=...`, of the type `kind`, taken apart."""
  opening = rest.index('(')
  close = _find_closing_bracket(rest, opening)
  inside = rest[opening + 1 : close - 1]
  operands = tuple(_NAME.findall(inside)) or (inside,)
  return Instruction(
    name,
    rest[:opening],
    parse_arrays(kind),
    operands,
    rest[close:],
    kind[0] == '(',
  )


def _parse_elements(
  operands: Iterable[str], types: dict[str, str]
) -> dict[str, Instruction]:
  """The instructions that operands `%tuple#1` leave out.

  Newer versions of XLA write elements of tuples so; older ones write a
  get-tuple-element for each. Adds the types of the elements to `types`.
  """
  made = {}
  for operand in operands:
    name, *indices = operand.split('#')
    for index in indices:
      whole, name = name, f'{name}#{index}'
      types[name] = _split_tuple_type(types[whole])[int(index)]
      made[name] = _parse_instruction(
        name, types[name], f'get-tuple-element(%{whole}), index={index}'
      )
  return made


def _split_tuple_type(kind: str) -> list[str]:
  """Types of a tuple's elements: `(f32[2,3]{1,0}, (s32[]))` has two."""
  members, depth = [''], 0
  for character in kind[1:-1]:
    depth += (character in '([{') - (character in ')]}')
    if character == ',' and not depth:
      members.append('')
    else:
      members[-1] += character
  return [re.sub(r'/\*.*?\*/', '', member).strip() for member in members]


def parse_layout(text: str | None) -> str:
  """Returns the dimensions of a layout: of `{1,0:T(8,128)}`, `{1,0`."""
  return (text or '').partition(':')[0]


def parse_arrays(text: str) -> tuple[Array, ...]:
  """Array types in a text: of `(f32[2,3]{1,0}, s32[])` two."""
  return tuple(
    Array(
      m.group(1),
      tuple(int(n.strip('<= ')) for n in m.group(2).split(',') if n.strip()),
      bool(_ON_CHIP.search(m.group(3) or '')),
      tuple(int(n) for n in re.findall(r'\d+', parse_layout(m.group(3)))),
    )
    for m in _ARRAY.finditer(text)
  )


def _find_closing_bracket(text: str, opening: int) -> int:
  """Where the bracket at `opening` is closed, and one more."""
  depth = 0
  for match in re.compile(r'[()]').finditer(text, opening):
    depth += 1 if match.group() == '(' else -1
    if not depth:
      return match.end()
  return len(text)


def skip_instructions(
  computation: Computation, name: str, opcodes: Iterable[str]
) -> Instruction:
  """What an instruction reads, through single operands of some kinds."""
  instruction = computation.instructions[name]
  while instruction.opcode in opcodes:
    instruction = computation.instructions[instruction.operands[0]]
  return instruction
