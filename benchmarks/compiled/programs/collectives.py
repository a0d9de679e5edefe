"""Number, sizes and device groups of the collectives in a compiled program."""

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
# In XLA:TPU, the hosts perform exchanges between slices.
BETWEEN_SLICES = 'send'
_TRANSFER = re.compile(r'_xla_megascale_transfer_type="(\w+)"')
# Opcodes that pass on a result. The operands of a sum are reduced together.
_PASS_THROUGH_OPCODES = (
  'get-tuple-element',
  'bitcast',
  'reshape',
  'copy',
  'transpose',
  'convert',
  'add',
)


@dataclasses.dataclass(frozen=True)
class Collective:
  """A collective operation between devices.

  Attributes:
    kind: Kind of collective, one of `KINDS`.
    size: Number of devices in each group of devices that communicate.
    nodes: Number of nodes over which each group of devices is distributed.
    dtype: Data type of the exchanged array.
    shape: Shape of the array that each device provides to a reduction,
      permutation or all-to-all, or receives from an all-gather.
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
    """Number of bytes that a device sends if ring algorithms are used."""
    fraction = (self.size - 1) / self.size
    if self.kind == PERMUTE:
      return self.bytes
    return self.bytes * fraction * (2 if self.kind == ALL_REDUCE else 1)

  @property
  def sent_outside(self) -> float:
    """Number of bytes that each device sends to other nodes.

    All devices in a node send an equal fraction of the data. In an all-to-all
    or a permutation, each device sends its own data.
    """
    if self.nodes == 1:
      return 0
    if self.kind == PERMUTE:
      return self.bytes
    per_node = 1 if self.kind == ALL_TO_ALL else self.size / self.nodes
    fraction = (self.nodes - 1) / self.nodes / per_node
    return self.bytes * fraction * (2 if self.kind == ALL_REDUCE else 1)

  def seconds(self, accelerator: accelerators.Accelerator) -> float:
    """Returns the collective's minimum duration in seconds, at peak link rates.

    Links within and between nodes are assumed to work in parallel.
    """
    inside = self.sent if self.size > self.nodes else 0
    return max(
      inside / accelerator.inside, self.sent_outside / accelerator.outside
    )


Counts = collections.Counter[Collective]


class Placement(NamedTuple):
  """Placement of devices on nodes: device i is on node i // per_node."""

  devices: int
  per_node: int


def count_collectives(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  placement: Placement,
) -> Counts:
  """Counts the collectives that an instruction starts or performs.

  An all-reduce whose result each device slices is counted as a reduce-scatter.
  XLA:TPU expresses a reduce-scatter in this way, within a fusion, and so does
  the partitioner.

  Args:
    module: HLO module of the program.
    computation: Computation that contains the instruction.
    instruction: Instruction to examine, which may have any opcode.
    placement: Placement of the devices that run the program.
  """
  if instruction.opcode in ALL:
    return _count_exchanges(computation, instruction, placement)
  if instruction.opcode == BETWEEN_SLICES:
    return _count_slice_exchanges(computation, instruction, placement)
  counts: Counts = collections.Counter()
  if instruction.opcode in ('fusion', 'async-start'):
    for called in module.called(instruction, 'calls'):
      for inner_instruction in called.instructions.values():
        counts.update(
          count_collectives(module, called, inner_instruction, placement)
        )
  return counts


def _count_exchanges(computation, instruction, placement: Placement) -> Counts:
  """Counts the collective operations of a single collective instruction."""
  groups = replica_groups.parse_replica_groups(
    instruction.attributes, placement.devices
  )
  if groups.shape[1] == 1:
    return collections.Counter()
  nodes = np.sort(groups // placement.per_node, axis=1)
  num_nodes = 1 + int(np.max(np.sum(np.diff(nodes, axis=1) > 0, axis=1)))
  return collections.Counter(
    _iterate_collectives(computation, instruction, groups.shape[1], num_nodes)
  )


def _count_slice_exchanges(
  computation, instruction, placement: Placement
) -> Counts:
  """Counts exchanges with the corresponding devices in other slices."""
  transfer = _TRANSFER.search(instruction.attributes)
  num_slices = placement.devices // placement.per_node
  if transfer is None or num_slices == 1:
    return collections.Counter()
  kind = transfer[1].lower().replace('_', '-')
  kind = kind if kind in KINDS else PERMUTE
  operand = computation.instructions[instruction.operands[0]].arrays[0]
  num_bytes = operand.bytes * (num_slices if kind == ALL_GATHER else 1)
  return collections.Counter(
    [
      Collective(
        kind, num_slices, num_slices, operand.dtype, operand.shape, num_bytes
      )
    ]
  )


def _iterate_collectives(
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  size: int,
  nodes: int,
):
  """Yields a collective for each exchanged array."""
  kind = instruction.opcode.removesuffix('-start')
  for i, name in enumerate(instruction.operands):
    array = computation.instructions[name].arrays[0]
    shape = array.shape
    if kind == ALL_GATHER:
      dimensions = instruction.dimensions('dimensions')
      shape = tuple(
        size_of_dimension * size
        if axis in dimensions[:1]
        else size_of_dimension
        for axis, size_of_dimension in enumerate(shape)
      )
    reported_kind = kind
    if kind == ALL_REDUCE and _is_scattered(computation, instruction, i, size):
      reported_kind = REDUCE_SCATTER
    yield Collective(
      reported_kind,
      size,
      nodes,
      array.dtype,
      shape,
      array.bytes * (size if kind == ALL_GATHER else 1),
    )


def _is_scattered(computation, instruction, index: int, size: int) -> bool:
  """Returns whether devices read only their shard of an all-reduce's result."""
  readers = list(computation.users[instruction.name])
  if instruction.is_tuple:
    readers = [
      reader
      for reader in readers
      if reader.opcode != 'get-tuple-element' or reader.index == index
    ]
  final_readers = []
  while readers:
    reader = readers.pop()
    if (
      reader.opcode in _PASS_THROUGH_OPCODES and reader is not computation.root
    ):
      readers += computation.users[reader.name]
    else:
      final_readers.append(reader)
  return bool(final_readers) and all(
    _reads_own_shard(computation, reader, size) for reader in final_readers
  )


def _reads_own_shard(computation, reader, size: int) -> bool:
  """Returns whether a dynamic-slice reads at most 1 / `size` of its operand."""
  if reader.opcode != 'dynamic-slice':
    return False
  operand_size = computation.instructions[reader.operands[0]].arrays[0].size
  sizes = re.search(r'dynamic_slice_sizes=\{([\d,]+)\}', reader.attributes)
  slice_size = (
    np.prod([int(number) for number in sizes.group(1).split(',')])
    if sizes
    else 0
  )
  return 0 < slice_size * size <= operand_size
