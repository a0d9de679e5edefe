"""Runs the text of a program on paper: what runs how often, and when.

A device computes in the order of the program. Asynchronous collectives and
copies start beside that, one after the other on their links; a device waits
for one where the program reads its result. What it waits is exposed.
"""

import collections
import dataclasses
import re
from typing import Any

from benchmarks.compiled.programs import collectives, hlo, kernels
from xlflax.training.devices import accelerators

_WINDOWED = re.compile(r'windowed_dot_general|collective[_-]matmul', re.I)
_COPIES = ('copy-start', 'slice-start')
_PASS_THROUGH_OPCODES = ('copy', 'convert', 'bitcast')


@dataclasses.dataclass
class Run:
  """What a device does in one run of a program or of a part of it.

  Attributes:
    kernels: kernel -> how often.
    exchanged: collective -> how often.
    asynchronous: of these, started beside computation.
    exposed: collective -> seconds that the device waits for it.
    waited: seconds of waiting for copies.
    busy: seconds of kernels.
    windowed: loops of partial sums that the partitioner made of a product,
      -> iterations.
    unknown_loops: loops that count once, as their trip count is unknown.
  """

  kernels: collections.Counter[Any] = dataclasses.field(
    default_factory=collections.Counter
  )
  exchanged: collectives.Counts = dataclasses.field(
    default_factory=collections.Counter
  )
  asynchronous: collectives.Counts = dataclasses.field(
    default_factory=collections.Counter
  )
  exposed: collections.Counter[Any] = dataclasses.field(
    default_factory=collections.Counter
  )
  waited: float = 0.0
  busy: float = 0.0
  windowed: collections.Counter[str] = dataclasses.field(
    default_factory=collections.Counter
  )
  unknown_loops: int = 0

  @property
  def seconds(self) -> float:
    """Returns the least time of the run on the device."""
    return self.busy + self.waited + sum(self.exposed.values())

  def add(self, other: 'Run', times: int = 1) -> None:
    """Adds another run, done so many times."""
    for field in dataclasses.fields(self):
      mine, more = getattr(self, field.name), getattr(other, field.name)
      if isinstance(mine, collections.Counter):
        for key, value in more.items():
          mine[key] += value * times  # type: ignore[assignment]
      else:
        setattr(self, field.name, mine + more * times)


@dataclasses.dataclass
class _Clock:
  """When a device, its links and its copies are free, and what they do.

  Between slices of TPUs the hosts' links are others than the devices'.
  """

  now: float = 0.0
  links: float = 0.0
  hosts: float = 0.0
  copies: float = 0.0
  ends: dict[str, tuple[float, collectives.Collective | None]] = (
    dataclasses.field(default_factory=dict)
  )


@dataclasses.dataclass(frozen=True)
class Execution:
  """How a program runs.

  Attributes:
    module: the program.
    read: what the kernels of an instruction are.
    place: the devices that run it.
    accelerator: of them; None where nothing is known of times.
  """

  module: hlo.Module
  read: kernels.Reader
  place: collectives.Placement
  accelerator: accelerators.Accelerator | None

  def run(self) -> Run:
    """Runs the program once."""
    return self._computation(self.module.entry)

  def _computation(self, computation: hlo.Computation) -> Run:
    run, clock = Run(), _Clock()
    for instruction in computation.instructions.values():
      if instruction.opcode == 'while':
        self._loop(run, clock, computation, instruction)
      elif instruction.opcode in ('conditional', 'call'):
        self._branch(run, clock, instruction)
      elif instruction.opcode.endswith('-done'):
        _wait_for(run, clock, instruction)
      else:
        self._one(run, clock, computation, instruction)
    return run

  def _loop(self, run, clock, computation, instruction) -> None:
    (body,) = self.module.called(instruction, 'body')
    times = trip_count(self.module, computation, instruction)
    run.unknown_loops += times is None
    rounds = 1 if times is None else times
    inner = self._computation(body)
    run.add(inner, rounds)
    clock.now += inner.seconds * rounds
    if _WINDOWED.search(body.name + instruction.attributes):
      run.windowed[instruction.name] += rounds

  def _branch(self, run, clock, instruction) -> None:
    """The branch that takes longest counts."""
    branches = [self._computation(c) for c in self.module.called(instruction)]
    longest = max(branches, key=lambda r: (r.seconds, len(r.kernels)))
    run.add(longest)
    clock.now += longest.seconds

  def _one(self, run, clock, computation, instruction) -> None:
    found = collectives.count_collectives(
      self.module, computation, instruction, self.place
    )
    if found:
      self._exchange(run, clock, instruction, found)
    elif instruction.opcode == 'async-start':
      for inner in self.module.called(instruction, 'calls'):
        run.add(self._computation(inner))
    elif kernel := self.read(self.module, computation, instruction):
      run.kernels[kernel] += 1
      seconds = kernel.seconds(self.accelerator) if self.accelerator else 0.0
      if instruction.opcode in _COPIES:
        clock.copies = max(clock.now, clock.copies) + seconds
        clock.ends[instruction.name] = clock.copies, None
      else:
        run.busy += seconds
        clock.now += seconds

  def _exchange(self, run, clock, instruction, found) -> None:
    """A collective; a synchronous one is waited for at once."""
    run.exchanged.update(found)
    opcode = instruction.opcode
    seconds = (
      sum(n * c.seconds(self.accelerator) for c, n in found.items())
      if self.accelerator
      else 0.0
    )
    link = 'hosts' if opcode == collectives.BETWEEN_SLICES else 'links'
    end = max(clock.now, getattr(clock, link)) + seconds
    setattr(clock, link, end)
    clock.ends[instruction.name] = end, next(iter(found))
    if opcode.endswith(('-start', collectives.BETWEEN_SLICES)):
      run.asynchronous.update(found)
    else:
      _wait_for(run, clock, instruction, instruction.name)


def _wait_for(run: Run, clock: _Clock, instruction, started: str = '') -> None:
  """Waits for what an instruction's operand started."""
  end, collective = clock.ends.pop(
    started or instruction.operands[0], (clock.now, None)
  )
  waited = max(0.0, end - clock.now)
  clock.now += waited
  if collective is not None:
    run.exposed[collective] += waited  # type: ignore[assignment]
  else:
    run.waited += waited


def trip_count(
  module: hlo.Module, computation: hlo.Computation, loop: hlo.Instruction
) -> int | None:
  """Returns the trip count of a `while`; None if the text does not tell it.

  XLA's annotator writes it into the text. Before that, it is the constant that
  the condition compares the counter with, if the counter grows from a constant
  by one, as in `lax.scan` and a `fori_loop` of known bounds.
  """
  known = re.search(r'known_trip_count"?:\{"n":"(\d+)"', loop.attributes)
  if known:
    return int(known.group(1))
  condition = module.computations[loop.called['condition'][0]]
  test = condition.root
  if test.opcode != 'compare' or 'direction=LT' not in test.attributes:
    return None
  counter, bound = (
    hlo.skip_instructions(condition, name, _PASS_THROUGH_OPCODES)
    for name in test.operands
  )
  if counter.opcode != 'get-tuple-element' or bound.opcode != 'constant':
    return None
  start = _initial_value(computation, loop, counter.index)
  return None if start is None else int(bound.operands[0]) - start


def _initial_value(computation, loop, index: int) -> int | None:
  """Returns the constant that an element of a loop's state starts from."""
  state = computation.instructions[loop.operands[0]]
  if state.opcode != 'tuple':
    return None
  first = hlo.skip_instructions(
    computation, state.operands[index], _PASS_THROUGH_OPCODES
  )
  return int(first.operands[0]) if first.opcode == 'constant' else None
