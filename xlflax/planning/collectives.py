"""Communication volume of a compiled program, determined from its HLO."""

import collections
import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from xlflax.planning import replica_groups
from xlflax.training.devices import accelerators

ALL_GATHER = 'all-gather'
REDUCE_SCATTER = 'reduce-scatter'
ALL_REDUCE = 'all-reduce'
ALL_TO_ALL = 'all-to-all'
PERMUTE = 'collective-permute'
KINDS = (ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, ALL_TO_ALL, PERMUTE)

_COMPUTATION = re.compile(r'^(ENTRY )?%?([\w.\-]+)(?: \(.*)? \{$')
_INSTRUCTION = re.compile(
  r'^\s+(ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$'
)
_ARRAY = re.compile(r'\b([a-z]\w*)\[([\d,]*)\]')
_CALLED = re.compile(
  r'(?:body|calls|to_apply|true_computation|false_computation)=%?([\w.\-]+)'
  r'|branch_computations=\{([^}]*)\}'
)
_CONDITION = re.compile(r'condition=%?([\w.\-]+)')
_TRIP_COUNT = re.compile(r'known_trip_count\D*(\d+)')
_ITEM_SIZES = {'pred': 1, 'bf16': 2}
# Operations that may occur between an all-reduce and the slice of its result
# that a device keeps.
_PASSED = (
  'get-tuple-element', 'bitcast', 'reshape', 'copy', 'transpose', 'convert',
  'add',
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Collective:
  """A collective operation on one array.

  Attributes:
    kind: Type of the collective, an element of KINDS such as 'all-reduce'.
    size: Number of devices in each group. The devices of a group exchange data.
    nodes: Number of nodes over which the devices of a group are distributed.
    dtype: Data type of the array, as in HLO.
    shape: Shape of the array that a device contributes. For an all-gather, it
      is the shape of the array that a device receives.
    bytes: Size in bytes of the array that `shape` describes.
  """

  kind: str
  size: int
  nodes: int
  dtype: str
  shape: tuple[int, ...]
  bytes: float

  @property
  def sent(self) -> float:
    """Number of bytes that each device sends with a ring algorithm."""
    if self.kind == PERMUTE:
      return self.bytes
    sent = self.bytes * (self.size - 1) / self.size
    return 2 * sent if self.kind == ALL_REDUCE else sent

  @property
  def sent_outside(self) -> float:
    """Number of bytes that each device sends to other nodes.

    All devices of a node send the same number of bytes to other nodes.
    """
    if self.nodes == 1:
      return 0
    if self.kind == PERMUTE:
      return self.bytes
    per_node = 1 if self.kind == ALL_TO_ALL else self.size / self.nodes
    sent = self.bytes * (self.nodes - 1) / self.nodes / per_node
    return 2 * sent if self.kind == ALL_REDUCE else sent

  def seconds(self, accelerator: accelerators.Accelerator) -> float:
    """Estimates the collective's duration in seconds at data-sheet link rates.

    Args:
      accelerator: Accelerator that specifies the rates of the links inside and
        between nodes.
    """
    inside = self.sent if self.size > self.nodes else 0
    return max(
      inside / accelerator.inside, self.sent_outside / accelerator.outside
    )


Counts = collections.Counter[Collective]


def find_collectives(text: str, *, devices: int, per_node: int) -> Counts:
  """Counts how often one device executes each collective in a step.

  Args:
    text: HLO text of the partitioned program.
    devices: Number of devices that run the program.
    per_node: Number of devices per node. Device i is in node i // per_node.

  Returns:
    Number of executions of each collective.
  """
  computations = {c.name: c for c in _computations(text)}
  entry = next(c for c in computations.values() if c.is_entry)
  counts: Counts = collections.Counter()
  pending = [(entry, 1)]
  while pending:
    computation, times = pending.pop()
    for instruction in computation.instructions.values():
      for collective in _read(computation, instruction, devices, per_node):
        counts[collective] += times
      repeats = times
      if instruction.opcode == 'while':
        repeats *= _trip_count(instruction, computations)
      elif instruction.opcode.startswith(('all-', 'reduce', 'scatter')):
        continue  # The called computation adds two numbers.
      for name in instruction.called:
        if name in computations:
          pending.append((computations[name], repeats))
  return counts


@dataclasses.dataclass
class _Instruction:
  """An instruction of the HLO text."""

  name: str
  opcode: str
  arrays: tuple[tuple[str, tuple[int, ...]], ...]
  operands: tuple[str, ...]
  attributes: str
  is_root: bool

  @property
  def called(self) -> Iterator[str]:
    """Names of the HLO computations that the instruction calls."""
    for name, names in _CALLED.findall(self.attributes):
      yield from [name] if name else re.findall(r'[\w.\-]+', names)


@dataclasses.dataclass
class _Computation:
  """A computation of the HLO text."""

  name: str
  is_entry: bool
  instructions: dict[str, _Instruction]

  def users(self, name: str) -> list[_Instruction]:
    """Returns the instructions that have an operand with the given name."""
    return [i for i in self.instructions.values() if name in i.operands]


def _computations(text: str) -> Iterator[_Computation]:
  """Yields the computations of an HLO text."""
  computation = None
  for line in text.splitlines():
    if header := _COMPUTATION.match(line):
      computation = _Computation(header[2], bool(header[1]), {})
      yield computation
    elif computation and (match := _INSTRUCTION.match(line)):
      is_root, name, result, opcode, remainder = match.groups()
      operands, attributes = _split_operands(remainder)
      computation.instructions[name] = _Instruction(
        name, opcode, _arrays(result), operands, attributes, bool(is_root)
      )


def _split_operands(rest: str) -> tuple[tuple[str, ...], str]:
  """Splits the text after an opcode into operand names and attributes."""
  depth, end = 1, len(rest)
  for i, character in enumerate(rest):
    depth += (character == '(') - (character == ')')
    if not depth:
      end = i
      break
  operands = re.sub(r'\{[^}]*\}|\[[^\]]*\]', '', rest[:end]).split(',')
  names = tuple(o.split()[-1].lstrip('%') for o in operands if o.strip())
  return names, rest[end + 1 :]


def _arrays(text: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
  """Returns the data types and shapes in an instruction's result type."""
  text = re.sub(r'\{[^}]*\}', '', text)
  return tuple(
    (dtype, tuple(int(n) for n in shape.split(',') if n))
    for dtype, shape in _ARRAY.findall(text)
  )


def _bytes(dtype: str, shape: tuple[int, ...]) -> float:
  """Returns the size of an array in bytes."""
  digits = re.search(r'\d+', dtype)
  size = _ITEM_SIZES.get(dtype, int(digits.group()) / 8 if digits else 4)
  return math.prod(shape) * size


def _trip_count(
  instruction: _Instruction, computations: dict[str, _Computation]
) -> int:
  """Returns the iterations of a loop, or 1 if their number is unknown."""
  if match := _TRIP_COUNT.search(instruction.attributes):
    return int(match[1])
  condition = _CONDITION.search(instruction.attributes)
  if condition is None or condition[1] not in computations:
    return 1
  limits = [
    int(i.operands[0])
    for i in computations[condition[1]].instructions.values()
    if i.opcode == 'constant' and i.operands and i.operands[0].isdigit()
  ]
  return max(limits, default=1)


def _read(
  computation: _Computation, instruction: _Instruction, devices, per_node
) -> Iterator[Collective]:
  """Yields the collectives of an instruction, one for each array."""
  kind = instruction.opcode.removesuffix('-start')
  if kind not in KINDS:
    return
  members = replica_groups.parse_replica_groups(instruction.attributes, devices)
  size = members.shape[1]
  if size == 1:
    return
  nodes = np.sort(members // per_node, axis=1)
  num_nodes = 1 + int(np.max(np.sum(np.diff(nodes, axis=1) > 0, axis=1)))
  for i, operand in enumerate(instruction.operands):
    dtype, shape = computation.instructions[operand].arrays[0]
    amount, reported_kind = _bytes(dtype, shape), kind
    if kind == ALL_GATHER:
      dimension = re.search(r'dimensions=\{(\d+)', instruction.attributes)
      axis = int(dimension[1]) if dimension else 0
      shape = tuple(n * size if j == axis else n for j, n in enumerate(shape))
      amount *= size
    elif kind == ALL_REDUCE and _is_scattered(
      computation, instruction, i, size
    ):
      reported_kind = REDUCE_SCATTER
    yield Collective(reported_kind, size, num_nodes, dtype, shape, amount)


def _is_scattered(
  computation: _Computation, instruction: _Instruction, index: int, size: int
) -> bool:
  """Returns whether each device keeps only its shard of an all-reduce.

  The partitioner represents a reduce-scatter by such an all-reduce.
  """
  is_tuple = len(instruction.operands) > 1
  readers = [
    r
    for r in computation.users(instruction.name)
    if not is_tuple or re.search(rf'index={index}\b', r.attributes)
  ]
  final_readers: list[_Instruction] = []
  while readers:
    reader = readers.pop()
    if reader.opcode in _PASSED and not reader.is_root:
      readers += computation.users(reader.name)
    else:
      final_readers.append(reader)
  return bool(final_readers) and all(
    _is_part(computation, r, size) for r in final_readers
  )


def _is_part(
  computation: _Computation, reader: _Instruction, size: int
) -> bool:
  """Returns whether an instruction slices one shard out of its operand."""
  if reader.opcode != 'dynamic-slice':
    return False
  operand_shape = computation.instructions[reader.operands[0]].arrays[0][1]
  return math.prod(reader.arrays[0][1]) * size <= math.prod(operand_shape)


def summarize_collectives(counts: Counts) -> dict[str, dict[str, float]]:
  """Computes the total number and size of collectives of each kind.

  Args:
    counts: Mapping from each collective to the number of its executions.

  Returns:
    Mapping from kinds to 'count', 'bytes', 'sent' and 'sent_outside'.
  """
  summary: dict[str, Any] = {}
  for collective, count in counts.items():
    row = summary.setdefault(
      collective.kind,
      dict.fromkeys(('count', 'bytes', 'sent', 'sent_outside'), 0.0),
    )
    row['count'] += count
    row['bytes'] += count * collective.bytes
    row['sent'] += count * collective.sent
    row['sent_outside'] += count * collective.sent_outside
  return {kind: summary[kind] for kind in KINDS if kind in summary}
