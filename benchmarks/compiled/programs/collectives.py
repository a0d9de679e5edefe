"""Collectives of a partitioned program: how many, how large, how far."""

import collections
import dataclasses
import re
from typing import NamedTuple

import numpy as np

from benchmarks.compiled.programs import hlo
from xlflax.planning import replica_groups
from xlflax.training.devices import accelerators

ALL_GATHER = 'all-gather'
REDUCE_SCATTER = 'reduce-scatter'
ALL_REDUCE = 'all-reduce'
ALL_TO_ALL = 'all-to-all'
PERMUTE = 'collective-permute'
KINDS = (ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, ALL_TO_ALL, PERMUTE)
ALL = frozenset(KINDS) | {f'{kind}-start' for kind in KINDS}
# XLA:TPU has exchanges between slices done by its hosts.
BETWEEN_SLICES = 'send'
_TRANSFER = re.compile(r'_xla_megascale_transfer_type="(\w+)"')
# A result passes through these; of a sum the parts are reduced together.
_PASS_THROUGH_OPCODES = (
  'get-tuple-element bitcast reshape copy transpose convert add'.split()
)


@dataclasses.dataclass(frozen=True)
class Collective:
  """An exchange between devices.

  Attributes:
    kind: one of KINDS.
    size: devices of a group.
    nodes: over how many nodes a group reaches.
    dtype: of what is exchanged.
    shape: of what a device gives (reduces, permutations, all-to-all) or gets
      (all-gather).
    bytes: of that array.
  """

  kind: str
  size: int
  nodes: int
  dtype: str
  shape: tuple[int, ...]
  bytes: float

  @property
  def sent(self) -> float:
    """Bytes that a device sends, by ring algorithms."""
    share = (self.size - 1) / self.size
    if self.kind == PERMUTE:
      return self.bytes
    return self.bytes * share * (2 if self.kind == ALL_REDUCE else 1)

  @property
  def sent_outside(self) -> float:
    """Bytes that each device's link to other nodes carries.

    All devices of a node take part, each with its share; an all-to-all or a
    permutation sends its own.
    """
    if self.nodes == 1:
      return 0
    if self.kind == PERMUTE:
      return self.bytes
    per_node = 1 if self.kind == ALL_TO_ALL else self.size / self.nodes
    share = (self.nodes - 1) / self.nodes / per_node
    return self.bytes * share * (2 if self.kind == ALL_REDUCE else 1)

  def seconds(self, accelerator: accelerators.Accelerator) -> float:
    """Seconds at the links' peaks, both kinds of link busy at once."""
    inside = self.sent if self.size > self.nodes else 0
    return max(
      inside / accelerator.inside, self.sent_outside / accelerator.outside
    )


Counts = collections.Counter[Collective]


class Placement(NamedTuple):
  """The devices that run a program: device i is in node i // per_node."""

  devices: int
  per_node: int


def count_collectives(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  place: Placement,
) -> Counts:
  """Returns the collectives that an instruction starts or does.

  An all-reduce of which each device only keeps a part is a reduce-scatter:
  XLA:TPU writes it so, in a fusion, and the partitioner leaves it so.

  Args:
    module: the program.
    computation: that the instruction is in.
    instruction: any.
    place: the devices that run the program.
  """
  if instruction.opcode in ALL:
    return _count_exchanges(computation, instruction, place)
  if instruction.opcode == BETWEEN_SLICES:
    return _count_slice_exchanges(computation, instruction, place)
  found: Counts = collections.Counter()
  if instruction.opcode in ('fusion', 'async-start'):
    for inner in module.called(instruction, 'calls'):
      for one in inner.instructions.values():
        found.update(count_collectives(module, inner, one, place))
  return found


def _count_exchanges(computation, instruction, place: Placement) -> Counts:
  members = replica_groups.parse_replica_groups(
    instruction.attributes, place.devices
  )
  if members.shape[1] == 1:
    return collections.Counter()
  nodes = np.sort(members // place.per_node, axis=1)
  reach = 1 + int(np.max(np.sum(np.diff(nodes, axis=1) > 0, axis=1)))
  return collections.Counter(
    _iterate_collectives(computation, instruction, members.shape[1], reach)
  )


def _count_slice_exchanges(
  computation, instruction, place: Placement
) -> Counts:
  """What a device exchanges with those in its place in the other slices."""
  transfer = _TRANSFER.search(instruction.attributes)
  slices = place.devices // place.per_node
  if transfer is None or slices == 1:
    return collections.Counter()
  kind = transfer[1].lower().replace('_', '-')
  kind = kind if kind in KINDS else PERMUTE
  array = computation.instructions[instruction.operands[0]].arrays[0]
  bytes_ = array.bytes * (slices if kind == ALL_GATHER else 1)
  return collections.Counter(
    [Collective(kind, slices, slices, array.dtype, array.shape, bytes_)]
  )


def _iterate_collectives(
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  size: int,
  nodes: int,
):
  """Returns a collective for each array that is exchanged."""
  kind = instruction.opcode.removesuffix('-start')
  for i, name in enumerate(instruction.operands):
    array = computation.instructions[name].arrays[0]
    shape = array.shape
    if kind == ALL_GATHER:
      dims = instruction.dimensions('dimensions')
      shape = tuple(
        n * size if j in dims[:1] else n for j, n in enumerate(shape)
      )
    shown = kind
    if kind == ALL_REDUCE and _is_scattered(computation, instruction, i, size):
      shown = REDUCE_SCATTER
    yield Collective(
      shown,
      size,
      nodes,
      array.dtype,
      shape,
      array.bytes * (size if kind == ALL_GATHER else 1),
    )


def _is_scattered(computation, instruction, index: int, size: int) -> bool:
  """Returns whether devices read only their part of an all-reduce's result."""
  readers = list(computation.users[instruction.name])
  if instruction.is_tuple:
    readers = [
      r for r in readers if r.opcode != 'get-tuple-element' or r.index == index
    ]
  found = []
  while readers:
    reader = readers.pop()
    if (
      reader.opcode in _PASS_THROUGH_OPCODES and reader is not computation.root
    ):
      readers += computation.users[reader.name]
    else:
      found.append(reader)
  return bool(found) and all(
    _reads_own_shard(computation, r, size) for r in found
  )


def _reads_own_shard(computation, reader, size: int) -> bool:
  """Returns whether a dynamic-slice has at most one part in `size`."""
  if reader.opcode != 'dynamic-slice':
    return False
  whole = computation.instructions[reader.operands[0]].arrays[0].size
  sizes = re.search(r'dynamic_slice_sizes=\{([\d,]+)\}', reader.attributes)
  part = np.prod([int(n) for n in sizes.group(1).split(',')]) if sizes else 0
  return 0 < part * size <= whole
